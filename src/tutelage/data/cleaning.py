"""Clean private records one by one, by constants that are public: no record can end a run, and none moves another.

What is no finite number becomes 0, and what is absurdly large is cut. Masks and shares lie in [0, 1]. Images that are whole
numbers of 32 bits or fewer are never touched. Tables are always 64-bit floats, read cell by cell where an array is of words or
objects: one odd cell must not decide what kind of numbers the others are. Where nothing has to change nothing is copied.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.data import mapped
from tutelage.data.mapped import Rows, forget

Array = npt.NDArray[Any]

LARGEST = 1e12  # 32-bit floats hold a sum of 10^14 of its squares; times in milliseconds and amounts of money lie below
_BYTES = 1 << 24  # looked at at a time
_ODD, _HUGE, _OUTSIDE = "numbers that were not finite", "numbers beyond ±10^12", "targets outside 0 to 1"
_BOOLEANS = {"true": 1.0, "false": 0.0}  # how a column of them is written as words because of one odd cell


def inputs(array: Array, found: Counter[str]) -> Array:
    """Give finite inputs of at most 10^12 in size, tables as 64-bit floats; count in `found` what was changed."""
    array = np.asanyarray(array)
    table, kind = array.ndim <= 2, array.dtype.kind
    if not table and (kind == "b" or (kind in "iu" and array.dtype.itemsize <= 4)):
        return array
    wanted = np.dtype(np.float64) if table or kind not in "biuf" else array.dtype
    limit = min(LARGEST, float(np.finfo(wanted).max)) if wanted.kind == "f" else LARGEST
    return _cut(array, wanted, -limit, limit, _HUGE, found)


def targets(array: Array, found: Counter[str]) -> Array:
    """Give masks and shares (records, ...) in [0, 1]. Labels (records,) stay: they are read in labels.py."""
    array = np.asanyarray(array)
    if array.ndim < 2 or array.dtype.kind == "b":
        return array
    return _cut(array, array.dtype if array.dtype.kind in "iuf" else np.dtype(np.float64), 0, 1, _OUTSIDE, found)


def numbers(array: Array) -> Array:
    """Read an array of any kind as 64-bit floats, each cell by itself. What is no real number is none."""
    if array.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            return array.astype(np.float64, copy=False)
    if array.dtype.kind in "mM":  # as cells they are whole numbers or objects, by their precision
        return np.full(array.shape, np.nan)
    return np.fromiter(map(_number, array.reshape(-1).tolist()), np.float64, array.size).reshape(array.shape)


def _number(cell: Any) -> float:
    try:
        if isinstance(cell, (complex, np.complexfloating)):  # one of them makes an array of them
            return float(cell.real) if cell.imag == 0 else np.nan
        if isinstance(cell, (np.datetime64, np.timedelta64, np.ndarray)):
            return np.nan
        if isinstance(cell, (str, bytes)):
            text = (cell.decode() if isinstance(cell, bytes) else cell).strip()
            return _BOOLEANS[text.lower()] if text.lower() in _BOOLEANS else float(text)
        return float(cell)
    except Exception:  # a cell may be anything, and what it raises may quote it
        return np.nan


def _cut(array: Array, kind: np.dtype[Any], low: float, high: float, what: str, found: Counter[str]) -> Array:
    """Give numbers of one kind, cut to a range, 0 where there is none; some rows at a time, for arrays that are mapped."""
    if array.dtype == kind and all(_within(part, low, high) for part in _parts(array)):  # not a number is within nothing
        return array
    blocks = (_clean(part, kind, low, high, what, found) for part in _parts(array))
    if mapped.is_mapped(array) and array.size * kind.itemsize > mapped.HELD:
        rows = Rows(len(array), Path(tempfile.gettempdir()))  # in a file without a name, that nobody else can open
        for block in blocks:
            rows.add(block)
        return rows.array()
    whole, start = np.empty(array.shape, kind), 0
    for block in blocks:
        whole[start : start + len(block)] = block
        start += len(block)
    return whole


def _clean(part: Array, kind: np.dtype[Any], low: float, high: float, what: str, found: Counter[str]) -> Array:
    values = part if part.dtype == kind else numbers(part)
    finite = np.isfinite(values)
    found[_ODD] += int((~finite).sum())
    found[what] += int((finite & ((values < low) | (values > high))).sum())
    return np.where(finite, values, 0).clip(low, high).astype(kind, copy=False)


def _within(part: Array, low: float, high: float) -> bool:
    return part.size == 0 or bool(low <= part.min() and part.max() <= high)


def _parts(array: Array) -> Iterator[Array]:
    rows = max(1, _BYTES * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), rows):
        yield array[start : start + rows]
        forget(array)
