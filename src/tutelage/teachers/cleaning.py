"""Make private records valid one by one, by public constants: none of them may decide whether a run goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
LARGEST = float(np.finfo(np.float32).max)  # trees and networks read 32 bits


def numeric(targets: npt.ArrayLike) -> Array:
    """Refuse targets that are no numbers: a kind of array is public."""
    given = np.asarray(targets)
    if given.dtype.kind not in "biuf":
        raise DataError(f"`targets` must be numbers. Got {given.dtype} instead.")
    return given


def classes(labels: npt.ArrayLike, count: int | None = None) -> Array:
    """Give labels as int64. What is no whole number ≥ 0 (and below `count`, where that is known) becomes 0."""
    given = np.asarray(labels)
    if given.dtype.kind not in "biuf":  # what a model says, not what it was trained on: see `numeric`
        return np.zeros(given.shape, dtype=np.int64)
    with np.errstate(all="ignore"):  # NaN has no whole number, and says so
        whole = given.astype(np.int64)
        fit = (whole == given) & (whole >= 0)
    return np.where(fit if count is None else fit & (whole < count), whole, 0)


def numbers(records: npt.ArrayLike) -> Array:
    """Give records as they are, but 0 for what is not finite or too large for 32 bits."""
    given = np.asarray(records)
    if given.dtype.kind in "biu":
        return given
    if given.dtype.kind != "f":
        given = given.astype(np.float64)
    with np.errstate(all="ignore"):
        fit = np.abs(given) <= LARGEST
    return given if fit.all() else np.where(fit, given, given.dtype.type(0))
