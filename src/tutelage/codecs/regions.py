"""Average released pixels over regions of the public image. Where the image shows the object's edge, few regions say it all."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import positive, settle, sizes, whole
from tutelage.codecs.fitting import QUANTILE, Provenance, provenance, public_masks, public_norm
from tutelage.codecs.passes import decoded, encoded
from tutelage.codecs.segments import cut_name, level_sets, superpixels
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Orthant
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
Method = Literal["superpixels", "levels"]


@final
@dataclass(frozen=True)
class Regions:
    """Release masks under the orthant bound, and find the regions when decoding: they may be asked about any image.

    For regions of equal size it is as good as a noisy share per region (docs/theory/codecs.md). Where one region is the whole
    answer, a vote for it is far cheaper: regionvotes.RegionVotes, which sees the images before the charge.
    """

    shape: tuple[int, ...]
    regions: int
    norm: float
    method: Method = "superpixels"
    provenance: Provenance | None = field(default=None, compare=False, repr=False)  # `norm` says what was learned

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", sizes("shape", self.shape))
        whole(regions=self.regions)
        positive(norm=self.norm)
        settle(self, regions=int(self.regions), norm=float(self.norm))
        if self.method not in ("superpixels", "levels"):
            raise RecipeError(f"`method` must be 'superpixels' or 'levels'. Got {self.method!r} instead.")

    @classmethod
    def fit(cls, public: Public, *, regions: int, method: Method = "superpixels", quantile: float = QUANTILE) -> Regions:
        """Take the shape, and a quantile of the norms as the clip, from public masks; images must be (channels, *shape) too."""
        targets = public_masks(public)
        _channels(public.inputs[0], targets.shape[1:])  # refused here, where it is free
        return cls(targets.shape[1:], regions, public_norm(targets, quantile=quantile), method, provenance(public))

    @property
    def bound(self) -> Orthant:
        """Short non-negative vectors."""
        return Orthant(math.prod(self.shape), self.norm)

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into ballots (teachers, queries, pixels)."""
        bound = self.bound
        return encoded(predictions, self.shape, bound.dimension, bound.clip)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Paint each region of each image with the mean of its released pixels: (queries, *shape)."""
        pixels = decoded(codes, math.prod(self.shape), self.shape, np.asarray)
        cut = superpixels if self.method == "superpixels" else level_sets
        for mask, image in zip(pixels, np.asarray(inputs), strict=True):
            labels = cut(_channels(image, self.shape), self.regions).reshape(-1)
            counts = np.bincount(labels, minlength=self.regions)
            means = np.bincount(labels, mask.reshape(-1), minlength=self.regions) / np.maximum(counts, 1)
            mask[:] = means[labels].reshape(self.shape)
        return pixels

    def __repr__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """Name the codec by all that decides what it encodes and decodes."""
        cut = cut_name(self.method, self.shape, self.regions)
        return f"Regions(shape={self.shape!r}, regions={self.regions!r}, norm={self.norm!r}, method={cut!r})"


def _channels(image: Array, shape: tuple[int, ...]) -> Array:
    """Give one image as (channels, *shape)."""
    channels = image[None] if image.shape == shape else image
    if channels.shape[1:] != shape:
        raise DataError(f"`inputs` must be images of shape (channels, *{shape}). Got {image.shape} instead.")
    return channels
