"""The best directions of rows that are read once: little more is held than those directions."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import linalg

from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
REAL = 1e-12  # of the largest scatter: what is less is rounding, and its direction is arbitrary
ROUNDING = 1e-28  # of all squares: what is left of equal rows when their mean is taken off
DIFFERENCE = 1e-14  # of all squares: what is left where a scatter is the difference of two large sums
_COLUMNS = 1 << 14  # that are turned at a time
_VALUES = 1 << 23  # that may wait in any case: 64 MiB


@final
class Sketch:
    """Keep the best `rank` directions of what was seen, and merge new rows into them (Ross et al. 2008).

    Rows wait in the same array until there are as many as directions, and all are turned in place. So it holds twice `rank` rows,
    or all there are; by singular values three to eight times `rank` were held (benchmarks/components.py). Every merge forgets
    something, so many rows are better merged at once: 64 MiB of them always wait.
    """

    def __init__(self, width: int, rank: int, records: int, *, centre: bool) -> None:
        self.sum, self.squares = np.zeros(width), 0.0
        self._rank, self._records, self._centre = rank, records, centre
        self._seen = self._kept = self._filled = 0  # records merged, directions held, and rows of the array in use
        self._taken = 0  # records merged or waiting
        held = min(records, rank + max(rank, _VALUES // width))
        self._rows = np.empty((held + centre, width))  # value · direction, then what waits; one for the means' distance

    def add(self, rows: Array) -> None:
        """Take in rows (passes, width)."""
        if self._taken + len(rows) > self._records:
            raise DataError(f"`records` must count all rows. Got more than {self._records} instead.")
        self._taken += len(rows)
        self.squares += float(np.einsum("ij,ij->", rows, rows))
        room = len(self._rows) - self._centre
        while len(rows):
            some, rows = rows[: room - self._filled], rows[room - self._filled :]
            self._rows[self._filled : self._filled + len(some)] = some
            self._filled += len(some)
            if self._filled == room:
                self._merge()

    def _merge(self) -> None:
        waiting = self._rows[self._kept : self._filled]
        count = len(waiting)
        if not count:
            return
        added = waiting.sum(axis=0)
        if self._centre:  # scatter about the joint mean = both scatters + one row for the distance between the means
            mean = added / count
            waiting -= mean
            if self._seen:
                weight = np.sqrt(self._seen * count / (self._seen + count))
                np.multiply(weight, self.sum / self._seen - mean, out=self._rows[self._filled])
                self._filled += 1
        self.sum += added
        self._seen += count
        used = self._rows[: self._filled]
        columns = linalg.eigh(used @ used.T, check_finite=False)[1]
        self._kept = self._filled = min(self._rank, len(used))
        _turn(used, columns[:, ::-1][:, : self._kept])

    def solve(self, rank: int) -> tuple[Array, Array]:
        """Give scatter values and directions, largest first; those that are rounding are left out. There is no row after that."""
        self._merge()
        held, self._rows = self._rows, np.empty((0, 0))
        rows = held[: min(rank, self._kept)]
        values = np.einsum("ij,ij->i", rows, rows)
        count = int((values > max(REAL * values.max(initial=0.0), ROUNDING * self.squares)).sum())
        del rows
        held.resize((count, held.shape[1]), refcheck=False)  # a codec that keeps the directions keeps no more than them
        values = values[:count]
        held /= np.sqrt(values)[:, None]
        # Turned by the squares of their lengths, short ones are at right angles to long ones up to rounding times the ratio.
        # They are nearly orthonormal, so the triangle that makes them so is nearly one, and leaves the longest as they are.
        if count:
            triangle = linalg.cholesky(held @ held.T, lower=True, check_finite=False)
            _turn(held, linalg.solve_triangular(triangle, np.eye(count), lower=True).T)
        return values, held


def _turn(rows: Array, columns: Array) -> None:
    """Put combinations of all rows in the first ones' place, a few pixels at a time."""
    for start in range(0, rows.shape[1], _COLUMNS):
        part = slice(start, start + _COLUMNS)
        rows[: columns.shape[1], part] = columns.T @ rows[:, part]
