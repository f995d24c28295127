"""Labels as whole numbers that may also be -1: "not known" has no place among unsigned ones."""

from __future__ import annotations

from typing import Any

import numpy as np

_MOST = np.iinfo(np.int64).max


def whole(targets: Any) -> Any:
    """Bring labels (records,) of any kind of whole numbers to int64; masks and everything else stay as they are."""
    array = np.asarray(targets)
    if array.ndim != 1 or array.dtype.kind not in "bui":
        return targets
    return np.minimum(array, _MOST).astype(np.int64) if array.dtype == np.uint64 else array.astype(np.int64, copy=False)
