"""Votes about regions of the public image in place of pixels. Where the image shows the object's edge, few regions say it all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import positive, sizes, whole
from tutelage.codecs.fitting import QUANTILE, Provenance, hashed, public_masks, public_norm
from tutelage.codecs.passes import decoded, encoded, masks, valid_codes
from tutelage.codecs.segments import level_sets, superpixels
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Binary, Bound, OneHot, Orthant
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
Vote = Literal["each", "one", "pixels"]
Method = Literal["superpixels", "levels"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Regions:
    """Let teachers vote for every region ('each'), for one region or none ('one'), or for pixels that are averaged per region.

    'each' and 'one' hold the regions of a fixed pool, and all of it must be asked at once, in order: a ballot does not say
    which image it is about. 'pixels' releases the mask under the orthant bound and finds the regions when decoding, so it
    may be asked about any image; for regions of equal size it is as good as voting per region (docs/theory/codecs.md).
    'one' goes with GNMax, the others with NoisyMean.
    """

    shape: tuple[int, ...]
    regions: int
    vote: Vote = "each"
    method: Method = "superpixels"
    norm: float | None = None  # of pixels, or of the votes for regions; without one the votes are whole
    pool: Array | None = None  # (queries, *shape) region numbers
    asked: str = ""  # sha256 of the pool's images
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", sizes("shape", self.shape))
        whole(regions=self.regions)
        if self.vote not in ("each", "one", "pixels"):
            raise RecipeError(f"`vote` must be 'each', 'one' or 'pixels'. Got {self.vote!r} instead.")
        if self.method not in ("superpixels", "levels"):
            raise RecipeError(f"`method` must be 'superpixels' or 'levels'. Got {self.method!r} instead.")
        if self.norm is not None:
            positive(norm=self.norm)
        if (self.vote == "pixels" and self.norm is None) or (self.vote == "one" and self.norm is not None):
            raise RecipeError(f"`norm` must be given for 'pixels' and left out for 'one'. Got {self.norm!r} instead.")
        if (self.pool is None) != (self.vote == "pixels"):
            raise RecipeError("`pool` must be given for 'each' and 'one' alone. Got the contrary instead.")

    @classmethod
    def fit(
        cls,
        public: Public,
        *,
        shape: tuple[int, ...],
        regions: int,
        vote: Vote = "each",
        method: Method = "superpixels",
        norm: float | None = None,
        quantile: float = QUANTILE,
    ) -> Regions:
        """Cut every public image (channels, *shape) or (*shape) into regions; masks are read for the clip of 'pixels' alone."""
        if not isinstance(public, Public):
            raise DataError(f"`public` must be Public: its images are seen by all. Got {type(public).__name__} instead.")
        if vote == "pixels":
            norm = public_norm(public_masks(public, shape), quantile=quantile) if norm is None else norm
            return cls(shape, regions, vote, method, norm)
        inputs = np.asarray(public.inputs)
        if len({image.tobytes() for image in np.ascontiguousarray(inputs)}) < len(inputs):
            # Refused here, where it is free: the curator asks a repeated question once, and then the pool is not whole.
            raise DataError("`public` must hold no image twice where regions are voted for. Got repeated ones instead.")
        pool = np.stack([_segment(image, shape, regions, method) for image in inputs])
        found = Provenance(public.source, hashed(inputs), len(inputs))
        return cls(shape, regions, vote, method, norm, pool, found.sha256, found)

    @property
    def bound(self) -> Bound:
        """One vote per region, one vote in all, or short non-negative vectors."""
        if self.vote == "one":
            return OneHot(self.regions + 1)
        dimension = self.regions if self.vote == "each" else math.prod(self.shape)
        return Binary(dimension) if self.norm is None else Orthant(dimension, self.norm)

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into ballots: (teachers, queries, regions), one more for 'none', or pixels."""
        bound, given = self.bound, np.asarray(predictions)
        if self.pool is None:
            return encoded(given, self.shape, bound.dimension, bound.clip)
        if given.ndim != 2 + len(self.shape) or given.shape[1:] != self.pool.shape:
            raise DataError(f"`predictions` must be about the whole pool, (teachers, *{self.pool.shape}). Got others instead.")
        codes = np.empty((*given.shape[:2], bound.dimension))
        for query, labels in enumerate(self.pool):
            flat = labels.reshape(-1)
            counts = np.bincount(flat, minlength=self.regions)
            for teacher in range(len(given)):
                held = np.bincount(flat, masks(given[teacher, query : query + 1])[0], minlength=self.regions)
                codes[teacher, query] = self._ballot(held, counts)
        return np.asarray(bound.clip(codes))

    def _ballot(self, held: Array, counts: Array) -> Array:
        """Turn how much of the mask each region holds into votes."""
        shares = held / np.maximum(counts, 1)
        if self.vote == "each":
            return shares
        overlap = np.where(shares > 0.5, 2 * held / np.maximum(counts + held.sum(), 1), 0.0)  # Dice of region and mask
        return np.append(overlap, 0.0 if overlap.any() else 1.0)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Paint each region of the images with its share of the votes (queries, *shape)."""
        if self.pool is None:
            return self._averaged(codes, np.asarray(inputs))
        if hashed(np.asarray(inputs)) != self.asked:
            raise DataError("`inputs` must be the pool that the regions were found on, in its order. Got others instead.")
        if self.vote == "one":
            chosen = np.asarray(codes)
            if chosen.shape != (len(self.pool),) or chosen.dtype.kind not in "iu":
                raise DataError(f"`codes` must be one region number per query. Got shape {chosen.shape} instead.")
            return (self.pool == chosen.reshape(-1, *(1 for _ in self.shape))).astype(np.float32)
        given = valid_codes(codes, self.regions)
        return np.stack([row[labels] for row, labels in zip(given, self.pool, strict=True)]).astype(np.float32)

    def _averaged(self, codes: Array, inputs: Array) -> Array:
        """Average released pixels over each region of each image."""
        pixels = decoded(codes, math.prod(self.shape), self.shape, np.asarray)
        for mask, image in zip(pixels, inputs, strict=True):
            labels = _segment(image, self.shape, self.regions, self.method).reshape(-1)
            counts = np.bincount(labels, minlength=self.regions)
            means = np.bincount(labels, mask.reshape(-1), minlength=self.regions) / np.maximum(counts, 1)
            mask[:] = means[labels].reshape(self.shape)
        return pixels

    def __repr__(self) -> str:
        return (
            f"Regions(shape={self.shape}, regions={self.regions}, vote={self.vote!r}, method={self.method!r}, "
            f"norm={self.norm!r}, pool={self.asked[:16]!r})"
        )


def _segment(image: Array, shape: tuple[int, ...], regions: int, method: str) -> Array:
    """Cut one image (channels, *shape) or (*shape)."""
    channels = image[None] if image.shape == shape else image
    if channels.shape[1:] != shape:
        raise DataError(f"`inputs` must be images of shape (channels, *{shape}). Got {image.shape} instead.")
    return superpixels(channels, regions) if method == "superpixels" else level_sets(channels, regions)
