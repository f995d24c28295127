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

_CELLS = 1 << 18  # work on blocks of this many (query, order) cells: they stay in the processor's cache


def _counts(counts: npt.ArrayLike) -> Array:
    array = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    if array.ndim != 2 or array.shape[1] < 2:
        raise DataError(f"`counts` must have the shape (queries, classes ≥ 2). Got {array.shape} instead.")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise DataError("`counts` must be finite and ≥ 0. Got others instead (withheld: counts are private).")
    return array


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
    agreed = log_q <= -math.log1p(math.exp(2 * gamma))
    q = log_q[agreed]
    log_rest = _log1mexp(q)
    log_ratio = log_rest - _log1mexp(np.minimum(q + 2 * gamma, 0.0))
    result[agreed] = np.minimum(plain, _log_mixture(log_rest, log_ratio, q, np.full_like(q, 2 * gamma), order))
    return result


def _log_mixture(log_rest: Array, log_a: Array, log_q: Array, log_b: Array, powers: Array) -> Array:
    """log[(1−q)·A^p + q·B^p] for rows of (1−q, A, q, B) and columns of p, precise even where it is 1e-70."""
    one = log_rest[:, None] + powers * log_a[:, None]
    two = log_q[:, None] + powers * log_b[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        near_zero = np.log1p(np.expm1(one) + np.exp(two))
    if two.max(initial=-1.0) > 600 or one.max(initial=-1.0) > 600:
        return np.asarray(np.where((two > 600) | (one > 600), np.logaddexp(one, two), near_zero))
    return np.asarray(near_zero)


# ── GNMax and the threshold test (2018) ───────────────────────────────────────────────────────────────────────────────


def gnmax_log_q(counts: npt.ArrayLike, sigma: float) -> Array:
    """Bound log Pr[noisy arg-max ≠ plurality] with N(0, σ²) on every count (2018, Proposition 7)."""
    positive(sigma=sigma)
    votes = _counts(counts)
    winners = votes.argmax(axis=1)
    gaps = votes.max(axis=1, keepdims=True) - votes
    return _log_sum_without_winner(_tabulated(gaps, lambda gap: special.log_ndtr(-gap / (math.sqrt(2) * sigma))), winners)


def gnmax_rdp(counts: npt.ArrayLike, sigma: float, orders: npt.ArrayLike) -> Array:
    """Bound each query's Rényi curve, data-dependent where that is lower: (queries, orders) (2018, Theorem 6)."""
    return _rdp_of_log_q(gnmax_log_q(counts, sigma), sigma, valid_orders(orders))


def _rdp_of_log_q(log_q: Array, sigma: float, orders: Array) -> Array:
    """Apply Theorem 6 with the orders of Proposition 10 wherever its conditions hold."""
    variance = sigma**2
    plain = orders / variance
    result = np.broadcast_to(plain, (len(log_q), len(orders))).copy()
    with np.errstate(invalid="ignore", divide="ignore"):
        mu2 = sigma * np.sqrt(-log_q)
        mu1 = mu2 + 1
        eps1, eps2 = mu1 / variance, mu2 / variance
        # Lemma 9: the bound increases in q, and A is positive.
        limit = (mu2 - 1) * eps2 - mu2 * (np.log1p(1 / (mu1 - 1)) + np.log1p(1 / (mu2 - 1)))
        usable = np.flatnonzero((mu2 > 1) & (mu1 > orders.min()) & (log_q <= limit) & (-log_q > eps2))
    q, mu1, mu2, eps1, eps2 = log_q[usable], mu1[usable], mu2[usable], eps1[usable], eps2[usable]
    log_rest = _log1mexp(q)
    log_a = log_rest - _log1mexp((q + eps2) * (1 - 1 / mu2))
    log_b = eps1 - q / (mu1 - 1)
    powers = orders - 1
    block = max(1, _CELLS // len(orders))
    for start in range(0, len(usable), block):
        part = slice(start, start + block)
        bound = _log_mixture(log_rest[part], log_a[part], q[part], log_b[part], powers) / powers
        result[usable[part]] = np.where(mu1[part, None] > orders, np.clip(bound, 0.0, plain), plain)
    return result


def log_answered(max_counts: npt.ArrayLike, threshold: float, sigma: float) -> Array:
    """log Pr[largest count + N(0, σ²) ≥ threshold]."""
    positive(sigma=sigma)
    return np.asarray(special.log_ndtr((np.asarray(max_counts, dtype=np.float64) - threshold) / sigma))


def threshold_rdp(max_counts: npt.ArrayLike, threshold: float, sigma: float, orders: npt.ArrayLike) -> Array:
    """Bound the Rényi curve of each threshold test: (queries, orders). At most α/(2σ²); less where the outcome is clear.

    The test is the arg-max of two noisy values with sensitivity 1 instead of √2: Theorem 6 at √2·σ, with q the
    probability of the less likely outcome.
    """
    top = np.atleast_1d(np.asarray(max_counts, dtype=np.float64))
    if not (np.isfinite(top).all() and (top >= 0).all() and math.isfinite(threshold)):
        raise DataError("`max_counts` must be finite and ≥ 0, and `threshold` finite. Got others instead.")
    yes = log_answered(top, threshold, sigma)
    no = log_answered(-top, -threshold, sigma)
    return _rdp_of_log_q(np.minimum(yes, no), math.sqrt(2) * sigma, valid_orders(orders))


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

    def usable(mu2: float) -> float:  # Lemma 9 in terms of μ₂ = σ√(−log q): it holds from the one sign change on
        return (2 * mu2 - 1) / sigma**2 - math.log1p(1 / mu2) - math.log1p(1 / (mu2 - 1))

    top = -((max(brentq(usable, 1 + 1e-9, sigma**2 + 2), order - 1) / sigma) ** 2)

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
        low = point < log_q0
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
    order = float(valid_orders(order)[0])
    votes = -np.sort(-_counts(counts), axis=1)
    if not (isinstance(teachers, (int, np.integer)) and teachers >= 1):
        raise RecipeError(f"`teachers` must be a whole number ≥ 1. Got {teachers!r} instead.")
    distinct, index = np.unique(votes, axis=0, return_inverse=True)
    return _local_sensitivity_paths(distinct, sigma, order, int(teachers))[index.reshape(-1)]


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
        log_q = gnmax_log_q(moved, sigma)
        result[rows, distance] = sensitivity(log_q)
        rows, moved = rows[log_q > log_q0], moved[log_q > log_q0]


def threshold_local_sensitivity(max_counts: npt.ArrayLike, threshold: float, sigma: float, order: float, teachers: int) -> Array:
    """Bound the local sensitivity of each threshold test's price at every distance: (queries, teachers).

    The largest count is a whole number from 0 to the number of teachers and one unit moves it by one.
    """
    top = np.atleast_1d(np.asarray(max_counts, dtype=np.float64))
    if not (np.isfinite(top).all() and (top >= 0).all() and (top <= teachers).all()):
        raise DataError("`max_counts` must lie between 0 and the number of teachers. Got others instead.")
    price = threshold_rdp(np.arange(teachers + 1), threshold, sigma, float(order))[:, 0]
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
    at = np.asarray(local, dtype=np.float64)
    return float(np.max(at * np.exp(-beta * np.arange(at.size))))


def gnmax_smooth_sensitivity(counts: npt.ArrayLike, sigma: float, order: float, beta: float, teachers: int) -> float:
    """Give the β-smooth sensitivity of the total data-dependent price of these queries at one order."""
    return discounted_max(gnmax_local_sensitivity(counts, sigma, order, teachers).sum(axis=0), beta)


def gnmax_smooth_conditions(sigma: float, classes: int, order: float) -> tuple[bool, bool]:
    """Check numerically that the bounds above hold: C5 (the price grows with q) and C6 (so does its step) (Appendix B.4.2).

    Both concern σ, the number of classes and the order alone. A release refuses parameters for which either fails.
    """
    positive(sigma=sigma)
    order = float(valid_orders(order)[0])
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
