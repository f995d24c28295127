"""Masks and images for the papers' figures: drawn ones in minutes, real ones where their folder is given."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.data.scenes import Scenes
from tutelage.data.sources import MissingFiles
from tutelage.reproduction.scans import BRATS, HIPPOCAMPUS, Scans

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]
Made = TypeVar("Made")
SMALL, FULL = 16, 64
TEMPLATES = Path("sisi/raw_images")
GRAIN = 0.6  # deviation of the grain on an animal of brightness 1, in small images
KNOWN = (200, 60)  # patients whose masks a codec is fitted to, and those it is tried on
THIRDS = (130, 130, 75)  # patients of 000: for the codec, for the student, to test on
_SPARE = 2.4  # scenes drawn per scene with the animal: about half hold none
_PASS = 4096  # scenes per seed at full size: what a thread draws at a time


@final
@dataclass(frozen=True, kw_only=True)
class Bench:
    """Say where and how large: what every figure is made with."""

    out: Path
    data: Path | None = None
    small: bool = False
    public_data: bool = False  # the caller says that all of `data` is published anyway: what has no noise on it may be shown
    device: str = "auto"
    seeds: int = 1
    scale: float = 1.0  # of counts and steps; tests turn it down
    progress: Progress | None = None
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def count(self, small: int, full: int) -> int:
        """Choose a number by the size of the reproduction."""
        return max(2, round(self.scale * (small if self.small else full)))

    def say(self, what: str, done: int, total: int) -> None:
        """Tell how far it is."""
        if self.progress is not None:
            self.progress(what, done, total)

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """Make what several figures need, once."""
        if name not in self._made:
            self._made[name] = make()
        return cast(Made, self._made[name])

    @property
    def settings(self) -> str:
        """Name what a figure is computed with: what was kept under another name is computed anew."""
        held = " and ".join((*(("scenes",) if self.draws else ()), *self.volumes)) or "nothing"
        size, shown = "small" if self.small else "full", ", public data" if self.public_data else ""
        return f"{size}, scale {self.scale:g}, {held}, seeds {self.seeds}{shown}"

    @property
    def shows(self) -> bool:
        """Tell whether what has no noise on it may be shown: every image is drawn by the package, or said to be published."""
        return self.small or self.public_data

    @property
    def size(self) -> int:
        """Give the side of a scene."""
        return SMALL if self.small else FULL

    @property
    def draws(self) -> bool:
        """Tell whether scenes can be drawn."""
        return self.small or self._has(TEMPLATES)

    @property
    def sets(self) -> tuple[str, ...]:
        """Name the sets whose masks may be measured without noise: scenes, and volumes that are said to be published."""
        found = (*(("scenes",) if self.draws else ()), *(self.volumes if self.public_data else ()))
        if not found:
            raise MissingFiles(
                f"`data` must hold {TEMPLATES} with bird/, cat/ and dog/ (--small draws), or volumes ({HIPPOCAMPUS}, {BRATS}) "
                f"that --public-data says are published. Got {self._lacking} instead."
            )
        return found

    @cached_property
    def scenes(self) -> Scenes:
        """Draw with the embedded silhouettes when small, else with the real templates."""
        if self.small:
            return Scenes(self.size)
        if not self.draws:
            raise MissingFiles(
                f"`data` must hold {TEMPLATES} with bird/, cat/ and dog/ (--small draws). Got {self._lacking} instead."
            )
        return Scenes(self.size, templates=self._folder(TEMPLATES))

    def masks(self, count: int, *, seed: int) -> Array:
        """Draw masks (count, size, size). Small ones all hold an animal; at full size about half are empty, as in the thesis."""
        return np.asarray(self.images(count, seed=seed).targets)

    def images(self, count: int, *, seed: int) -> Public:
        """Draw scenes as Public. Small ones are an animal under grain, which a few images and steps are enough to learn."""
        if not self.small:
            return self._many(count, seed)
        _, masks = self.scenes.draw(int(_SPARE * count) + 64, seed=seed)
        masks = masks[masks.any(axis=(1, 2))][:count]
        rng = np.random.default_rng(seed)
        images = masks[:, None] + GRAIN * rng.standard_normal(masks[:, None].shape, dtype=np.float32)
        return Public.of(images.astype(np.float32), masks, source=f"animals under grain, {len(masks)} of seed {seed}")

    def _many(self, count: int, seed: int) -> Public:
        """Draw on all cores, a seed per pass; grey levels are whole numbers, and as bytes a quarter of the size."""
        scenes, starts = self.scenes, range(0, count, _PASS)
        images = np.empty((count, 1, self.size, self.size), dtype=np.uint8)
        masks = np.empty((count, self.size, self.size), dtype=np.uint8)
        scenes.draw(1, seed=0)  # templates are read once, before the threads need them

        def draw(start: int) -> None:
            part = slice(start, min(count, start + _PASS))
            grey, masks[part] = scenes.draw(part.stop - start, seed=1000 * seed + start // _PASS)
            images[part] = np.rint(255 * grey)

        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
            for done, _ in enumerate(pool.map(draw, starts), start=1):
                self.say("drawing scenes", done, len(starts))
        return Public.of(images, masks, source=f"SiSI scenes, {count} of seed {seed}")

    @property
    def volumes(self) -> tuple[str, ...]:
        """Name the sets of volumes at hand, BraTS first: where it is, the tables are made of it."""
        return tuple(name for name, place in (("brats", BRATS), ("hippocampus", HIPPOCAMPUS)) if self._has(place))

    @property
    def _lacking(self) -> str:
        if self.data is None:
            return "nothing"
        name = repr(self.data.resolve().name)  # the way to it has no place on a page
        return f"{name} without any" if self.data.exists() else f"{name}, which does not exist,"

    def _has(self, place: Path) -> bool:
        return self.data is not None and (self.data / place).is_dir()

    @cached_property
    def scans(self) -> list[Scans]:
        """Read every set of volumes at hand, BraTS first; at small size every second voxel of what is read otherwise."""
        found = []
        if self._has(BRATS):
            found.append(Scans.brats(self._folder(BRATS), thin=4 if self.small else 2))
        if self._has(HIPPOCAMPUS):
            found.append(Scans.hippocampus(self._folder(HIPPOCAMPUS), thin=2 if self.small else 1))
        return found

    def _folder(self, place: Path) -> Path:
        assert self.data is not None
        return self.data / place

    @property
    def patients(self) -> Scans:
        """Give the volumes for a table: BraTS, else the hippocampus."""
        if not self.volumes:
            raise MissingFiles(f"`data` must hold {HIPPOCAMPUS} (imagesTr, labelsTr) or {BRATS}. Got {self._lacking} instead.")
        return self.scans[0]

    def drawn(self, train: Sequence[int], test: Sequence[int]) -> tuple[Public, Array]:
        """Give public masks of scenes, and others."""
        masks = self.masks(self.count(*train), seed=1)
        return _shapes(masks, f"{len(masks)} masks of seed 1"), self.masks(self.count(*test), seed=2)

    def masks_of(self, name: str, train: Sequence[int], test: Sequence[int]) -> tuple[Public, Array]:
        """Give public masks and others of one set: scenes, or the volumes of this name, where they are other people's."""
        if name == "scenes":
            return self.drawn(train, test)
        masks = np.asarray(self.named(name).everyone.targets)
        known, fresh = self.named(name).split(KNOWN)
        return _shapes(masks[known], f"{name}, {len(known)} masks"), masks[fresh]

    def named(self, name: str) -> Scans:
        """Give the volumes of this name."""
        (scans,) = (some for some in self.scans if some.name == name)
        return scans

    def lessons(self, name: str, count: int) -> tuple[Public, Public, Public]:
        """Give what a student of true masks learns from, what it is tested on, and other masks for the codec.

        Of scenes only those with the animal, as every scan holds what is looked for; of volumes the division of 000.
        """
        if name == "scenes":
            masks = self.masks(self.count(4000, 16_384), seed=23)
            return self._holding(count, 21), self._holding(self.count(300, 2048), 22), _shapes(masks, "masks of seed 23")
        scans = self.named(name)
        shapes, asked, tested = (scans.everyone[some] for some in scans.split(THIRDS))
        return asked[:count], tested, shapes

    def _holding(self, count: int, seed: int) -> Public:
        """Draw scenes with the animal alone: where half the masks are empty, to find nothing is hard to beat."""
        if self.small:
            return self.images(count, seed=seed)
        found = self.images(int(_SPARE * count) + 64, seed=seed)
        assert found.targets is not None
        return found[np.flatnonzero(found.targets.any(axis=(1, 2)))[:count]]


def _shapes(masks: Array, source: str) -> Public:
    """Let masks stand without their images."""
    return Public.of(np.zeros((len(masks), 1)), masks, source=source)
