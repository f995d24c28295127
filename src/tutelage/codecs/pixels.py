"""Masks as they are: one vote or one number per pixel. The control that every other codec must beat."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import positive, settle, sizes
from tutelage.codecs.fitting import QUANTILE, Provenance, provenance, public_masks, public_norm
from tutelage.codecs.passes import decoded, encoded
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Binary, Bound, Orthant
from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Pixels:
    """Release masks pixel by pixel: whole votes (bound 'binary'), or probabilities of norm ≤ `norm` (bound 'orthant').

    'binary' is per-pixel voting: any mask is allowed, so one teacher moves the sum by √pixels. 'orthant' shortens masks to
    `norm`: √2·norm, far less where objects are small.
    """

    shape: tuple[int, ...]
    norm: float | None = None
    kind: Literal["binary", "orthant"] = "binary"
    provenance: Provenance | None = field(default=None, compare=False, repr=False)  # `norm` says what was learned

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", sizes("shape", self.shape))
        if self.kind not in ("binary", "orthant"):
            raise RecipeError(f"`kind` must be 'binary' or 'orthant'. Got {self.kind!r} instead.")
        if (self.norm is None) != (self.kind == "binary"):
            raise RecipeError(f"`norm` must be given for 'orthant' and for nothing else. Got {self.norm!r} instead.")
        if self.norm is not None:
            positive(norm=self.norm)
            settle(self, norm=float(self.norm))

    @classmethod
    def fit(cls, public: Public, *, quantile: float = QUANTILE) -> Pixels:
        """Take the shape, and a quantile of the norms as the clip, from public masks."""
        targets = public_masks(public)
        return cls(targets.shape[1:], public_norm(targets, quantile=quantile), "orthant", provenance(public))

    @property
    def bound(self) -> Bound:
        """Any mask, or short non-negative vectors."""
        pixels = math.prod(self.shape)
        return Binary(pixels) if self.norm is None else Orthant(pixels, self.norm)

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into ballots (teachers, queries, pixels)."""
        bound = self.bound
        return encoded(predictions, self.shape, bound.dimension, bound.clip)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Give the released mean masks (queries, *shape), noise and all."""
        return decoded(codes, math.prod(self.shape), self.shape, np.asarray)
