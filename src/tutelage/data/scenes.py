"""Scenes of animal silhouettes: which pixels are the dog's? Drawn by code, or from the templates of the SiSI set.

Bird, cat and dog are visited in random order, and the later covers the earlier. Each is there with probability 1/2, as a
random silhouette, mirrored or not, turned by up to 30°, at 0.5 to 1 times the frame's size, anywhere inside the frame.
Every kind and the background have a grey level of their own, dealt out anew in every scene: brightness tells objects apart
but not what they are. About half the scenes hold no dog, and an eighth hold nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data import silhouettes
from tutelage.data.dataset import Private, Public
from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]
GREYS = (0, 50, 87, 135, 185, 210, 255)
_PASS = 128  # scenes at a time: what fits the cache


@final
@dataclass(frozen=True)
class Scenes:
    """Draw grey scenes of size × size pixels, and the mask of one kind of animal in each."""

    size: int = 64
    target: str = "dog"
    noise: float = 0.0  # standard deviation, in grey levels of 255
    templates: Path | str | None = None  # a folder with bird/, cat/ and dog/; without one the package draws its own

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 8:
            raise RecipeError(f"`size` must be a whole number ≥ 8. Got {self.size!r} instead.")
        if self.target not in silhouettes.KINDS:
            raise RecipeError(f"`target` must be one of {', '.join(silhouettes.KINDS)}. Got {self.target!r} instead.")
        if not (isinstance(self.noise, (int, float)) and 0 <= self.noise < 256):
            raise RecipeError(f"`noise` must lie in [0, 256). Got {self.noise!r} instead.")

    @cached_property
    def _kinds(self) -> Mapping[str, Array]:
        found = silhouettes.drawn(self.size) if self.templates is None else silhouettes.read(self.templates, self.size)
        return {kind: np.pad(shapes, ((0, 0), (1, 1), (1, 1))) for kind, shapes in found.items()}

    def draw(self, count: int, *, seed: int) -> tuple[Array, Array]:
        """Draw images (count, 1, size, size) in [0, 1] and masks (count, size, size) of zeros and ones."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise RecipeError(f"`count` must be a whole number ≥ 1. Got {count!r} instead.")
        rng = np.random.default_rng(seed)
        images = np.empty((count, 1, self.size, self.size), dtype=np.float32)
        masks = np.empty((count, self.size, self.size), dtype=np.uint8)
        for start in range(0, count, _PASS):
            part = slice(start, min(count, start + _PASS))
            shown = self._compose(part.stop - start, rng)  # 0 background, 1 … one per kind
            deal = rng.permuted(np.tile(np.array(GREYS, dtype=np.float32), (len(shown), 1)), axis=1)
            grey = deal.reshape(-1)[shown + np.arange(0, deal.size, len(GREYS))[:, None, None]]
            if self.noise:
                grey = np.clip(grey + rng.normal(0, self.noise, grey.shape), 0, 255)
            images[part, 0] = grey / np.float32(255)
            masks[part] = shown == 1 + silhouettes.KINDS.index(self.target)
        return images, masks

    def _compose(self, count: int, rng: np.random.Generator) -> Array:
        """Say what is seen at every pixel: (count, size, size) numbers of kinds."""
        height = rng.permuted(np.tile(np.arange(1, 4, dtype=np.int8), (count, 1)), axis=1)  # the later covers the earlier
        shown = np.zeros((count, self.size, self.size), dtype=np.int8)
        top = np.zeros_like(shown)
        for number, kind in enumerate(silhouettes.KINDS):
            present = np.flatnonzero(rng.random(count) < 0.5)
            level = height[present, number, None, None]
            seen = self._placed(self._kinds[kind], len(present), rng) & (level > top[present])
            shown[present] = np.where(seen, number + 1, shown[present])
            top[present] = np.where(seen, level, top[present])
        return shown

    def _placed(self, shapes: Array, count: int, rng: np.random.Generator) -> Array:
        """Mirror, turn, scale and move random silhouettes: (count, size, size) of bools, by looking up where each pixel was."""
        which, mirrored = rng.integers(len(shapes), size=count), np.where(rng.random(count) < 0.5, -1.0, 1.0)
        angle, scale = np.deg2rad(rng.uniform(-30, 30, count)), rng.uniform(0.5, 1.0, count)
        half = self.size / 2
        middle = half + (1 - scale)[:, None] * half * rng.uniform(-1, 1, (count, 2))  # the scaled frame stays inside
        near = (np.arange(self.size) + 0.5 - middle[:, :, None]) / scale[:, None, None]  # (count, 2, size): down and right
        down, right = near[:, 0, :, None].astype(np.float32), near[:, 1, None, :].astype(np.float32)
        cosine, sine = (wave(angle).astype(np.float32)[:, None, None] for wave in (np.cos, np.sin))
        sign = mirrored.astype(np.float32)[:, None, None]
        # One pixel of nothing around every silhouette (see `_kinds`): what lies outside is cut to that rim.
        row = np.clip(cosine * down - sine * right + np.float32(half + 1), 0, self.size + 1).astype(np.int32)
        column = np.clip(sign * (sine * down + cosine * right) + np.float32(half + 1), 0, self.size + 1).astype(np.int32)
        side = self.size + 2
        return shapes.reshape(-1)[which[:, None, None] * side**2 + row * side + column]

    def private(self, count: int, *, seed: int) -> Private:
        """Draw scenes that play the private part; each is its own unit."""
        images, masks = self.draw(count, seed=seed)
        return Private.of(images, masks, source=self._source(count, seed))

    def public(self, count: int, *, seed: int) -> Public:
        """Draw scenes that anyone may see, with their masks for codecs and controls."""
        images, masks = self.draw(count, seed=seed)
        return Public.of(images, masks, source=self._source(count, seed))

    def _source(self, count: int, seed: int) -> str:
        kind = "drawn" if self.templates is None else "templates"
        return f"scenes ({kind}, size={self.size}, target={self.target}, noise={float(self.noise):g}), {count} of seed {seed}"
