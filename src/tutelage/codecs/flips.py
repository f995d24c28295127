"""Which pixels of a public mask would a teacher flip? Flips are non-negative, so they cost √2·norm in place of 2·norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import positive, settle
from tutelage.codecs.fitting import QUANTILE, Provenance, named, passes, provenance, public_masks, public_norm
from tutelage.codecs.linear import Measurement
from tutelage.codecs.passes import decoded, encoded
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Orthant
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]


class Filter(Protocol):
    """What cleans a released mask: to a code and back."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Give the shape of a mask."""

    def forward(self, rows: Array) -> Array:
        """Turn masks (rows, pixels) into codes."""

    def backward(self, codes: Array) -> Array:
        """Turn codes into masks (rows, pixels)."""

    def measured(self, codes: Array) -> Measurement:
        """Say which linear measurements of a mask codes are."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Flips:
    """Release |mask − reference| pixel by pixel under the orthant bound, and clean it with a linear codec when decoding.

    The reference is a public mask of zeros and ones: the majority of public masks, or nothing, which releases masks as they
    are. Isotropic noise looks the same in every orthonormal basis: what stays on the filter's components is what a release of
    its codes would have put there (docs/theory/codecs.md). The clip pulls odd masks towards the reference.

    It wins over the filter's own release iff norm < √2 · filter's norm. A filter that keeps a small part of a mask may lose
    more of the norm than that: compare `bound.sensitivity()` of both.
    """

    filter: Filter  # DCT, PCA, Blocks, Wavelet; its own norm is not used
    reference: Array  # (pixels,) bools
    norm: float
    mean: Array | None = None  # (pixels,): the filter sees deviations from it, so that it need not carry the mean shape
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        positive(norm=self.norm)
        settle(self, norm=float(self.norm))
        given = np.asarray(self.reference)
        if not np.isin(given, (0, 1)).all():  # around a value in between deviations have both signs: no orthant holds them
            raise RecipeError("`reference` must hold zeros and ones alone. Got other values instead.")
        reference = given.astype(bool).reshape(-1)
        if reference.size != math.prod(self.filter.shape):
            raise RecipeError(f"`reference` must be a mask of shape {self.filter.shape}. Got {reference.size} pixels instead.")
        reference.flags.writeable = False
        object.__setattr__(self, "reference", reference)
        if self.mean is not None:
            mean = np.array(self.mean, dtype=np.float64).reshape(-1)
            if mean.size != reference.size:
                raise RecipeError(f"`mean` must be a mask of shape {self.filter.shape}. Got {mean.size} pixels instead.")
            mean.flags.writeable = False
            object.__setattr__(self, "mean", mean)

    @classmethod
    def fit(
        cls,
        filter: Filter,
        public: Public,
        *,
        reference: Literal["majority", "nothing"] = "majority",
        norm: float | None = None,
        quantile: float = QUANTILE,
    ) -> Flips:
        """Take the reference from public masks, and a quantile of the distances to it as the clip."""
        targets = public_masks(public)
        if targets.shape[1:] != filter.shape:
            raise DataError(f"`public` must hold masks of shape {filter.shape}. Got {targets.shape[1:]} instead.")
        if reference not in ("majority", "nothing"):
            raise RecipeError(f"`reference` must be 'majority' or 'nothing'. Got {reference!r} instead.")
        mean = np.asarray(sum(rows.sum(axis=0) for rows in passes(targets))) / len(targets)
        middle = mean > 0.5 if reference == "majority" else np.zeros(mean.size, dtype=bool)
        draft = cls(filter, middle, 1.0)
        norm = public_norm(targets, draft.flipped, quantile=quantile) if norm is None else norm
        return cls(filter, middle, norm, mean, provenance(public, f"reference={reference!r}"))

    @property
    def bound(self) -> Orthant:
        """Short non-negative vectors."""
        return Orthant(self.reference.size, self.norm)

    def flipped(self, rows: Array) -> Array:
        """Reflect the pixels of the reference, y ↔ 1 − y: from masks to flips and back. An isometry, and its own inverse."""
        return np.where(self.reference, 1.0 - rows, rows)

    def measured(self, codes: Array) -> Measurement:
        """Say which linear measurements of a mask released codes (questions, dimension) are."""
        return self.filter.measured(self.filter.forward(self.flipped(codes)))

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into ballots (teachers, queries, pixels)."""
        bound = self.bound
        return encoded(predictions, self.filter.shape, bound.dimension, lambda rows: bound.clip(self.flipped(rows)))

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Undo the flips, and give the masks (queries, *shape) that the filter lets pass."""
        return decoded(
            codes, self.reference.size, self.filter.shape, lambda rows: self._filtered(self.flipped(rows)) + self._kept
        )

    def _filtered(self, rows: Array) -> Array:
        return self.filter.backward(self.filter.forward(rows))

    @cached_property
    def _kept(self) -> Array | float:
        """Give what the filter would take from the mean. Filters are affine: adding it back leaves deviations filtered alone."""
        return 0.0 if self.mean is None else self.mean - self._filtered(self.mean[None])[0]

    @cached_property
    def _name(self) -> str:
        return named(self.provenance, self.reference, np.empty(0) if self.mean is None else self.mean)

    def __repr__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """Name the codec by all that decides what it encodes and decodes."""
        return f"Flips({self.filter!r}, norm={self.norm!r}, fitted={self._name!r})"
