"""RMIA, the robust membership inference attack (Zarifzadeh et al. 2024): is a record likelier than others are, for this model?"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.audits.bounds import checked
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]


def rmia(
    target: npt.ArrayLike,
    models: npt.ArrayLike,
    inside: npt.ArrayLike,
    population: npt.ArrayLike,
    population_models: npt.ArrayLike,
    *,
    gamma: float = 1.0,
    slope: float = 0.3,
) -> Array:
    """Give the share of the population that each record beats (records,), higher for members.

    All are probabilities of the right class: of the records by the target (records,) and by reference models (models, records),
    of other records of the same population by the target (others,) and the models (models, others). `inside` says which
    models learned from which record: only those that did not are read. p(x) is then (1 + a)/2 · mean + (1 − a)/2 with a the
    `slope` (their Eq. 11). A record beats another where its ratio is above `gamma` times the other's.
    """
    if not 0 <= slope <= 1 or not gamma >= 1:
        raise RecipeError(f"`slope` must be from 0 to 1 and `gamma` at least 1. Got {slope!r} and {gamma!r} instead.")
    one, rest = checked(target, "target"), checked(population, "population")
    many, others = np.asarray(models, dtype=np.float64), np.asarray(population_models, dtype=np.float64)
    outside = ~np.asarray(inside, dtype=bool)
    if many.shape != outside.shape or many.shape[1:] != one.shape or others.shape != (len(many), len(rest)):
        raise DataError("`models` must be (models, records) and `population_models` (models, others). Got other shapes instead.")
    if not outside.any(axis=0).all():
        raise DataError("`inside` must leave every record out of at least one model. Got a record in all of them instead.")
    mean = np.where(outside, many, 0).sum(axis=0) / outside.sum(axis=0)
    own, theirs = one / _likely(mean, slope), rest / _likely(others.mean(axis=0), slope)
    below = np.searchsorted(np.sort(theirs * gamma), own, side="left")
    return np.asarray(below / len(theirs))


def leave_one_out(
    models: npt.ArrayLike, inside: npt.ArrayLike, population: npt.ArrayLike, *, gamma: float = 1.0, slope: float = 0.3
) -> Array:
    """Attack every model with the help of all others: scores (models, records). `population` is (models, others).

    What a record's probability is compared with is the mean of as many models that left it out, for every target.
    """
    many, within, rest = np.asarray(models, dtype=np.float64), np.asarray(inside, dtype=bool), np.asarray(population)
    size = int((~within).sum(axis=0).min()) - 1
    if size < 1:
        raise DataError(f"`models` must be at least 4, each record in half of them. Got {len(many)} instead.")
    scores = np.empty(many.shape)
    for left in range(len(many)):
        others = np.arange(len(many)) != left
        taken = np.cumsum(~within[others], axis=0) <= size
        scores[left] = rmia(many[left], many[others], within[others] | ~taken, rest[left], rest[others], gamma=gamma, slope=slope)
    return scores


def _likely(mean: Array, slope: float) -> Array:
    return np.asarray((1 + slope) / 2 * mean + (1 - slope) / 2)
