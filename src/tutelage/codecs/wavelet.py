"""Wavelet coefficients of a mask (Fay et al. 2020, Section 2.4). Needs PyWavelets."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import positive, settle, sizes, whole
from tutelage.codecs.fitting import QUANTILE, Provenance, hashed, passes, provenance, public_masks, public_norm
from tutelage.codecs.linear import Measurement, measurement
from tutelage.codecs.passes import decoded, encoded
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Wavelet:
    """Keep a given set of coefficients of an orthogonal wavelet transform; all coefficients are numbered coarse to fine.

    `fit` chooses the set on public masks.
    """

    shape: tuple[int, ...]
    kept: Array  # numbers of the coefficients, coarse to fine
    norm: float
    wavelet: str = "haar"
    levels: int = 2
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", sizes("shape", self.shape))
        positive(norm=self.norm)
        whole(levels=self.levels)
        settle(self, norm=float(self.norm), levels=int(self.levels))
        pywt = _pywavelets()
        if self.wavelet not in pywt.wavelist(kind="discrete") or not pywt.Wavelet(self.wavelet).orthogonal:
            raise RecipeError(f"`wavelet` must be an orthogonal one (haar, db2, sym4 ...). Got {self.wavelet!r} instead.")
        deepest = pywt.dwt_max_level(min(_padded(self.shape, self.levels)), self.wavelet)
        if self.levels > deepest:
            raise RecipeError(
                f"`levels` must be at most {deepest} for {self.wavelet} on {self.shape}. Got {self.levels!r} instead."
            )
        kept = np.unique(np.asarray(self.kept, dtype=np.int64))
        if not kept.size or kept[0] < 0 or kept[-1] >= self.coefficients:
            raise RecipeError(f"`kept` must number coefficients from 0 to {self.coefficients - 1}. Got others instead.")
        kept.flags.writeable = False
        object.__setattr__(self, "kept", kept)

    @classmethod
    def fit(
        cls,
        public: Public,
        *,
        kept: int,
        wavelet: str = "haar",
        levels: int = 2,
        norm: float | None = None,
        quantile: float = QUANTILE,
    ) -> Wavelet:
        """Keep the coefficients that are largest in the mean square on public masks, and clip at a quantile of their norms.

        A `norm` that is given takes the quantile's place.
        """
        targets = public_masks(public)
        shape = tuple(targets.shape[1:])
        everything = cls(shape, np.array([0]), 1.0, wavelet, levels)
        whole(kept=kept)
        if kept > everything.coefficients:
            raise RecipeError(f"`kept` must be at most {everything.coefficients}. Got {kept!r} instead.")
        squares = sum((everything._transform(rows) ** 2).sum(axis=0) for rows in passes(targets))
        largest = np.argsort(-np.asarray(squares)[everything._order], kind="stable")[:kept]
        if norm is None:
            norm = public_norm(targets, cls(shape, largest, 1.0, wavelet, levels).forward, quantile=quantile)
        return cls(shape, largest, norm, wavelet, levels, provenance(public))

    @property
    def coefficients(self) -> int:
        """Count all coefficients: the pixels of the padded mask."""
        return math.prod(_padded(self.shape, self.levels))

    @property
    def bound(self) -> Ball:
        """Short vectors."""
        return Ball(len(self.kept), self.norm)

    def forward(self, rows: Array) -> Array:
        """Transform masks (rows, pixels) into the kept coefficients (rows, kept)."""
        return self._transform(rows)[:, self._order[self.kept]]

    def backward(self, codes: Array) -> Array:
        """Transform kept coefficients (rows, kept) into masks (rows, pixels)."""
        pywt, axes = _pywavelets(), tuple(range(1, 1 + len(self.shape)))
        flat = np.zeros((len(codes), self.coefficients))
        flat[:, self._order[self.kept]] = codes
        array = flat.reshape(-1, *_padded(self.shape, self.levels))
        parts = pywt.array_to_coeffs(array, self._parts, output_format="wavedecn")
        values = pywt.waverecn(parts, self.wavelet, mode="periodization", axes=axes)
        return np.asarray(values[(slice(None), *map(slice, self.shape))].reshape(len(codes), -1))

    def _transform(self, rows: Array) -> Array:
        """Give all coefficients of masks (rows, pixels), not yet in order: (rows, coefficients)."""
        pywt, axes = _pywavelets(), tuple(range(1, 1 + len(self.shape)))
        padded = np.zeros((len(rows), *_padded(self.shape, self.levels)))
        padded[(slice(None), *map(slice, self.shape))] = rows.reshape(-1, *self.shape)
        # Wrapped around at the edges, and of even sizes: then the transform is a rotation.
        parts = pywt.wavedecn(padded, self.wavelet, mode="periodization", level=self.levels, axes=axes)
        return np.asarray(pywt.coeffs_to_array(parts, axes=axes)[0].reshape(len(rows), -1))

    @cached_property
    def _parts(self) -> Any:
        """Say which slice of the array holds which band, with a leading axis for rows."""
        pywt, axes = _pywavelets(), tuple(range(1, 1 + len(self.shape)))
        empty = np.zeros((1, *_padded(self.shape, self.levels)))
        parts = pywt.wavedecn(empty, self.wavelet, mode="periodization", level=self.levels, axes=axes)
        (_, *coarse), *bands = pywt.coeffs_to_array(parts, axes=axes)[1]
        return [(slice(None), *coarse), *bands]

    @cached_property
    def _order(self) -> Array:
        """List flat positions, coarse to fine."""
        level = np.zeros((1, *_padded(self.shape, self.levels)), dtype=np.int8)
        for number, bands in enumerate(self._parts[1:], start=1):
            for place in bands.values():
                level[place] = number
        return np.argsort(level.reshape(-1), kind="stable")

    def measured(self, codes: Array) -> Measurement:
        """Say which linear measurements of a mask released codes (questions, dimension) are."""
        return measurement(self, codes)

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into ballots (teachers, queries, kept)."""
        bound = self.bound
        return encoded(predictions, self.shape, bound.dimension, lambda rows: bound.clip(self.forward(rows)))

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Give masks (queries, *shape) made of the kept coefficients."""
        return decoded(codes, self.bound.dimension, self.shape, self.backward)

    def __repr__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """Name the codec by all that decides what it encodes and decodes."""
        return (
            f"Wavelet(shape={self.shape}, wavelet={self.wavelet!r}, levels={self.levels}, norm={self.norm!r}, "
            f"kept={len(self.kept)}, chosen={hashed(self.kept)[:16]!r})"
        )


def _padded(shape: tuple[int, ...], levels: int) -> tuple[int, ...]:
    """Round sizes up to multiples of 2^levels."""
    unit = 1 << levels
    return tuple(-(-size // unit) * unit for size in shape)


def _pywavelets() -> Any:
    try:
        return importlib.import_module("pywt")
    except ImportError:
        raise RecipeError(
            "`PyWavelets` must be installed for wavelets (pip install 'tutelage[images]'). Got no such package instead."
        ) from None
