"""Stretch the code before the clip, so that noise is spent where there is little to say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import not_negative, positive, settle
from tutelage.codecs.fitting import QUANTILE, Provenance, named, provenance, public_masks, rounded
from tutelage.codecs.linear import Measurement
from tutelage.codecs.passes import slices, valid_codes
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Ball, Bound, Orthant
from tutelage.privacy.curator import Codec
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Rescaled:
    """Measure each coordinate of another codec from its public mean, and weigh it by its public mean square to the power −1/4.

    Of all weights these give the least total noise for codes of the same mean square (docs/theory/codecs.md). Non-negative
    codes are measured from 0, so that they keep their bound. `noise`, on a coordinate of the released mean, shrinks deviations.
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
        settle(self, norm=float(self.norm), noise=float(self.noise))
        if not isinstance(self.codec.bound, (Ball, Orthant)):
            raise RecipeError(f"`codec` must have a Ball or Orthant as its bound. Got {self.codec.bound!r} instead.")
        if _shrinks(self.codec):
            raise RecipeError("`codec` must not shrink by itself: give the noise to Rescaled alone. Got one that does instead.")
        for name in ("weights", "offset", "mean", "variances"):
            array = np.array(getattr(self, name), dtype=np.float64)  # a copy: the repr names these numbers
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def fit(
        cls,
        codec: Codec,
        public: Public,
        *,
        noise: float = 0.0,
        norm: float | None = None,
        floor: float = 1e-3,
        quantile: float = QUANTILE,
    ) -> Rescaled:
        """Take moments from the codes of public masks; mean squares below `floor` times the largest count as that.

        The inner codec's own clip comes first, and must be wide enough. Without `norm` the clip is a quantile of the norms of
        stretched public codes, which have their mean square unchanged.
        """
        targets = public_masks(public)
        positive(floor=floor)
        dimension = codec.bound.dimension
        clip = getattr(codec.bound, "norm", np.inf)  # a bound without one is refused below
        total, squares, cut = np.zeros(dimension), np.zeros(dimension), 0
        for codes in _codes(codec, targets):
            total, squares = total + codes.sum(axis=0), squares + (codes**2).sum(axis=0)
            cut += int((np.linalg.norm(codes, axis=1) > clip * (1 - 1e-9)).sum())
        if 2 * cut > len(targets):
            raise RecipeError(
                "`codec` must leave most public codes whole: its own clip comes before the stretch. "
                f"Got a norm of {clip:g}, which cuts {cut} of {len(targets)}."
            )
        mean = total / len(targets)
        variances = np.maximum(squares / len(targets) - mean**2, 0.0)
        if not variances.any():
            raise RecipeError("`public` must hold masks whose codes differ. Got equal ones instead.")
        offset = np.zeros(dimension) if isinstance(codec.bound, Orthant) else mean
        moments = variances + (mean - offset) ** 2  # what the clip sees
        raised = np.maximum(moments, floor * moments.max())
        weights = raised**-0.25
        weights *= np.sqrt(raised.sum() / (weights**2 * raised).sum())  # codes keep their mean square
        if norm is None:
            lengths = [np.linalg.norm((codes - offset) * weights, axis=1) for codes in _codes(codec, targets)]
            norm = rounded(np.quantile(np.concatenate(lengths), quantile))
        return cls(codec, weights, offset, mean, variances, norm, noise, provenance(public, f"floor={float(floor)!r}"))

    @property
    def bound(self) -> Bound:
        """The inner codec's kind of bound, with the norm of the stretched codes."""
        return type(self.codec.bound)(len(self.weights), self.norm)

    def encode(self, predictions: Array) -> Array:
        """Stretch the inner codes (teachers, queries, dimension), of a few masks at a time as the inner codec makes them."""
        given, bound = np.asarray(predictions), self.bound
        if given.ndim < 2 or not given.size:
            return np.asarray(self.codec.encode(given))  # which refuses what is no predictions
        codes = np.empty((*given.shape[:2], len(self.weights)))
        for teacher, answers in enumerate(given):
            for part in slices(len(answers), math.prod(given.shape[2:])):
                inner = np.asarray(self.codec.encode(answers[None, part]))[0]
                codes[teacher, part] = bound.clip((inner - self.offset) * self.weights)
        return codes

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Undo the stretch, shrink deviations from the mean, and let the inner codec decode, a few answers at a time."""
        given, images = valid_codes(codes, len(self.weights)), np.asarray(inputs)
        gain: Array | float = 1.0
        if self.noise:
            gain = self.variances / (self.variances + (self.noise / self.weights) ** 2)
        masks: Array | None = None
        for part in slices(len(given), max(len(self.weights), math.prod(images.shape[1:]))):
            inner = given[part] / self.weights + self.offset
            found = np.asarray(self.codec.decode(self.mean + gain * (inner - self.mean), images[part]))
            if masks is None:
                masks = np.empty((len(given), *found.shape[1:]), dtype=found.dtype)
            masks[part] = found
        return np.asarray(self.codec.decode(given, images)) if masks is None else masks

    def measured(self, codes: Array) -> Measurement:
        """Say which linear measurements of a mask released codes (questions, dimension) are; their noise is white.

        Each row of the inner codec's is weighed as its coordinate is. Flips filter after the release, and what was weighed
        pixel by pixel is not white behind the filter: they are refused, and so is what is not linear.
        """
        given = valid_codes(codes, len(self.weights))
        plain = hasattr(self.codec, "measured") and not hasattr(self.codec, "filter")
        found = self.codec.measured(given / self.weights + self.offset) if plain else None
        if found is None or len(found.matrix) != len(self.weights):
            raise DataError("`codec` must be DCT, PCA, Blocks or Wavelet to learn from its stretched codes. Got another instead.")
        matrix = (found.matrix * self.weights[:, None]).astype(np.float32)
        return Measurement(matrix, found.values * self.weights, found.stretch * self._stretch)

    @property
    def _stretch(self) -> float:
        """Tell how much longer deviations like public ones become; `fit` chooses weights that leave them about as long."""
        total = float(self.variances.sum())
        return float(np.sqrt((self.weights**2 @ self.variances) / total)) if total > 0 else 1.0

    @cached_property
    def _name(self) -> str:
        return named(self.provenance, self.weights, self.offset, self.mean, self.variances)

    def __repr__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """Name the codec by all that decides what it encodes and decodes."""
        return f"Rescaled({self.codec!r}, norm={self.norm!r}, noise={self.noise!r}, fitted={self._name!r})"


def _shrinks(codec: Any) -> bool:
    """Tell whether a codec, its filter or what it wraps already shrinks deviations."""
    while codec is not None:
        if getattr(codec, "noise", 0.0):
            return True
        codec = getattr(codec, "filter", None) or getattr(codec, "codec", None)
    return False


def _codes(codec: Codec, targets: Array) -> Any:
    """Encode public masks a few at a time: (rows, dimension)."""
    for part in slices(len(targets), int(np.prod(targets.shape[1:]))):
        yield codec.encode(targets[None, part])[0]
