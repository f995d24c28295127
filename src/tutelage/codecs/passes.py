"""How masks go through a codec: teacher by teacher, a few at a time, so that a volume is never held twice over.

A teacher's rows are cut at the same places whoever else is asked, so its codes are the same to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
_VALUES = 1 << 21  # of one pass, 16 MiB of float64: one volume of 240×240×155, or 512 images of 64×64


def slices(rows: int, width: int) -> Iterator[slice]:
    """Cut rows of `width` values into passes; at least one row each."""
    step = max(1, _VALUES // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def masks(rows: Array) -> Array:
    """Flatten masks (rows, *shape) to float64 (rows, pixels) in [0, 1]; what is not a number becomes 0."""
    flat = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
    if rows.dtype.kind == "b":
        return flat
    if rows.dtype.kind == "f":
        np.nan_to_num(flat, copy=False, nan=0.0, posinf=1.0, neginf=0.0)
    return np.clip(flat, 0.0, 1.0, out=flat)


def encoded(predictions: Array, shape: tuple[int, ...], dimension: int, step: Callable[[Array], Array]) -> Array:
    """Encode predictions (teachers, queries, *shape) by a step from masks (rows, pixels) to codes (rows, dimension)."""
    given = np.asarray(predictions)
    if given.ndim != 2 + len(shape) or given.shape[2:] != shape or given.dtype.kind not in "biuf":
        raise DataError(
            f"`predictions` must be real numbers of shape (teachers, queries, {', '.join(map(str, shape))}). "
            f"Got {given.dtype} of shape {given.shape} instead."
        )
    codes = np.empty((*given.shape[:2], dimension))
    for teacher, answers in enumerate(given):
        for part in slices(len(answers), math.prod(shape)):
            codes[teacher, part] = step(masks(answers[part]))
    return codes


def decoded(codes: Array, dimension: int, shape: tuple[int, ...], step: Callable[[Array], Array]) -> Array:
    """Decode codes (queries, dimension) by a step to values (rows, pixels): (queries, *shape) in float32."""
    given = valid_codes(codes, dimension)
    answers = np.empty((len(given), *shape), dtype=np.float32)
    for part in slices(len(given), max(dimension, math.prod(shape))):
        answers[part] = step(given[part].astype(np.float64)).reshape(-1, *shape)
    return answers


def valid_codes(codes: Array, dimension: int) -> Array:
    """Check that released codes have the shape (queries, dimension)."""
    given = np.asarray(codes)
    if given.ndim != 2 or given.shape[1] != dimension or given.dtype.kind not in "biuf":
        raise DataError(f"`codes` must be real numbers of shape (queries, {dimension}). Got shape {given.shape} instead.")
    return given
