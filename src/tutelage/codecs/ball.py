"""The activation that fills a ball evenly (Fay et al. 2020, Eq. 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]


def uniform_ball(values: Array, *, exact: bool = False) -> Array:
    """Map (..., dimension + 1) numbers into the unit ball (..., dimension), about evenly for standard normal ones.

    The first number sets the distance from the centre, the others the direction. The published logistic curve is off the
    normal distribution by up to 0.018; with `exact` the normal distribution itself is taken and the result is uniform.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim == 0 or given.shape[-1] < 2:
        raise DataError(f"`values` must have at least 2 numbers on their last axis. Got shape {given.shape} instead.")
    first, rest = given[..., :1], given[..., 1:]
    level = special.ndtr(first) if exact else special.expit(np.sqrt(8 / np.pi) * first)
    length = np.linalg.norm(rest, axis=-1, keepdims=True)
    return np.asarray(rest / np.where(length > 0, length, 1.0) * level ** (1 / rest.shape[-1]))
