"""The lowest frequencies of a mask. Data-independent: there is nothing to fit but the clip."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import fft

from tutelage.codecs.checks import positive, settle, sizes, whole
from tutelage.codecs.fitting import QUANTILE, Provenance, provenance, public_masks, public_norm
from tutelage.codecs.linear import Measurement, measurement
from tutelage.codecs.passes import decoded, encoded
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class DCT:
    """Keep the `kept` lowest frequencies of the orthonormal cosine transform, in any number of dimensions."""

    shape: tuple[int, ...]
    kept: int
    norm: float
    provenance: Provenance | None = field(default=None, compare=False, repr=False)  # `norm` says what was learned

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", sizes("shape", self.shape))
        positive(norm=self.norm)
        whole(kept=self.kept)
        settle(self, norm=float(self.norm), kept=int(self.kept))
        if self.kept > math.prod(self.shape):
            raise RecipeError(f"`kept` must be at most the {math.prod(self.shape)} pixels. Got {self.kept!r} instead.")

    @classmethod
    def fit(cls, public: Public, *, kept: int, quantile: float = QUANTILE) -> DCT:
        """Take the shape, and a quantile of the code's norms as the clip, from public masks."""
        targets = public_masks(public)
        draft = cls(targets.shape[1:], kept, 1.0)
        norm = public_norm(targets, draft.forward, quantile=quantile)
        return cls(draft.shape, kept, norm, provenance(public))

    @property
    def bound(self) -> Ball:
        """Short vectors."""
        return Ball(self.kept, self.norm)

    @cached_property
    def positions(self) -> Array:
        """List the kept coefficients (flat), lowest frequency first: cycles per pixel, so that long axes keep more of them."""
        squares = [(np.arange(size) / size) ** 2 for size in self.shape]
        radius = sum(np.ix_(*squares)).ravel()
        lowest = np.argpartition(radius, self.kept - 1)[: self.kept] if self.kept < radius.size else np.arange(radius.size)
        edge = radius[lowest].max()  # among equals at the edge take the first, whatever the partition preferred
        inside, rim = np.flatnonzero(radius < edge), np.flatnonzero(radius == edge)
        chosen = np.concatenate([inside, rim[: self.kept - len(inside)]])
        return chosen[np.argsort(radius[chosen], kind="stable")]

    def forward(self, rows: Array) -> Array:
        """Transform masks (rows, pixels) into coefficients (rows, kept)."""
        axes = tuple(range(1, 1 + len(self.shape)))
        coefficients = fft.dctn(rows.reshape(-1, *self.shape), axes=axes, norm="ortho")
        return np.asarray(coefficients.reshape(len(rows), -1)[:, self.positions])

    def backward(self, codes: Array) -> Array:
        """Transform coefficients (rows, kept) into masks (rows, pixels)."""
        coefficients = np.zeros((len(codes), math.prod(self.shape)))
        coefficients[:, self.positions] = codes
        axes = tuple(range(1, 1 + len(self.shape)))
        values = fft.idctn(coefficients.reshape(-1, *self.shape), axes=axes, norm="ortho", overwrite_x=True)
        return np.asarray(values.reshape(len(codes), -1))

    def measured(self, codes: Array) -> Measurement:
        """Say which linear measurements of a mask released codes (questions, dimension) are."""
        return measurement(self, codes)

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into ballots (teachers, queries, kept)."""
        bound = self.bound
        return encoded(predictions, self.shape, bound.dimension, lambda rows: bound.clip(self.forward(rows)))

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Give masks (queries, *shape) made of the kept frequencies."""
        return decoded(codes, self.bound.dimension, self.shape, self.backward)
