"""Labels as whole numbers that may also be -1: "not known" has no place among unsigned ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from tutelage.data.cleaning import numbers

_MOST = np.iinfo(np.int64).max
_NONE = -1  # no class


def whole(targets: Any) -> Any:
    """Bring labels (records,) of any kind of whole numbers to int64; masks and everything else stay as they are."""
    array = np.asarray(targets)
    if array.ndim != 1 or array.dtype.kind not in "bui":
        return targets
    return np.minimum(array, _MOST).astype(np.int64) if array.dtype == np.uint64 else array.astype(np.int64, copy=False)


def read(targets: np.ndarray) -> np.ndarray:
    """Bring private labels (records,) of any kind to int64, each by itself: what is no whole number is -1, and no class.

    Words that spell whole numbers count as these: one odd label turns a whole array into words or floats. Masks stay as they are.
    """
    if targets.ndim != 1 or targets.dtype.kind in "bui":
        return np.asanyarray(whole(targets))
    labels = numbers(targets)
    found = np.floor(labels) == labels  # nor is infinity one
    return np.where(found & np.isfinite(labels), labels, _NONE).clip(-(2.0**62), 2.0**62).astype(np.int64)
