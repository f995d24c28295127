"""Principal components of rows that are read once, a few at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import linalg

from tutelage.codecs.fitting import hashed, passes
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
_WIDE = 4096  # up to here the whole covariance is kept: 128 MiB
_FEW = 1024  # with fewer records than this their own span is smaller than the covariance


@final
@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """Hold directions of greatest variance, largest first, and how much variance there is in all."""

    mean: Array  # (width,): zero where the rows were not centred
    vectors: Array  # (rank, width), orthonormal rows
    variances: Array  # (rank,), of single records along each direction
    total: float  # over every direction, also those that are not kept

    def __post_init__(self) -> None:
        for array in (self.mean, self.vectors, self.variances):
            array.flags.writeable = False  # a codec's name stands for these numbers

    def above(self, noise: float) -> int:
        """Count the directions to keep under noise: those with more variance than it has (Fay et al., Eq. 14), at least one.

        Held-out variances need not fall from one direction to the next: then the count with the least predicted error.
        """
        return int(np.argmax(np.cumsum(self.variances - noise**2))) + 1

    def predicted_error(self, components: int, noise: float) -> float:
        """Give the expected squared error of the first `components` under noise (Eq. 13): L·σ² + what is left out."""
        return float(components * noise**2 + self.total - self.variances[:components].sum())

    def outline(self, components: int) -> str:
        """Tell the first directions apart coarsely: rounding does not change it, a turn does.

        Directions of equal variance are free (masks in all four quarter turns have such pairs), and codes that were released
        along some must not be decoded along others.
        """
        along = self.vectors[:components] @ np.cos(np.arange(self.vectors.shape[1]))  # any fixed direction would do
        return hashed(np.rint(100 * along).astype(np.int64))[:8]


def principal(stream: Iterable[Array], width: int, *, records: int, centre: bool, rank: int) -> Spectrum:
    """Find up to `rank` components of `records` rows (passes, width).

    Exact when the covariance fits (width ≤ 4,096) or there are no more records than `rank`; otherwise rows are merged into
    the best `rank` directions so far (Ross et al. 2008). Rows of zeros may be left out of a stream that is not centred.
    """
    if records < 2:
        raise DataError(f"`public` must hold at least 2 masks. Got {records} instead.")
    rank = min(rank, width, records)
    gathered = _Moments(width) if width <= _WIDE and records > _FEW else _Sketch(width, rank, centre)
    for rows in stream:
        gathered.add(rows)
    mean = gathered.sum / records if centre else np.zeros(width)
    freedom = records - 1 if centre else records
    values, vectors = gathered.solve(mean, records, rank)
    total = max(0.0, gathered.squares - records * float(mean @ mean)) / freedom
    values = np.maximum(values, 0.0) / freedom
    real = values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)  # the rest is rounding, and its direction is arbitrary
    if not real.any():
        raise DataError("`public` must hold masks that differ. Got equal or empty ones instead.")
    values, vectors = values[real], vectors[real]
    # Signs are free: make the first of the largest entries positive. Mirrored masks have pairs that rounding alone orders.
    sizes = np.abs(vectors)
    peaks = np.take_along_axis(vectors, (sizes >= 0.999999 * sizes.max(axis=1, keepdims=True)).argmax(axis=1)[:, None], axis=1)
    return Spectrum(mean, vectors * np.sign(peaks), values, total)


def held_out(masks: Array, *, centre: bool, rank: int, folds: int) -> Spectrum:
    """Find components of all masks (records, *shape), and measure variances on masks that were left out of the finding.

    On the masks that they were fitted to, components seem to explain more than they do; with few masks, far more.
    """
    width, fold = int(np.prod(masks.shape[1:])), np.arange(len(masks)) % folds
    whole = principal(passes(masks), width, records=len(masks), centre=centre, rank=rank)
    squares, total = np.zeros(len(whole.vectors)), 0.0
    for number in range(folds):
        inside, outside = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        part = principal(passes(masks, inside), width, records=len(inside), centre=centre, rank=rank)
        count = min(len(part.vectors), len(squares))
        for rows in passes(masks, outside):
            deviations = rows - part.mean
            squares[:count] += ((deviations @ part.vectors[:count].T) ** 2).sum(axis=0)
            total += float((deviations**2).sum())
    return Spectrum(whole.mean, whole.vectors, squares / len(masks), total / len(masks))


@final
class _Moments:
    """Add up the whole second moment."""

    def __init__(self, width: int) -> None:
        self.sum, self.squares, self._second = np.zeros(width), 0.0, np.zeros((width, width))

    def add(self, rows: Array) -> None:
        """Take in rows (passes, width)."""
        self.sum += rows.sum(axis=0)
        self.squares += float((rows**2).sum())
        self._second += rows.T @ rows

    def solve(self, mean: Array, records: int, rank: int) -> tuple[Array, Array]:
        """Give scatter values and directions, largest first."""
        scatter = self._second - records * np.outer(mean, mean)
        width = len(mean)
        values, columns = linalg.eigh(scatter, subset_by_index=[width - rank, width - 1], overwrite_a=True)
        return values[::-1], np.ascontiguousarray(columns[:, ::-1].T)


@final
class _Sketch:
    """Keep the best `rank` directions of what was seen, merged with each new pass."""

    def __init__(self, width: int, rank: int, centre: bool) -> None:
        self.sum, self.squares = np.zeros(width), 0.0
        self._rank, self._centre, self._seen = rank, centre, 0
        self._kept, self._waiting = np.empty((0, width)), [np.empty((0, width))]  # kept rows: value · direction

    def add(self, rows: Array) -> None:
        """Take in rows (passes, width); they wait until there are as many as directions."""
        self.sum += rows.sum(axis=0)
        self.squares += float((rows**2).sum())
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) >= self._rank:
            self._merge()

    def _merge(self) -> None:
        rows = np.concatenate(self._waiting)
        self._waiting = [rows[:0]]
        if not len(rows):
            return
        stack = [self._kept, rows]
        if self._centre:  # scatter about the joint mean = both scatters + one row for the distance between the means
            mean, before = rows.mean(axis=0), (self.sum - rows.sum(axis=0)) / max(1, self._seen)
            weight = np.sqrt(self._seen * len(rows) / (self._seen + len(rows)))
            stack = [self._kept, rows - mean, weight * (before - mean)[None]]
        _, values, vectors = linalg.svd(np.concatenate(stack), full_matrices=False, overwrite_a=True, check_finite=False)
        self._kept = (values[:, None] * vectors)[: self._rank]
        self._seen += len(rows)

    def solve(self, mean: Array, records: int, rank: int) -> tuple[Array, Array]:
        """Give scatter values and directions, largest first."""
        self._merge()
        lengths = np.linalg.norm(self._kept, axis=1)
        return lengths**2, self._kept / np.where(lengths > 0, lengths, 1.0)[:, None]
