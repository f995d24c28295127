"""Names for public records by what a released model thinks of them: the most sure of them, and how many that is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]
SURE = 0.9  # of the pool that is named


def named(shares: Array, *, sure: float = SURE) -> Array:
    """Name records by shares (records, classes): the most sure part gets its label, the rest -1.

    Sure is who has far more of the first class than of the second.
    """
    check_sure(sure)
    second, first = np.sort(shares, axis=1)[:, -2:].T
    order = np.argsort(second - first, kind="stable")
    kept = order[: max(1, round(sure * len(order)))]
    names = np.full(len(shares), -1, dtype=np.int64)
    names[kept] = shares[kept].argmax(axis=1)
    return names


def check_sure(sure: float) -> None:
    """Refuse what is no share of a pool."""
    if not (isinstance(sure, (int, float)) and 0 < sure <= 1):
        raise RecipeError(f"`sure` must be in (0, 1]. Got {sure!r} instead.")
