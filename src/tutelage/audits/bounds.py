"""Lower bounds on ε from the scores that an attack gave to members and to others: higher scores say "member".

Three kinds. Scores of many runs, taken as independent: Clopper & Pearson (1934) at thresholds that are fixed by their rank among
the others, for any (ε, δ) and for Gaussian DP (Dong et al. 2022). The coins of one run alone: Steinke, Nasr & Jagielski (2023,
Theorem 5.2). The coins of one run that claims Gaussian DP: Mahloujifar, Melis & Chaudhuri (2024, Algorithm 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from tutelage.privacy import accounting
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]

ALARM = 0.05  # how often a bound may lie above the truth
_PRECISION = 1e-6  # of ε, where a bound is the root of an equation


@final
@dataclass(frozen=True)
class Bound:
    """A lower bound on ε at δ, the μ it rests on where there is one, and what has to hold for it."""

    method: str
    epsilon: float
    mu: float | None
    assumption: str
    members: int
    others: int


def lower(hits: npt.ArrayLike, size: npt.ArrayLike, alarm: float) -> Array:
    """Bound a probability from below: Clopper & Pearson, one-sided."""
    hits, size = np.broadcast_arrays(np.asarray(hits, dtype=np.float64), np.asarray(size, dtype=np.float64))
    inner = np.maximum(hits, 1)
    return np.asarray(np.where(hits > 0, special.betaincinv(inner, size - inner + 1, alarm), 0.0))


def upper(hits: npt.ArrayLike, size: npt.ArrayLike, alarm: float) -> Array:
    """Bound a probability from above: Clopper & Pearson, one-sided."""
    hits, size = np.broadcast_arrays(np.asarray(hits, dtype=np.float64), np.asarray(size, dtype=np.float64))
    rest = np.maximum(size - hits, 1)
    return np.asarray(np.where(hits < size, special.betaincinv(hits + 1, rest, 1 - alarm), 1.0))


# ── many runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def two_sample(members: npt.ArrayLike, others: npt.ArrayLike, delta: float, *, alarm: float = ALARM) -> tuple[Bound, Bound]:
    """Bound ε from the scores of members and others: for any (ε, δ)-DP, and for a Gaussian mechanism.

    A threshold is the r-th largest score of the others, r = 1, 2, 4, ...: which ranks are tried does not depend on the scores, so
    that how many others lie above the true threshold is known by their rank, and members above it are counted apart (and the same
    with "below" and both groups exchanged). All thresholds share the alarm (Bonferroni).
    """
    some, rest = checked(members, "members"), checked(others, "others")
    _check(delta, alarm)
    likely, unlikely = _events(some, rest, alarm)
    counted = {"members": some.size, "others": rest.size}
    able = likely > delta
    epsilon = float(np.max(np.log(likely[able] - delta) - np.log(unlikely[able]), initial=0.0))
    gaps = special.ndtri(np.clip(likely, 1e-300, 1)) - special.ndtri(unlikely)
    mu = float(np.max(gaps[np.isfinite(gaps)], initial=0.0))
    apart = "the scores are independent of each other"
    return (
        Bound("Clopper–Pearson", epsilon, None, apart, **counted),
        Bound("Gaussian", _epsilon(mu, delta), mu, f"the mechanism is Gaussian; {apart}", **counted),
    )


def ranks(size: int) -> Array:
    """Give the ranks that are tried: powers of two below the number of scores."""
    return 2 ** np.arange(max(1, int(np.ceil(np.log2(size)))), dtype=np.int64) if size > 1 else np.ones(1, dtype=np.int64)


def tests(members: int, others: int) -> int:
    """Count the probabilities that share the alarm."""
    return 2 * (len(ranks(members)) + len(ranks(others)))


def _events(members: Array, others: Array, alarm: float) -> tuple[Array, Array]:
    """Bound from below how likely each event is on one side, and from above how likely it is on the other."""
    each = alarm / tests(members.size, others.size)
    likely, unlikely = [], []
    for sign, one, other in ((1.0, members, others), (-1.0, others, members)):
        tried = ranks(other.size)
        cuts = np.sort(sign * other)[::-1][tried - 1]
        above = one.size - np.searchsorted(np.sort(sign * one), cuts, side="right")
        likely.append(lower(above, one.size, each))
        unlikely.append(upper(tried - 1, other.size, each))
    return np.concatenate(likely), np.concatenate(unlikely)


def _epsilon(mu: float, delta: float) -> float:
    return float(accounting.mu_epsilon(mu, delta)) if mu > 0 and delta > 0 else 0.0 if mu <= 0 else math.inf


# ── one run ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def one_run(members: npt.ArrayLike, others: npt.ArrayLike, delta: float, *, alarm: float = ALARM) -> Bound:
    """Bound ε from one run, in which each canary took part or not by a fair coin of its own (Steinke et al. 2023).

    Only "took part" is guessed. Thresholds on the ROC's upper hull share the alarm.
    """
    some, rest = checked(members, "members"), checked(others, "others")
    _check(delta, alarm)
    epsilon = _over_thresholds(some, rest, delta, alarm, _steinke)
    return Bound("one run", epsilon, None, "each canary took part by a fair coin of its own", some.size, rest.size)


def one_run_gaussian(members: npt.ArrayLike, others: npt.ArrayLike, delta: float, *, alarm: float = ALARM) -> Bound:
    """Bound ε from one run of a mechanism that claims Gaussian DP (Mahloujifar et al. 2024), with coins as in `one_run`."""
    some, rest = checked(members, "members"), checked(others, "others")
    _check(delta, alarm)
    epsilon = _over_thresholds(some, rest, delta, alarm, _mahloujifar)
    mu = float(accounting.epsilon_mu(epsilon, delta)) if epsilon > 0 else 0.0
    means = "the mechanism is Gaussian; each canary took part by a fair coin of its own"
    return Bound("one run, Gaussian", epsilon, mu, means, some.size, rest.size)


def _over_thresholds(members: Array, others: Array, delta: float, alarm: float, refutes: Callable[..., float]) -> float:
    """Find the largest ε that one threshold on the hull refutes. Thresholds of high precision first: the rest end early."""
    true, false = hull(members, others)
    each, size = alarm / len(true), members.size + others.size
    total = true + false
    order = np.argsort(-(1 - upper(false, total, each)))
    best = 0.0
    for right, guesses in zip(true[order].tolist(), total[order].tolist(), strict=True):
        if guesses == 0 or right / guesses <= special.expit(best):
            continue

        def excess(epsilon: float, right: int = right, guesses: int = guesses) -> float:
            return refutes(epsilon, size, guesses, right, each, delta)

        if excess(best) <= 0:
            continue
        low, high = best, max(1.0, 2 * best)
        while excess(high) > 0:
            low, high = high, 2 * high
        best = float(optimize.brentq(excess, low, high, xtol=_PRECISION))
    return best


def _steinke(epsilon: float, size: int, guesses: int, right: int, alarm: float, delta: float) -> float:
    """Give the alarm less the probability that an (ε, δ)-DP run lets so many of the guesses be right: above 0 it is refuted."""
    chance = special.expit(epsilon)
    beta = float(stats.binom.sf(right - 1, guesses, chance))
    if delta > 0 and beta <= alarm:
        steps = np.arange(1, right + 1)
        extra = (stats.binom.sf(right - steps - 1, guesses, chance) - beta) / steps
        beta += float(extra.max(initial=0.0)) * delta * 2 * size
    return alarm - min(beta, 1.0)


def _mahloujifar(epsilon: float, size: int, guesses: int, right: int, alarm: float, delta: float) -> float:
    """Follow the recursion of their Algorithm 3 for the trade-off curve of a Gaussian with this (ε, δ): above 0 it is refuted."""
    mu = float(accounting.epsilon_mu(max(epsilon, 1e-12), delta))
    r, h = alarm * right / size, alarm * (guesses - right) / size
    for place in range(right - 1, -1, -1):
        grown = max(h, float(special.ndtr(special.ndtri(r) - mu)))
        if grown == h:
            break  # from here on neither changes
        r, h = min(r + place / (guesses - place) * (grown - h), 1.0), grown
    return r + h - guesses / size


def hull(members: Array, others: Array) -> tuple[Array, Array]:
    """Give true and false positives (thresholds,) at the corners of the ROC's upper hull."""
    cuts = np.append(np.union1d(members, others), np.inf)
    missed = np.searchsorted(np.sort(members), cuts, side="left")
    spared = np.searchsorted(np.sort(others), cuts, side="left")
    points = np.stack([missed, spared], axis=1)
    while len(points) > 2:
        step = np.diff(points, axis=0)
        turns = step[:-1, 1] * step[1:, 0] - step[1:, 1] * step[:-1, 0]
        if (turns > 0).all():
            break
        points = points[np.concatenate([[True], turns > 0, [True]])]
    return members.size - points[:, 0], others.size - points[:, 1]


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


def checked(scores: npt.ArrayLike, name: str) -> Array:
    """Read scores, or refuse those that are no numbers: NaN sorts somewhere, and would decide an audit."""
    array = np.asarray(scores, dtype=np.float64).reshape(-1)
    if not array.size:
        raise DataError(f"`{name}` must hold at least one score. Got none instead.")
    if wrong := int(np.isnan(array).sum()):
        raise DataError(f"`{name}` must hold numbers. Got {wrong} NaN of {array.size} scores instead.")
    return array


def _check(delta: float, alarm: float) -> None:
    if not 0 <= delta < 1:
        raise RecipeError(f"`delta` must be at least 0 and below 1. Got {delta!r} instead.")
    if not 0 < alarm < 0.5:
        raise RecipeError(f"`alarm` must be above 0 and below 0.5. Got {alarm!r} instead.")
