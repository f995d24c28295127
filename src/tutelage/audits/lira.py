"""LiRA, the likelihood ratio attack (Carlini et al. 2022): is the target's score one of models with the record, or without?

Scores of models with a record, and of those without it, are taken as normal. As in the authors' code, centres are medians, and
every record has the same number of models on a side. With one variance for everything ("fixed") its size only scales all scores,
so that theirs (the members' for both sides) and ours rank the same.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
Mode = Literal["online", "offline"]
_LEAST = 1e-30  # added to a deviation, as the reference code does


def lira(
    target: npt.ArrayLike, models: npt.ArrayLike, inside: npt.ArrayLike, *, mode: Mode = "online", fixed: bool = False
) -> Array:
    """Give one score per record (records,), higher for members, averaged over queries.

    `target` is (records,) or (records, queries), `models` (models, records) or (models, records, queries) are scores of shadow
    models, `inside` (models, records) says which of them learned from which record.
    """
    one, many, within = _read(target, models, inside)
    outside = _side(many, ~within)
    if mode == "offline":
        return np.asarray(-_log_density(one, *_normal(outside, fixed)).mean(axis=1))
    if mode != "online":
        raise RecipeError(f"`mode` must be 'online' or 'offline'. Got {mode!r} instead.")
    within_ = _side(many, within)
    first, second = _normal(within_, fixed), _normal(outside, fixed)
    if fixed:
        second = (second[0], first[1])
    return np.asarray((_log_density(one, *first) - _log_density(one, *second)).mean(axis=1))


def leave_one_out(models: npt.ArrayLike, inside: npt.ArrayLike, *, mode: Mode = "online", fixed: bool = False) -> Array:
    """Attack every model with the help of all others: scores (models, records).

    Both sides are given as many models for every target: were the target's own side one short, a score that says nothing about
    membership would still depend on it.
    """
    _, many, within = _read(np.asarray(models)[0], models, inside)
    scores = np.empty(within.shape)
    for left in range(len(many)):
        rest = np.arange(len(many)) != left
        size = int(min(within[rest].sum(axis=0).min(), (~within[rest]).sum(axis=0).min()))
        if size < 1:
            raise DataError(f"`models` must be at least 4, each record in half of them. Got {len(many)} instead.")
        chosen, kept = _first(many[rest], within[rest], size)
        scores[left] = lira(many[left], chosen, kept, mode=mode, fixed=fixed)
    return scores


def _first(models: Array, inside: Array, size: int) -> tuple[Array, Array]:
    """Give each record its first `size` models of either side, as matrices of 2·size models."""
    order = np.argsort(~inside, axis=0, kind="stable")  # those inside first
    back = np.argsort(inside, axis=0, kind="stable")
    places = np.concatenate([order[:size], back[:size]])  # (2·size, records)
    chosen = np.take_along_axis(models, places[:, :, None], axis=0)
    return chosen, np.repeat([[True], [False]], size, axis=0) & np.ones(inside.shape[1], dtype=bool)


def _read(target: npt.ArrayLike, models: npt.ArrayLike, inside: npt.ArrayLike) -> tuple[Array, Array, Array]:
    one, many = np.asarray(target, dtype=np.float64), np.asarray(models, dtype=np.float64)
    within = np.asarray(inside, dtype=bool)
    one, many = one[:, None] if one.ndim == 1 else one, many[:, :, None] if many.ndim == 2 else many
    if many.ndim != 3 or many.shape[1:] != one.shape or within.shape != many.shape[:2]:
        raise DataError(
            "`models` must be (models, records) as `inside` is, and `target` (records,). "
            f"Got {many.shape[:2]}, {within.shape} and {one.shape[:1]} instead."
        )
    if not (np.isfinite(one).all() and np.isfinite(many).all()):
        raise DataError("`models` and `target` must hold finite scores. Got others instead.")
    return one, many, within


def _side(models: Array, chosen: Array) -> Array:
    """Collect every record's scores on one side: (records, as many as the poorest record has, queries)."""
    size = int(chosen.sum(axis=0).min())
    if size < 1:
        raise DataError("`inside` must have every record in at least one model, and out of one. Got a record without instead.")
    places = np.argsort(~chosen, axis=0, kind="stable")[:size]
    return np.asarray(np.take_along_axis(models, places[:, :, None], axis=0).transpose(1, 0, 2))


def _normal(scores: Array, fixed: bool) -> tuple[Array, Array]:
    deviation = scores.std() if fixed else scores.std(axis=1)
    return np.median(scores, axis=1), np.asarray(deviation + _LEAST)


def _log_density(value: Array, centre: Array, deviation: Array) -> Array:
    return np.asarray(-(((value - centre) / deviation) ** 2) / 2 - np.log(deviation) - np.log(2 * np.pi) / 2)
