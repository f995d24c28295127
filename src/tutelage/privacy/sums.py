"""Sums of clipped contributions as whole numbers on a grid, exactly: grouped sums, Gram matrices, outer products.

Everything here works on opened values and is called by mechanisms.py alone. No noise is drawn here. What decides privacy is
measured on the whole numbers themselves: the rows of one place (a teacher, a shard) never add more than the norm, whatever
floats did before. Proofs: docs/theory/sums.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.queries import Form
from tutelage.privacy.sealed import Sealed

Array = npt.NDArray[Any]
_EXACT = 2.0**53  # sums of whole numbers are exact in 64-bit floats below
_HUGE, _LONG = 1e100, 1e94  # a row beyond the first, where squares would overflow, is scaled to a peak of the second
_ROWS = 1 << 22  # numbers of rows worked on at once
_TALL = 1 << 24  # the same where a matrix product follows


@final
@dataclass(frozen=True, repr=False, eq=False)
class Block:
    """Hold what some places add to a sum, sealed. All rows of one place lie in one block.

    A place is a teacher: a shard, or a unit's own place on the roster. One unit changes the rows of one place.
    """

    places: Sealed  # (rows,) whole numbers
    left: Sealed  # (rows, width)
    groups: Sealed | None = None  # (rows,) classes, for a grouped sum and a Gram matrix per class
    right: Sealed | None = None  # (rows, k), for outer products


@final
@dataclass(frozen=True)
class Shape:
    """Say what is summed, and how long the rows of one place may be together. `unit` is the grid's step in the sum."""

    form: Form
    width: int
    norm: float
    places: int
    unit: float
    groups: int = 1
    right: int = 1
    nonnegative: bool = False

    def __post_init__(self) -> None:
        exact = self.alone < _EXACT / 4 or self.form in (Form.SUM, Form.GROUPED)
        if not (self.places * self.alone < 2.0**62 and exact):
            raise RecipeError(f"the noise must not be so small beside the norm that {self.places} places overflow 64 bits.")

    @property
    def alone(self) -> float:
        """Bound what one place adds to one number of the sum, in units."""
        return (self.norm**2 if self.form == Form.GRAM else self.norm) / self.unit

    @property
    def total(self) -> tuple[int, ...]:
        """Give the shape of the sum."""
        return {
            Form.SUM: (self.width,),
            Form.GROUPED: (self.groups, self.width),
            Form.GRAM: (*((self.groups,) if self.groups > 1 else ()), self.width, self.width),
            Form.OUTER: (self.width, self.right),
        }[self.form]


class GridSum:
    """Add up blocks. `total` holds whole multiples of the shape's `unit`."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._safe = max(1, int(_EXACT / 4 / shape.alone))  # rows whose sum is exact in floats
        self.total = np.zeros(shape.total, dtype=np.int64)
        self._seen = np.zeros(shape.places, dtype=bool)

    def add(self, places: Array, left: Array, groups: Array | None, right: Array | None) -> None:
        """Clip the rows of every place jointly, and add them."""
        where, who = self._checked(places, left, groups, right)
        match self.shape.form:
            case Form.SUM | Form.GROUPED:
                self._grouped(where, who, left)
            case Form.GRAM:
                self._gram(where, who, left)
            case _:
                assert right is not None
                self._outer(where, left, right)

    # ── shapes, which are public ──────────────────────────────────────────────────────────────────────────────────────

    def _checked(self, places: Array, left: Array, groups: Array | None, right: Array | None) -> tuple[Array, Array]:
        """Refuse blocks of another shape, and places that come twice. Give places, and groups (0 where there are none)."""
        shape = self.shape
        if left.ndim != 2 or left.shape[1] != shape.width or left.dtype.kind not in "biuf":
            raise DataError(f"`left` must be numbers (rows, {shape.width}). Got {left.dtype} of {left.shape} instead.")
        if (right is None) is (shape.form == Form.OUTER) or (right is not None and right.shape != (len(left), shape.right)):
            raise DataError(f"`right` must be (rows, {shape.right}) for outer products, and nothing else. Got another instead.")
        if (groups is None) is (shape.groups > 1) or places.shape != (len(left),) or places.dtype.kind not in "iu":
            raise DataError(
                "`places`, and `groups` where there are several, must be one whole number per row. Got others instead."
            )
        if not len(left):
            return places.astype(np.int64), places.astype(np.int64)
        new = np.unique(places)
        if int(new[0]) < 0 or int(new[-1]) >= shape.places or self._seen[new].any():
            raise DataError(f"`places` must be 0 to {shape.places - 1}, each in one block. Got another, or one twice, instead.")
        self._seen[new] = True
        if groups is None:
            return places.astype(np.int64), np.zeros(len(left), dtype=np.int64)
        who = np.asarray(groups)
        if who.shape != (len(left),) or who.dtype.kind not in "iu":
            raise DataError("`groups` must be one whole number per row. Got others instead.")
        inside = (who >= 0) & (who < shape.groups)  # a class that nobody declared is class 0: it is not refused
        return places.astype(np.int64), np.where(inside, who, 0).astype(np.int64)

    # ── grouped sums ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _grouped(self, places: Array, groups: Array, left: Array) -> None:
        """Add vectors to the columns of their groups; all that one place adds to all groups is one vector of length ≤ norm."""
        shape = self.shape
        pairs = places * shape.groups + groups
        if len(np.unique(pairs)) < len(pairs):  # rows of one place and group are one vector
            order = np.argsort(pairs, kind="stable")
            starts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
            left = np.add.reduceat(_real(left[order], shape.nonnegative)[0], starts, axis=0)
            places, groups = places[order][starts], groups[order][starts]
        several = len(np.unique(places)) < len(places)
        together = _by_place(places, self._squares(left)) if several else None

        def part(rows: slice) -> Array:
            found, square = _real(left[rows], shape.nonnegative)
            found *= (_factor(square if together is None else together[rows], shape.norm) / shape.unit)[:, None]
            return np.trunc(found, out=found)  # towards zero: no row gets longer, and none changes its sign

        height = max(1, min(_ROWS // shape.width, self._safe))
        for rows, found in _spread(part, len(left), height):
            self._add_rows(found, groups[rows])

    def _add_rows(self, found: Array, groups: Array) -> None:
        """Add whole numbers (rows, width) to their groups: few long rows one by one, many short ones group by group."""
        total = self.total.reshape(self.shape.groups, self.shape.width)
        if len(found) <= 64:
            for row, group in zip(found, groups.tolist(), strict=True):
                np.add(total[group], row, out=total[group], casting="unsafe", dtype=np.int64)
            return
        for group in np.unique(groups):
            total[group] += found[groups == group].sum(axis=0).astype(np.int64)

    def _squares(self, left: Array) -> Array:
        width = max(1, _ROWS // self.shape.width)
        parts = [_real(left[start : start + width], self.shape.nonnegative)[1] for start in range(0, len(left), width)]
        return np.concatenate(parts)

    # ── Gram matrices ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _gram(self, places: Array, groups: Array, left: Array) -> None:
        """Add Σ f fᵀ; the squared lengths of one place's rows add up to norm² at most."""
        shape, step = self.shape, math.sqrt(self.shape.unit)
        limit = (shape.norm / step) ** 2
        rounded = self._quantised(places, left, step, shape.norm, limit)
        total = self.total.reshape(shape.groups, shape.width, shape.width)
        height = max(1, min(_TALL // shape.width, self._safe))
        for group in np.unique(groups):
            rows = rounded[groups == group] if shape.groups > 1 else rounded
            for start in range(0, len(rows), height):
                some = rows[start : start + height]
                total[group] += (some.T @ some).astype(np.int64)

    def _quantised(self, places: Array, left: Array, step: float, norm: float, limit: float) -> Array:
        """Round rows to the grid so that Σ‖row‖² of a place is at most `limit`, measured on the whole numbers."""
        values, square = _real(left, self.shape.nonnegative)
        coordinates = np.bincount(places, minlength=1)[places] * values.shape[1]
        # Rounding lengthens a row by about step²·d/24 of its length. Aim that much shorter, so that few must be cut.
        aim = norm * np.maximum(1 - coordinates * (step / norm) ** 2 / 16, 0.5)
        values *= (_factor(_by_place(places, square), aim) / step)[:, None]
        np.rint(values, out=values)
        square = _by_place(places, _square(values))
        over = square > limit
        if over.any():  # cutting towards zero only shortens
            values[over] = np.trunc(values[over] * (math.sqrt(limit) / np.sqrt(square[over]) * (1 - 2.0**-40))[:, None])
        return values

    # ── outer products ────────────────────────────────────────────────────────────────────────────────────────────────

    def _outer(self, places: Array, left: Array, right: Array) -> None:
        """Add Σ l rᵀ; the products of lengths ‖l‖·‖r‖ of one place's rows add up to the norm at most."""
        shape, step = self.shape, math.sqrt(self.shape.unit)
        (one, square), (two, _) = _real(left, shape.nonnegative), _real(right, False)
        length = np.sqrt(square)
        one /= np.where(length > 0, length, 1.0)[:, None]  # all of the length stands on the right
        two *= length[:, None]
        two, square = _real(two, False)  # a product of two long rows may have overflowed
        sums = _by_place(places, np.sqrt(square))
        two *= (np.minimum(1.0, shape.norm / np.where(sums > 0, sums, 1.0)) / step)[:, None]
        np.rint(one * (1 / step), out=one)
        np.rint(two, out=two)
        limit = shape.norm / shape.unit
        measured = _by_place(places, np.sqrt(_square(one)) * np.sqrt(_square(two)))
        over = measured > limit
        if over.any():
            two[over] = np.trunc(two[over] * (limit / measured[over] * (1 - 2.0**-40))[:, None])
        height = max(1, min(_TALL // shape.width, self._safe))
        for start in range(0, len(one), height):
            self.total += (one[start : start + height].T @ two[start : start + height]).astype(np.int64)


def _real(rows: Array, nonnegative: bool) -> tuple[Array, Array]:
    """Copy rows as 64-bit floats, and give their squared lengths. What is not a number becomes 0; no square overflows."""
    values = np.array(rows, dtype=np.float64)
    if nonnegative:
        np.maximum(values, 0.0, out=values)  # keeps NaN, which is looked for next
    with np.errstate(over="ignore", invalid="ignore"):
        square = _square(values)
    odd = ~(square < _HUGE**2)
    if odd.any():
        some = np.nan_to_num(values[odd], nan=0.0, posinf=1e300, neginf=-1e300)
        peak = np.abs(some).max(axis=1, keepdims=True, initial=0.0)
        values[odd] = np.where(peak > _LONG, some / np.where(peak > 0, peak, 1.0) * _LONG, some)  # keeps its direction
        square[odd] = _square(values[odd])
    return values, square


def _square(values: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", values, values))


def _by_place(places: Array, numbers: Array) -> Array:
    """Add up numbers (rows,) place by place, and give every row its place's sum."""
    _, index = np.unique(places, return_inverse=True)
    return np.bincount(index, weights=numbers)[index] if len(places) else numbers


def _factor(square: Array, norm: float | Array) -> Array:
    """Give the factor that shrinks what is longer than `norm` onto it."""
    length = np.sqrt(square)
    return np.minimum(1.0, norm / np.where(length > 0, length, 1.0))


def _spread(part: Callable[[slice], Array], rows: int, height: int) -> Iterator[tuple[slice, Array]]:
    """Work on some rows at a time, on two threads: NumPy lets them run side by side."""
    with ThreadPoolExecutor(2) as pool:
        for start in range(0, rows, 2 * height):  # two at a time: results may be as large as memory allows
            some = [slice(at, min(at + height, rows)) for at in (start, start + height) if at < rows]
            yield from zip(some, pool.map(part, some), strict=True)
