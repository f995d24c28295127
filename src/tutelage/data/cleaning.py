"""Clean private records one by one, by constants that are public: no record can end a run, and none moves another.

What is no finite number becomes 0, and what is absurdly large is cut. Masks and shares lie in [0, 1]. Inputs that are whole
numbers of 32 bits or fewer are never touched. Where nothing is unclean nothing is copied.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.data.mapped import Rows, forget

Array = npt.NDArray[Any]

LARGEST = 1e12  # 32-bit floats hold a sum of 10^14 of its squares; times in milliseconds and amounts of money lie below
_BYTES = 1 << 24  # looked at at a time
_ODD, _HUGE, _OUTSIDE = "numbers that were not finite", "numbers beyond ±10^12", "targets outside 0 to 1"


def inputs(array: Array, found: Counter[str]) -> Array:
    """Give finite inputs of at most 10^12 in size; count in `found` what was changed."""
    array = np.asanyarray(array)
    if array.dtype.kind == "O":
        array = _numbers(array)
    if array.dtype.kind == "f" or (array.dtype.kind in "iu" and array.dtype.itemsize > 4):
        limit = min(LARGEST, float(np.finfo(array.dtype).max)) if array.dtype.kind == "f" else LARGEST
        return _cut(array, -limit, limit, _HUGE, found)
    return array


def targets(array: Array, found: Counter[str]) -> Array:
    """Give masks and shares (records, ...) in [0, 1]. Labels (records,) stay: which are classes is declared elsewhere."""
    array = np.asanyarray(array)
    if array.dtype.kind == "O":
        array = _numbers(array)
    return _cut(array, 0, 1, _OUTSIDE, found) if array.ndim > 1 and array.dtype.kind in "iuf" else array


def _numbers(array: Array) -> Array:
    """Read cells one by one: one word among numbers makes objects of a whole table. What is no number is none."""

    def number(cell: Any) -> float:
        try:
            return float(cell)
        except Exception:  # a cell may be anything, and what it raises may quote it
            return np.nan

    return np.fromiter(map(number, array.reshape(-1).tolist()), np.float64, array.size).reshape(array.shape)


def _cut(array: Array, low: float, high: float, what: str, found: Counter[str]) -> Array:
    """Cut numbers to a range, and put 0 where there is none; some rows at a time, for arrays that are mapped."""
    if all(_within(part, low, high) for part in _parts(array)):  # not a number is within nothing
        return array
    rows = Rows(len(array), Path(tempfile.gettempdir()))
    for part in _parts(array):
        whole = np.isfinite(part)
        found[_ODD] += int((~whole).sum())
        found[what] += int((whole & ((part < low) | (part > high))).sum())
        rows.add(np.where(whole, part, 0).clip(low, high).astype(array.dtype, copy=False))
    return rows.array()


def _within(part: Array, low: float, high: float) -> bool:
    return part.size == 0 or bool(low <= part.min() and part.max() <= high)


def _parts(array: Array) -> Iterator[Array]:
    rows = max(1, _BYTES * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), rows):
        yield array[start : start + rows]
        forget(array)
