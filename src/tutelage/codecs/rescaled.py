"""Stretch the code before the clip, so that noise is spent where there is little to say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import not_negative, positive
from tutelage.codecs.fitting import QUANTILE, Provenance, hashed, provenance, public_masks
from tutelage.codecs.passes import slices, valid_codes
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Ball, Bound, Orthant
from tutelage.privacy.curator import Codec
from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Rescaled:
    """Weigh each coordinate of another codec by its public variance to the power −1/4, and measure it from its public mean.

    Of all weights these give the least total noise for codes of the same mean square (docs/theory/codecs.md). Non-negative
    codes are not moved, so that they keep their bound. `noise`, on a coordinate of the released mean, shrinks deviations.
    """

    codec: Codec
    weights: Array  # (dimension,), > 0
    offset: Array  # (dimension,), public mean codes, or zero where codes must stay non-negative
    mean: Array  # (dimension,), what deviations are shrunk towards
    variances: Array  # (dimension,), of public codes
    norm: float
    noise: float = 0.0
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        positive(norm=self.norm)
        not_negative(noise=self.noise)
        if not isinstance(self.codec.bound, (Ball, Orthant)):
            raise RecipeError(f"`codec` must have a Ball or Orthant as its bound. Got {self.codec.bound!r} instead.")
        if getattr(self.codec, "noise", 0.0):
            raise RecipeError("`codec` must not shrink by itself: give the noise to Rescaled alone. Got one that does instead.")
        for array in (self.weights, self.offset, self.mean, self.variances):
            array.flags.writeable = False  # the repr names these numbers

    @classmethod
    def fit(
        cls, codec: Codec, public: Public, *, noise: float = 0.0, floor: float = 1e-3, quantile: float = QUANTILE
    ) -> Rescaled:
        """Take variances and means from the codes of public masks; variances below `floor` times the largest count as that."""
        targets = public_masks(public)
        positive(floor=floor)
        dimension = codec.bound.dimension
        total, squares = np.zeros(dimension), np.zeros(dimension)
        for codes in _codes(codec, targets):
            total, squares = total + codes.sum(axis=0), squares + (codes**2).sum(axis=0)
        mean = total / len(targets)
        variances = np.maximum(squares / len(targets) - mean**2, 0.0)
        if not variances.any():
            raise RecipeError("`public` must hold masks whose codes differ. Got equal ones instead.")
        raised = np.maximum(variances, floor * variances.max())
        weights = raised**-0.25
        weights *= np.sqrt(raised.sum() / (weights**2 * raised).sum())  # codes keep their mean square
        offset = np.zeros(dimension) if isinstance(codec.bound, Orthant) else mean
        lengths = [np.linalg.norm((codes - offset) * weights, axis=1) for codes in _codes(codec, targets)]
        norm = float(np.quantile(np.concatenate(lengths), quantile))
        return cls(codec, weights, offset, mean, variances, norm, noise, provenance(public))

    @property
    def bound(self) -> Bound:
        """The inner codec's kind of bound, with the norm of the stretched codes."""
        return type(self.codec.bound)(len(self.weights), self.norm)

    def encode(self, predictions: Array) -> Array:
        """Stretch the inner codes (teachers, queries, dimension)."""
        codes = self.codec.encode(predictions)
        for teacher in codes:
            teacher[:] = self.bound.clip((teacher - self.offset) * self.weights)
        return codes

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Undo the stretch, shrink deviations from the mean, and let the inner codec decode."""
        given = valid_codes(codes, len(self.weights))
        gain = np.ones_like(self.weights)
        if self.noise:
            gain = self.variances / (self.variances + (self.noise / self.weights) ** 2)
        inner = given / self.weights + self.offset
        return self.codec.decode(self.mean + gain * (inner - self.mean), inputs)

    @cached_property
    def _digest(self) -> str:
        return hashed(self.weights, self.offset, self.mean, self.variances)[:16]

    def __repr__(self) -> str:
        return f"Rescaled({self.codec!r}, norm={self.norm!r}, noise={self.noise!r}, fitted={self._digest!r})"


def _codes(codec: Codec, targets: Array) -> Any:
    """Encode public masks a few at a time: (rows, dimension)."""
    for part in slices(len(targets), int(np.prod(targets.shape[1:]))):
        yield codec.encode(targets[None, part])[0]
