"""Principal components of rows that are read once, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import linalg

from tutelage.codecs.fitting import hashed
from tutelage.codecs.sketch import DIFFERENCE, REAL, Sketch
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
_WIDE = 4096  # up to here the whole covariance is kept: 128 MiB
_FEW = 1024  # with fewer records than this their own span is smaller than the covariance


@final
class Few(DataError):
    """Fewer than two masks, or blocks of them."""


@final
class Alike(DataError):
    """No direction: all masks are equal, or empty."""


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
    the best `rank` directions so far. Rows of zeros may be left out of a stream that is not centred.
    """
    if records < 2:
        raise Few(f"`public` must hold at least 2 masks. Got {records} instead.")
    rank = min(rank, width, records)
    dense = _dense(width, records)
    gathered = _Moments(width, records, centre=centre) if dense else Sketch(width, rank, records, centre=centre)
    for rows in stream:
        gathered.add(rows)
    values, vectors = gathered.solve(rank)
    mean = gathered.sum / records if centre else np.zeros(width)
    freedom = records - 1 if centre else records
    total = max(0.0, gathered.squares - records * float(mean @ mean)) / freedom
    if not len(values):
        raise Alike("`public` must hold masks that differ. Got equal or empty ones instead.")
    for row in vectors:  # signs are free
        row *= _sign(row)
    return Spectrum(mean, vectors, values / freedom, total)


def _dense(width: int, records: int) -> bool:
    """Tell whether the whole covariance is kept."""
    return width <= _WIDE and records > _FEW


def gathering(width: int, records: int, rank: int) -> str:
    """Say in a codec's name how rows were merged, where that forgets something and so moves directions a little."""
    return "merged=in place, " if records > rank and not _dense(width, records) else ""


def _sign(vector: Array) -> float:
    """Make the first of the largest entries positive. Mirrored masks have pairs that rounding alone orders."""
    sizes = np.abs(vector)
    return float(np.sign(vector[(sizes >= 0.999999 * sizes.max()).argmax()]))


def held_out(
    every: Spectrum,
    masks: int,
    folds: int,
    *,
    find: Callable[[Array], tuple[Array, Spectrum]],
    deviating: Callable[[Array, Array], Iterator[Array]],
) -> Spectrum:
    """Keep the directions of all masks, and measure variances on masks that were left out of the finding.

    `find` gives the mean and the components of masks by their numbers, `deviating` the rows of others about a mean. On the masks
    that they were fitted to, components seem to explain more than they do; with few masks, far more.
    """
    fold = np.arange(masks) % folds
    squares, total, records = np.zeros(len(every.vectors)), 0.0, 0
    for number in range(folds):
        try:
            mean, part = find(np.flatnonzero(fold != number))
        except Few:
            raise DataError(
                f"`folds` must leave 2 masks or more, whichever part is left out. Got {masks} in {folds} parts instead."
            ) from None
        except Alike:
            told = "`folds` must leave masks that differ, whichever part is left out. Got a part that takes all of them instead."
            raise DataError(told) from None
        count = min(len(part.vectors), len(squares))
        for rows in deviating(np.flatnonzero(fold == number), mean):
            squares[:count] += ((rows @ part.vectors[:count].T) ** 2).sum(axis=0)
            total += float((rows**2).sum())
            records += len(rows)
        del part  # before the next one is found: each is as large as the codec
    return Spectrum(every.mean, every.vectors, squares / records, total / records)


@final
class _Moments:
    """Add up the whole second moment."""

    def __init__(self, width: int, records: int, *, centre: bool) -> None:
        self.sum, self.squares, self._second = np.zeros(width), 0.0, np.zeros((width, width))
        self._records, self._centre = records, centre

    def add(self, rows: Array) -> None:
        """Take in rows (passes, width)."""
        self.sum += rows.sum(axis=0)
        self.squares += float((rows**2).sum())
        self._second += rows.T @ rows

    def solve(self, rank: int) -> tuple[Array, Array]:
        """Give scatter values and directions, largest first; those that are rounding are left out."""
        scatter = self._second
        if self._centre:
            scatter -= np.outer(self.sum, self.sum) / self._records
        width = len(scatter)
        values, columns = linalg.eigh(scatter, subset_by_index=[width - rank, width - 1], overwrite_a=True)
        values, columns = np.maximum(values[::-1], 0.0), columns[:, ::-1]
        real = int((values > max(REAL * values.max(initial=0.0), DIFFERENCE * self.squares)).sum())
        return values[:real], np.ascontiguousarray(columns[:, :real].T)
