"""Vote for one region of the public image, or for none: where teachers agree, the noisy maximum is exact and nearly free."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import settle, share, sizes, whole
from tutelage.codecs.passes import masks, slices
from tutelage.codecs.segments import cut_name, greys, level_sets, superpixels
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
Cut = Literal["greys", "levels", "superpixels"]
_CUTS: Mapping[str, Callable[[Array, int], Array]] = MappingProxyType(
    {"greys": greys, "levels": level_sets, "superpixels": superpixels}
)


@final
@dataclass(frozen=True)
class RegionVotes:
    """Ask which region of an image is the object's. Regions are cut from public images alone, before the charge.

    A teacher votes for the region that overlaps its mask best (overlap over union), or for none where even that is below
    `share`. One vote moves two counts by one, whatever a teacher drew. There is nothing to fit.
    """

    shape: tuple[int, ...]
    regions: int  # at most, in one image
    method: Cut = "greys"
    share: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", sizes("shape", self.shape))
        whole(regions=self.regions)
        share(share=self.share)
        settle(self, regions=int(self.regions), share=float(self.share))
        if self.method not in _CUTS:
            raise RecipeError(f"`method` must be one of {', '.join(map(repr, _CUTS))}. Got {self.method!r} instead.")

    @property
    def bound(self) -> OneHot:
        """One vote: for a region, largest first, or (the last) for none."""
        return OneHot(self.regions + 1)

    def seeing(self, inputs: Array) -> Regioned:
        """Cut these public images (queries, channels, *shape) into regions."""
        given = np.asarray(inputs)
        if given.shape[1:] == self.shape:
            given = given[:, None]
        if given.ndim != 2 + len(self.shape) or given.shape[2:] != self.shape or not given.shape[1]:
            raise DataError(f"`inputs` must be images of shape (channels, *{self.shape}). Got {given.shape[1:]} instead.")
        if given.dtype.kind not in "biuf" or not np.isfinite(given).all():
            raise DataError("`inputs` must be finite numbers. Got others instead.")
        labels = np.empty((len(given), *self.shape), dtype=np.min_scalar_type(self.regions))
        for row, image in zip(labels, given, strict=True):
            row[...] = _CUTS[self.method](image, self.regions)
        labels.flags.writeable = False
        return Regioned(self, labels)

    def __repr__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """Name the codec by all that decides what it encodes and decodes."""
        cut = cut_name(self.method, self.shape, self.regions)
        return f"RegionVotes(shape={self.shape!r}, regions={self.regions!r}, method={cut!r}, share={self.share!r})"


@final
@dataclass(frozen=True)
class Regioned:
    """Votes for the regions of certain images."""

    votes: RegionVotes
    labels: Array = field(repr=False, compare=False)  # (queries, *shape), which region a pixel belongs to

    @property
    def bound(self) -> OneHot:
        """One vote."""
        return self.votes.bound

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into whole votes (teachers, queries, regions + 1), teacher by teacher.

        Teachers that choose a region themselves give its number, (teachers, queries); any other number is a vote for none.
        """
        given, shape = np.asarray(predictions), self.labels.shape
        if given.ndim == 2 and given.shape[1:] == shape[:1] and given.dtype.kind in "iu":
            given = given.astype(np.int64)
            known = np.where((given >= 0) & (given < self.votes.regions), given, self.votes.regions)
            return np.asarray(known[..., None] == np.arange(self.bound.dimension))
        if given.ndim != 1 + len(shape) or given.shape[1:] != shape or given.dtype.kind not in "biuf":
            raise DataError(
                f"`predictions` must be real numbers of shape (teachers, {', '.join(map(str, shape))}). "
                f"Got {given.dtype} of shape {given.shape} instead."
            )
        chosen = np.empty(given.shape[:2], dtype=np.int64)
        for part in slices(len(self.labels), math.prod(self.votes.shape)):
            regions = self.labels[part].reshape(part.stop - part.start, -1)
            cells = regions + self.votes.regions * np.arange(len(regions))[:, None]  # one bin per image and region
            sizes_ = self._gathered(cells, None)
            for teacher, answers in enumerate(given):
                chosen[teacher, part] = self._best(self._gathered(cells, masks(answers[part])), sizes_)
        return np.asarray(chosen[..., None] == np.arange(self.bound.dimension))

    def _gathered(self, cells: Array, weights: Array | None) -> Array:
        """Add up pixels by region: (images, regions)."""
        flat = None if weights is None else weights.reshape(-1)
        sums = np.bincount(cells.reshape(-1), flat, minlength=len(cells) * self.votes.regions)
        return sums.reshape(len(cells), self.votes.regions)

    def _best(self, inside: Array, areas: Array) -> Array:
        """Choose by overlap over union: (images,). The whole mask counts, so that one drawn beside a region speaks against it."""
        union = areas + inside.sum(axis=1, keepdims=True) - inside
        overlap = np.where(areas > 0, inside / np.maximum(union, 1e-12), 0.0)
        return np.where(overlap.max(axis=1) >= self.votes.share, overlap.argmax(axis=1), self.votes.regions)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Paint the chosen region of every image, or nothing: (queries, *shape) of zeros and ones."""
        given = np.asarray(codes)
        if given.shape != self.labels.shape[:1] or given.dtype.kind not in "iu":
            raise DataError(
                f"`codes` must be {len(self.labels)} whole numbers, one per image. Got {given.dtype} of {given.shape} instead."
            )
        chosen = given.reshape(-1, *(1,) * len(self.votes.shape))
        return np.asarray((self.labels == chosen) & (chosen < self.votes.regions), dtype=np.uint8)
