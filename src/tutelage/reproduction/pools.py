"""Masks and images for the papers' figures: drawn ones in minutes, real ones where their folder is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.data.scenes import Scenes
from tutelage.data.sources import MissingFiles
from tutelage.data.volumes import Volumes

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]
SMALL, FULL, VOLUME = 16, 64, (32, 48, 32)
TEMPLATES, HIPPOCAMPUS = Path("sisi/raw_images"), Path("hippocampus")
GRAIN = 0.6  # deviation of the grain on an animal of brightness 1, in small images
_SPARE = 2.4  # scenes drawn per scene with the animal: about half hold none


@final
@dataclass(frozen=True, kw_only=True)
class Bench:
    """Say where and how large: what every figure is made with."""

    out: Path
    data: Path | None = None
    small: bool = False
    device: str = "auto"
    seeds: int = 1
    scale: float = 1.0  # of counts and steps; tests turn it down
    progress: Progress | None = None

    def count(self, small: int, full: int) -> int:
        """Choose a number by the size of the reproduction."""
        return max(2, round(self.scale * (small if self.small else full)))

    def say(self, what: str, done: int, total: int) -> None:
        """Tell how far it is."""
        if self.progress is not None:
            self.progress(what, done, total)

    @property
    def size(self) -> int:
        """Give the side of a scene."""
        return SMALL if self.small else FULL

    @cached_property
    def scenes(self) -> Scenes:
        """Draw with the embedded silhouettes when small, else with the real templates."""
        if self.small:
            return Scenes(self.size)
        folder = None if self.data is None else self.data / TEMPLATES
        if folder is None or not folder.is_dir():
            raise MissingFiles(f"`data` must hold {TEMPLATES} with bird/, cat/ and dog/ (--small draws). Got none instead.")
        return Scenes(self.size, templates=folder)

    def masks(self, count: int, *, seed: int) -> Array:
        """Draw masks (count, size, size). Small ones all hold an animal; at full size about half are empty, as in the thesis."""
        return np.asarray(self.images(count, seed=seed).targets)

    def images(self, count: int, *, seed: int) -> Public:
        """Draw scenes as Public. Small ones are an animal under grain, which a few images and steps are enough to learn."""
        if not self.small:
            return self.scenes.public(count, seed=seed)
        _, masks = self.scenes.draw(int(_SPARE * count) + 64, seed=seed)
        masks = masks[masks.any(axis=(1, 2))][:count]
        rng = np.random.default_rng(seed)
        images = masks[:, None] + GRAIN * rng.standard_normal(masks[:, None].shape, dtype=np.float32)
        return Public.of(images.astype(np.float32), masks, source=f"animals under grain, {len(masks)} of seed {seed}")

    @property
    def has_volumes(self) -> bool:
        """Tell whether the hippocampus volumes are at hand."""
        return self.data is not None and (self.data / HIPPOCAMPUS / "labelsTr").is_dir()

    @cached_property
    def volumes(self) -> Public:
        """Read all hippocampus volumes; at small size every second voxel of every axis."""
        if not self.has_volumes:
            raise MissingFiles(f"`data` must hold {HIPPOCAMPUS} with imagesTr and labelsTr. Got no such folder instead.")
        assert self.data is not None
        everyone = Volumes.decathlon(self.data / HIPPOCAMPUS, size=VOLUME).public()
        assert everyone.targets is not None
        if not self.small:
            return everyone
        return Public.of(everyone.inputs[:, :, ::2, ::2, ::2], everyone.targets[:, ::2, ::2, ::2], source=everyone.source)

    def sets(self, train: Sequence[int], test: int) -> list[tuple[str, Public, Array]]:
        """Give (name, public masks, other masks) of every set at hand: scenes, and the hippocampus where its folder is."""
        drawn = self.masks(self.count(*train), seed=1)
        found = [("scenes", Public.of(np.zeros((len(drawn), 1)), drawn), self.masks(max(2, round(self.scale * test)), seed=2))]
        if self.has_volumes:
            masks = self.volumes.targets
            assert masks is not None
            order = np.random.default_rng(0).permutation(len(masks))
            known, fresh = masks[order[:200]], masks[order[200:]]
            found.append(("hippocampus", Public.of(np.zeros((len(known), 1)), known), fresh))
        return found
