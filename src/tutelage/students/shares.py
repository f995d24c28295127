"""Answers that are every class's noisy share of the votes, in place of the winner."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]


def are_shares(answers: Any) -> bool:
    """Tell shares (records, classes) from labels (records,)."""
    return bool(np.ndim(answers) == 2)


def centred(shares: Any) -> Array:
    """Let every answered row add up to one, as votes do; rows without an answer are not a number.

    What the noise added to all classes alike is known to be noise. Taking it away leaves the estimate unbiased, which clipping
    to [0, 1] would not: half of the noise around a share of 0 lies below it.
    """
    rows = np.asarray(shares, dtype=np.float64)
    missing = np.isnan(rows).all(axis=1)
    if rows.shape[1] < 2 or not np.isfinite(rows[~missing]).all():
        raise DataError(
            "`labels` must be finite shares of two classes or more, not a number where nothing was answered. Got others instead."
        )
    return np.asarray(rows - (rows.sum(axis=1, keepdims=True) - 1) / rows.shape[1])


def refuse_shares(answers: Any, student: str) -> None:
    """Refuse shares where a student can learn from winners alone."""
    if are_shares(answers):
        raise RecipeError(
            f"`method` must be one that gives labels for the student {student!r}. Got shares instead, as 'mean' gives them; "
            "'supervised' and 'consistency' can learn from those."
        )
