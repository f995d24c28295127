"""What noisy votes really cost when teachers agree, and how to publish that number.

Everything computed here from counts is *data-dependent*, hence private: it stays sealed, and leaves only through its
smooth-sensitivity release (mechanisms.SmoothNumber), which is itself charged.

Notation of Papernot et al. 2017 (LNMax) and 2018 (GNMax, threshold test, smooth sensitivity; theorem numbers of the 2018
appendix). Counts are (queries, classes), results (queries, moments) or (queries, orders). All in log space: 250 unanimous
votes at small noise must not underflow, and prices near zero keep their relative precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special
from scipy.optimize import brentq, minimize_scalar

from tutelage.privacy.accounting import positive, valid_orders
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[np.float64]

_CELLS = 1 << 15  # work on blocks of this many (query, order) cells: they stay in the processor's cache


def _floats(name: str, values: npt.ArrayLike) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):  # NumPy's own message quotes the entry that failed
        raise DataError(f"`{name}` must be an array of real numbers. Got others instead (withheld: they are private).") from None


def _counts(counts: npt.ArrayLike) -> Array:
    array = np.atleast_2d(_floats("counts", counts))
    if array.ndim != 2 or array.shape[1] < 2:
        raise DataError(f"`counts` must have the shape (queries, classes ≥ 2). Got {array.shape} instead.")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise DataError("`counts` must be finite and ≥ 0. Got others instead (withheld: counts are private).")
    return array


def _max_counts(max_counts: npt.ArrayLike, threshold: float) -> Array:
    array = _floats("max_counts", max_counts)
    if array.ndim > 1 or not (np.isfinite(array).all() and (array >= 0).all()):
        raise DataError("`max_counts` must be one finite number ≥ 0 per query. Got others instead (withheld: they are private).")
    if not (isinstance(threshold, (int, float, np.integer, np.floating)) and math.isfinite(threshold)):
        raise RecipeError(f"`threshold` must be a finite number. Got {threshold!r} instead.")
    return array


def _one_order(order: float) -> float:
    orders = valid_orders(order)
    if orders.size != 1:
        raise RecipeError(f"`order` must be one number. Got {orders.size} instead.")
    return float(orders[0])


def _whole_teachers(teachers: int) -> int:
    if not (isinstance(teachers, (int, np.integer)) and teachers >= 1):
        raise RecipeError(f"`teachers` must be a whole number ≥ 1. Got {teachers!r} instead.")
    return int(teachers)


def _log1mexp(x: Array) -> Array:
    """log(1 − e^x) for x ≤ 0."""
    with np.errstate(divide="ignore"):
        return np.where(x > -0.6931471805599453, np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def _tabulated(gaps: Array, function: Any) -> Array:
    """Evaluate a function of vote gaps; votes are whole numbers, so each distinct gap is evaluated once."""
    if gaps.size < 4096 or gaps.max() > 1e6 or not (gaps == np.rint(gaps)).all():
        return np.asarray(function(gaps))
    table = function(np.arange(gaps.max() + 1))
    return np.asarray(table[gaps.astype(np.int64)])


def _log_sum_without_winner(log_terms: Array, winners: npt.NDArray[np.int64]) -> Array:
    """log Σ_{j ≠ winner} e^{term_j}, and never above log(1 − 1/classes): the winner cannot be the least likely."""
    log_terms[np.arange(len(log_terms)), winners] = -math.inf
    peak = log_terms.max(axis=1)
    total = np.exp(log_terms - peak[:, None]).sum(axis=1)
    return np.asarray(np.minimum(peak + np.log(total), math.log1p(-1 / log_terms.shape[1])))


# ── LNMax (2017) ──────────────────────────────────────────────────────────────────────────────────────────────────────


def lnmax_log_q(counts: npt.ArrayLike, gamma: float) -> Array:
    """Bound log Pr[noisy arg-max ≠ plurality] with Laplace noise of scale 1/γ (2017, Lemma 4)."""
    positive(gamma=gamma)
    votes = _counts(counts)
    winners = votes.argmax(axis=1)
    gaps = votes.max(axis=1, keepdims=True) - votes
    terms = _tabulated(gaps, lambda gap: np.log(2 + gamma * gap) - math.log(4) - gamma * gap)
    return _log_sum_without_winner(terms, winners)


def lnmax_log_moments(counts: npt.ArrayLike, gamma: float, moments: npt.ArrayLike) -> Array:
    """Bound the log moments of the privacy loss of each query: (queries, moments) (2017, Theorems 2 and 3).

    The data-dependent bound holds for q ≤ 1/(e^{2γ} + 1) only; the widespread scripts apply it up to 0.5.
    """
    order = np.atleast_1d(np.asarray(moments, dtype=np.float64))
    if not (order.size and np.isfinite(order).all() and (order > 0).all()):
        raise RecipeError(f"`moments` must be finite numbers > 0. Got {moments!r} instead.")
    log_q = lnmax_log_q(counts, gamma)
    plain = np.minimum(2 * gamma**2 * order * (order + 1), 2 * gamma * order)
    result = np.broadcast_to(plain, (len(log_q), len(order))).copy()
    agreed = log_q <= -np.logaddexp(0.0, 2 * gamma)
    q = log_q[agreed]
    log_rest = _log1mexp(q)
    log_ratio = log_rest - _log1mexp(np.minimum(q + 2 * gamma, 0.0))
    result[agreed] = np.minimum(plain, _log_mixture(log_rest, log_ratio, q, np.full_like(q, 2 * gamma), order))
    return result


def _log_mixture(log_rest: Array, log_a: Array, log_q: Array, log_b: Array, powers: Array) -> Array:
    """log[(1−q)·A^p + q·B^p] for rows of (1−q, A, q, B) and columns of p, precise even where it is 1e-70.

    The log of the first term, which is close to zero there, plus log1p of the ratio of the second to it.
    """
    first = np.multiply.outer(log_a, powers)
    first += log_rest[:, None]
    ratio = np.multiply.outer(log_b - log_a, powers)
    ratio += (log_q - log_rest)[:, None]
    if ratio.max(initial=0.0) > 700:  # e^ratio would overflow
        return np.asarray(np.logaddexp(first, first + ratio))
    first += np.log1p(np.exp(ratio, out=ratio), out=ratio)  # in place: the block stays in the cache
    return np.asarray(first)


# ── GNMax and the threshold test (2018) ───────────────────────────────────────────────────────────────────────────────


def gnmax_log_q(counts: npt.ArrayLike, sigma: float) -> Array:
    """Bound log Pr[noisy arg-max ≠ plurality] with N(0, σ²) on every count (2018, Proposition 7)."""
    positive(sigma=sigma)
    votes = _counts(counts)
    winners = votes.argmax(axis=1)
    gaps = votes.max(axis=1, keepdims=True) - votes
    terms = _tabulated(gaps, lambda gap: special.log_ndtr(-np.minimum(gap / (math.sqrt(2) * sigma), 1e150)))  # never −∞
    return _log_sum_without_winner(terms, winners)


def gnmax_rdp(counts: npt.ArrayLike, sigma: float, orders: npt.ArrayLike) -> Array:
    """Bound each query's Rényi curve, data-dependent where that is lower: (queries, orders) (2018, Theorem 6)."""
    return _rdp_of_log_q(gnmax_log_q(counts, sigma), sigma, valid_orders(orders))


def _rdp_of_log_q(log_q: Array, sigma: float, orders: Array) -> Array:
    """Apply Theorem 6 with the orders of Proposition 10 wherever its conditions hold."""
    distinct, index = np.unique(log_q, return_inverse=True)  # ascending: from agreement to disagreement
    variance, powers = sigma**2, orders - 1
    plain = orders / variance
    with np.errstate(invalid="ignore", divide="ignore"):
        mu2 = sigma * np.sqrt(-distinct)
        mu1 = mu2 + 1
        eps1, eps2 = mu1 / variance, mu2 / variance
        # Lemma 9: the bound increases in q, and A is positive.
        limit = (mu2 - 1) * eps2 - mu2 * (np.log1p(1 / (mu1 - 1)) + np.log1p(1 / (mu2 - 1)))
        usable = np.flatnonzero((mu2 > 1) & (mu1 > orders.min()) & (distinct <= limit) & (-distinct > eps2))
    q, mu1, mu2, eps1, eps2 = (values[usable] for values in (distinct, mu1, mu2, eps1, eps2))
    log_rest = _log1mexp(q)
    log_a = log_rest - _log1mexp((q + eps2) * (1 - 1 / mu2))
    log_b = eps1 - q / (mu1 - 1)

    def bound(rows: slice, columns: slice) -> Array:
        found = _log_mixture(log_rest[rows], log_a[rows], q[rows], log_b[rows], powers[columns])
        found /= powers[columns]
        np.clip(found, 0.0, plain[columns], out=found)
        np.copyto(found, plain[columns], where=mu1[rows, None] <= orders[columns])
        return found

    result = np.tile(plain, (len(distinct), 1))
    block = max(1, _CELLS // len(orders))
    for start in range(0, len(usable), block):
        # The bound increases in q: an order at which it does not help the first of these rows helps none of them.
        helped = np.flatnonzero(bound(slice(start, start + 1), slice(None))[0] < plain)
        if helped.size:
            rows, columns = slice(start, start + block), slice(helped[0], helped[-1] + 1)
            result[usable[rows], columns] = bound(rows, columns)
    return result[index]


def log_answered(max_counts: npt.ArrayLike, threshold: float, sigma: float) -> Array:
    """log Pr[largest count + N(0, σ²) ≥ threshold]."""
    positive(sigma=sigma)
    return np.asarray(special.log_ndtr((_max_counts(max_counts, threshold) - threshold) / sigma))


def threshold_rdp(max_counts: npt.ArrayLike, threshold: float, sigma: float, orders: npt.ArrayLike) -> Array:
    """Bound the Rényi curve of each threshold test: (queries, orders). At most α/(2σ²); less where the outcome is clear.

    The test is the arg-max of two noisy values with sensitivity 1 instead of √2: Theorem 6 at √2·σ, with q the
    probability of the less likely outcome.
    """
    positive(sigma=sigma)
    away = np.abs(np.atleast_1d(_max_counts(max_counts, threshold)) - threshold) / sigma
    return _rdp_of_log_q(special.log_ndtr(-np.minimum(away, 1e150)), math.sqrt(2) * sigma, valid_orders(orders))


# ── smooth sensitivity of the data-dependent price (2018, Appendix B) ─────────────────────────────────────────────────


def _dependent_rdp(log_q: Array, sigma: float, order: float) -> Array:
    """Theorem 6 without its conditions: the callers compare with log q₀ first."""
    variance = sigma**2
    mu2 = sigma * np.sqrt(-log_q)
    log_rest = _log1mexp(log_q)
    log_a = log_rest - _log1mexp((log_q + mu2 / variance) * (1 - 1 / mu2))
    log_b = (mu2 + 1) / variance - log_q / mu2
    return _log_mixture(log_rest, log_a, log_q, log_b, np.asarray([order - 1]))[:, 0] / (order - 1)


def gnmax_log_q0(sigma: float, order: float) -> float:
    """Find the point from which on `gnmax_rdp` is the data-independent bound: Theorem 6 ends there, or is no longer smaller."""
    positive(sigma=sigma)
    order = _one_order(order)

    def usable(mu2: float) -> float:  # Lemma 9 in terms of μ₂ = σ√(−log q): it holds from the one sign change on
        return (2 * mu2 - 1) / sigma**2 - math.log1p(1 / mu2) - math.log1p(1 / (mu2 - 1))

    least = 1 + 1e-9
    top = -((max(least if usable(least) > 0 else brentq(usable, least, sigma**2 + 2), order - 1) / sigma) ** 2)

    def excess(log_q: float) -> float:
        return float(_dependent_rdp(np.asarray([log_q]), sigma, order)[0]) - order / sigma**2

    if excess(top) < 0:
        return float(top)
    low = 2 * top
    while excess(low) > 0:
        low *= 1.5
    return float(brentq(excess, low, top, xtol=1e-14, rtol=8.9e-16))


def _neighbour_log_q(log_q: Array, sigma: float, classes: int, direction: int) -> Array:
    """The largest (+1) or smallest (−1) q a neighbour of these votes can have (Proposition 11): one vote moves every gap by 2."""
    rest = math.log(classes - 1)
    moved = rest + special.log_ndtr(special.ndtri_exp(np.minimum(log_q - rest, -1e-300)) + direction * math.sqrt(2) / sigma)
    return np.asarray(np.minimum(moved, 0.0))


def _local_sensitivity(log_q: Array, sigma: float, classes: int, order: float, log_q0: float, log_q1: float) -> Array:
    """Bound how far one vote moves the price (Algorithm 3)."""
    at = np.where((log_q1 <= log_q) & (log_q <= log_q0), log_q1, log_q)

    def price(point: Array) -> Array:
        result = np.full(point.shape, order / sigma**2)
        low = point < log_q0 * (1 + 1e-10)  # one vote up from log q₁ is log q₀, whatever the rounding
        result[low] = _dependent_rdp(point[low], sigma, order)
        return result

    here = price(at)
    up = price(_neighbour_log_q(at, sigma, classes, +1)) - here
    down = here - price(_neighbour_log_q(at, sigma, classes, -1))
    return np.maximum(up, down)


def gnmax_local_sensitivity(counts: npt.ArrayLike, sigma: float, order: float, teachers: int) -> Array:
    """Bound the local sensitivity of each query's price at every distance: (queries, teachers) (Algorithms 4 and 5).

    Row d is what one vote can change after d others have moved the worst way: towards the plateau between q₁ and q₀,
    where the price is steepest.
    """
    positive(sigma=sigma)
    order, teachers = _one_order(order), _whole_teachers(teachers)
    votes = -np.sort(-_counts(counts), axis=1)
    distinct, index = np.unique(votes, axis=0, return_inverse=True)
    return _local_sensitivity_paths(distinct, sigma, order, teachers)[index.reshape(-1)]


def _local_sensitivity_paths(votes: Array, sigma: float, order: float, teachers: int) -> Array:
    classes = votes.shape[1]
    log_q0 = gnmax_log_q0(sigma, order)
    log_q1 = float(_neighbour_log_q(np.asarray([log_q0]), sigma, classes, -1)[0])

    def sensitivity(log_q: Array) -> Array:
        return _local_sensitivity(log_q, sigma, classes, order, log_q0, log_q1)

    plateau = float(sensitivity(np.asarray([log_q1]))[0])
    result = np.full((len(votes), teachers), plateau)
    log_q = gnmax_log_q(votes, sigma)
    outside = (log_q < log_q1) | (log_q > log_q0)
    result[outside, 0] = sensitivity(log_q[outside])
    _walk_right(votes, np.flatnonzero(log_q < log_q1), result, sigma, log_q1, sensitivity)
    _walk_left(votes, np.flatnonzero(log_q > log_q0), result, sigma, log_q0, sensitivity)
    return result


def _walk_right(votes: Array, rows: npt.NDArray[np.int64], result: Array, sigma: float, log_q1: float, sensitivity: Any) -> None:
    """Less agreement: d votes go from the winner to the runner-up, until q reaches q₁. All distances at once."""
    teachers = result.shape[1]
    block = max(1, _CELLS * 8 // (teachers * votes.shape[1]))
    for start in range(0, len(rows), block):
        part = rows[start : start + block]
        reach = int(min(teachers - 1, np.ceil((votes[part, 0] - votes[part, 1]).max() / 2)))
        moved = np.repeat(votes[part, None, :], reach + 1, axis=1)  # (rows, distances, classes)
        steps = np.arange(reach + 1)
        moved[:, :, 0] -= steps
        moved[:, :, 1] += steps
        log_q = gnmax_log_q(np.maximum(moved, 0.0).reshape(-1, votes.shape[1]), sigma).reshape(len(part), -1)
        # The step that first reaches q₁ is still evaluated; from there on the plateau stands.
        before = np.logical_and.accumulate(log_q < log_q1, axis=1)
        walk = np.zeros_like(before)
        walk[:, 1:] = before[:, :-1]
        where = np.nonzero(walk)
        result[part[where[0]], where[1]] = sensitivity(log_q[where])


def _walk_left(votes: Array, rows: npt.NDArray[np.int64], result: Array, sigma: float, log_q0: float, sensitivity: Any) -> None:
    """More agreement: the runner-up of the moment gives a vote to the winner, until q reaches q₀ or nobody has votes left."""
    moved = votes[rows].copy()
    for distance in range(1, result.shape[1]):
        going = moved[:, 1:].max(axis=1, initial=0.0) > 0
        rows, moved = rows[going], moved[going]
        if not len(rows):
            return
        moved[:, 0] += 1
        moved[np.arange(len(rows)), 1 + moved[:, 1:].argmax(axis=1)] -= 1
        np.maximum(moved, 0.0, out=moved)  # a count that was tightened by part of a vote must not go below none
        log_q = gnmax_log_q(moved, sigma)
        result[rows, distance] = sensitivity(log_q)
        rows, moved = rows[log_q > log_q0], moved[log_q > log_q0]


def threshold_local_sensitivity(max_counts: npt.ArrayLike, threshold: float, sigma: float, order: float, teachers: int) -> Array:
    """Bound the local sensitivity of each threshold test's price at every distance: (queries, teachers).

    The largest count is a whole number from 0 to the number of teachers and one unit moves it by one.
    """
    teachers = _whole_teachers(teachers)
    top = np.atleast_1d(_max_counts(max_counts, threshold))
    if not (top <= teachers).all():
        raise DataError("`max_counts` must be at most the number of teachers. Got others instead (withheld: counts are private).")
    price = threshold_rdp(np.arange(teachers + 1), threshold, sigma, _one_order(order))[:, 0]
    change = np.abs(np.diff(price))
    local = np.maximum(np.append(change, 0.0), np.append(0.0, change))  # (teachers + 1,) by largest count
    value = np.rint(top).astype(np.int64)[:, None]
    away = np.arange(teachers)
    exactly = np.maximum(
        np.where(value + away <= teachers, local[np.minimum(value + away, teachers)], 0.0),
        np.where(value - away >= 0, local[np.maximum(value - away, 0)], 0.0),
    )
    return np.maximum.accumulate(exactly, axis=1)  # at most d votes away: queries that peak at different distances add up


def discounted_max(local: npt.ArrayLike, beta: float) -> float:
    """β-smooth upper bound of a sensitivity given at distances 0, 1, 2 … (Nissim, Raskhodnikova & Smith 2007)."""
    positive(beta=beta)
    at = _floats("local", local)
    if at.ndim != 1 or not (at.size and np.isfinite(at).all() and (at >= 0).all()):
        raise DataError("`local` must be one finite number ≥ 0 per distance. Got others instead (withheld: they are private).")
    return float(np.max(at * np.exp(-beta * np.arange(at.size))))


def gnmax_smooth_sensitivity(counts: npt.ArrayLike, sigma: float, order: float, beta: float, teachers: int) -> float:
    """Give the β-smooth sensitivity of the total data-dependent price of these queries at one order."""
    return discounted_max(gnmax_local_sensitivity(counts, sigma, order, teachers).sum(axis=0), beta)


def gnmax_smooth_conditions(sigma: float, classes: int, order: float) -> tuple[bool, bool]:
    """Check numerically that the bounds above hold: C5 (the price grows with q) and C6 (so does its step) (Appendix B.4.2).

    Both concern σ, the number of classes and the order alone. A release refuses parameters for which either fails.
    """
    if not (isinstance(classes, (int, np.integer)) and classes >= 2):
        raise RecipeError(f"`classes` must be a whole number ≥ 2. Got {classes!r} instead.")
    log_q0 = gnmax_log_q0(sigma, order)
    log_q1 = float(_neighbour_log_q(np.asarray([log_q0]), sigma, classes, -1)[0])

    def price(log_q: Array) -> Array:
        return _dependent_rdp(log_q, sigma, order)

    def step(log_q: Array) -> Array:
        return price(np.minimum(_neighbour_log_q(log_q, sigma, classes, +1), log_q0)) - price(log_q)

    return _increases(price, log_q0), _increases(price, log_q0) and _increases(step, log_q1)


def _increases(function: Any, end: float) -> bool:
    """Look for a decrease of a smooth function on (−∞, end]: on a grid, then by polishing its smallest slope."""
    points = end - np.geomspace(1e-6, 60.0, 4000)[::-1]

    def slope(at: float) -> float:
        ends = function(np.asarray([at - 1e-6, at]))
        return float(ends[1] - ends[0])

    rises = np.diff(function(points)) / np.diff(points)
    worst = int(rises.argmin())
    if rises[worst] < 0:
        return False
    low, high = points[max(worst - 1, 0)], points[min(worst + 2, len(points) - 1)]
    return bool(minimize_scalar(slope, bounds=(low, high), method="bounded").fun >= 0)
