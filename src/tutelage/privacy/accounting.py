"""Events to (ε, δ), μ and the attacker's best true-positive rate. Pure functions: arrays in, arrays out, no state.

`cost` is the one place where a count is multiplied. Everything is float64 and in log space, and every bound here is
data-independent: it can be printed. Data-dependent bounds live in consensus.py and stay sealed.
Proofs and references: docs/theory/.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import special
from scipy.optimize import elementwise

from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import (
    Event,
    Gaussian,
    Laplace,
    NoisyMax,
    NonPrivate,
    Reserved,
    Sampled,
    SmoothRelease,
    SparseVector,
    SummedGaussian,
    Threshold,
)

Array = npt.NDArray[np.float64]

#: Rényi orders that the minimum is taken over. They start close to 1: a grid from 2 can be far off for large ε.
ORDERS: Array = np.unique(np.concatenate([1 + np.geomspace(1e-3, 1, 60), np.arange(2, 64, 0.25), np.geomspace(64, 4096, 120)]))
ORDERS.setflags(write=False)

# Loss distributions are added up on a grid of steps of 10^-4. What costs more, or are more events, would take all memory.
_GRID_EPSILON = 200.0
_GRID_COUNT = 10**7


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _require(holds: bool | np.bool_, name: str, rule: str, value: Any) -> None:
    if not holds:
        raise RecipeError(f"`{name}` must be {rule}. Got {value!r} instead.")


def _floats(name: str, rule: str, value: npt.ArrayLike) -> Array:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    _require(array.size > 0, name, rule, value)
    return array


def positive(**named: npt.ArrayLike) -> None:
    """Refuse what is not a finite number above zero."""
    for name, value in named.items():
        array = _floats(name, "a finite number > 0", value)
        _require(bool(np.all(np.isfinite(array) & (array > 0))), name, "a finite number > 0", value)


def _not_negative(**named: npt.ArrayLike) -> None:
    for name, value in named.items():
        _require(bool(np.all(_floats(name, "a number ≥ 0", value) >= 0)), name, "a number ≥ 0", value)


def probability(**named: npt.ArrayLike) -> None:
    """Refuse what does not lie strictly between 0 and 1."""
    for name, value in named.items():
        array = _floats(name, "in (0, 1)", value)
        _require(bool(np.all((array > 0) & (array < 1))), name, "in (0, 1)", value)


def valid_orders(orders: npt.ArrayLike) -> Array:
    """Give the orders as floats (integers overflowed in a peer) and refuse any at or below 1."""
    array = np.atleast_1d(_floats("orders", "finite numbers > 1", orders))
    _require(bool(array.ndim == 1 and np.all(np.isfinite(array) & (array > 1))), "orders", "finite numbers > 1", orders)
    return array


def _plain(value: Array) -> Any:
    return float(value) if np.ndim(value) == 0 else value


# ── the Gaussian mechanism, exactly (Balle & Wang 2018, Theorem 8) ────────────────────────────────────────────────────


def _log_delta(mu: Array, epsilon: Array) -> Array:
    """log of δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), with relative precision in δ.

    With a = ε/μ − μ/2 and b = ε/μ + μ/2 the two terms share the factor φ(a) = e^ε φ(b), so that
    δ = φ(a)·√(π/2)·(erfcx(a/√2) − erfcx(b/√2)); for a < 0 the plain form loses nothing.
    """
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    right = np.maximum(a, 0.0)
    scaled = special.erfcx(right / math.sqrt(2)) - special.erfcx(b / math.sqrt(2))
    with np.errstate(over="ignore"):
        square = right * right  # an infinite one is a δ of zero
    tail = -square / 2 + np.log(np.maximum(scaled, 5e-324)) - math.log(2)
    with np.errstate(divide="ignore", under="ignore", invalid="ignore"):
        ratio = np.exp(np.minimum(epsilon + special.log_ndtr(-b) - special.log_ndtr(-a), 0.0))
        bulk = special.log_ndtr(-a) + np.log1p(-np.minimum(ratio, 1 - 1e-17))
    return np.asarray(np.where(a >= 0, tail, bulk))


def gaussian_delta(sensitivity: npt.ArrayLike, sigma: npt.ArrayLike, epsilon: npt.ArrayLike) -> Any:
    """Give the exact δ at ε of one Gaussian answer."""
    positive(sensitivity=sensitivity, sigma=sigma)
    array = _floats("epsilon", "a finite number ≥ 0", epsilon)
    _require(bool(np.all(np.isfinite(array) & (array >= 0))), "epsilon", "a finite number ≥ 0", epsilon)
    mu = np.asarray(sensitivity, dtype=np.float64) / np.asarray(sigma, dtype=np.float64)
    return _plain(np.exp(_log_delta(mu, array)))


def mu_epsilon(mu: npt.ArrayLike, delta: npt.ArrayLike) -> Any:
    """Give the exact ε at δ of μ-Gaussian DP."""
    positive(mu=mu)
    probability(delta=delta)
    mu_, log_delta = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.log(np.asarray(delta, dtype=np.float64)))
    at_zero = _log_delta(mu_, np.zeros_like(mu_))
    # δ(ε) ≤ Φ(−a) gives an upper end: a = −Φ⁻¹(δ).
    high = mu_ * (mu_ / 2 - np.minimum(special.ndtri_exp(log_delta), 0.0)) * (1 + 1e-9) + 1e-12
    found = _root(lambda epsilon, m, target: target - _log_delta(m, epsilon), np.zeros_like(mu_), high, mu_, log_delta)
    return _plain(np.where(at_zero <= log_delta, 0.0, found))


def epsilon_mu(epsilon: npt.ArrayLike, delta: npt.ArrayLike) -> Any:
    """Give the μ whose Gaussian DP is exactly (ε, δ)."""
    positive(epsilon=epsilon)
    probability(delta=delta)
    eps, log_delta = np.broadcast_arrays(np.asarray(epsilon, dtype=np.float64), np.log(np.asarray(delta, dtype=np.float64)))
    # In log μ: from far too little to far too much. δ grows with μ.
    quantile = -np.minimum(special.ndtri_exp(log_delta), 0.0)
    high = np.log(np.sqrt(quantile**2 + 2 * eps) + quantile + 10.0)
    low = np.log(np.minimum(np.exp(log_delta), eps / (quantile + np.sqrt(2 * eps) + 1.0) / 10.0))
    found = _root(lambda log_mu, e, target: _log_delta(np.exp(log_mu), e) - target, low, high, eps, log_delta)
    return _plain(np.exp(found))


def _root(function: Any, low: Array, high: Array, *args: Array) -> Array:
    found = elementwise.find_root(
        function, (low, high), args=args, tolerances={"xatol": 0.0, "xrtol": 4e-16, "fatol": 0.0, "frtol": 0.0}, maxiter=400
    )
    return np.asarray(found.x)


def gaussian_epsilon(sensitivity: npt.ArrayLike, sigma: npt.ArrayLike, delta: npt.ArrayLike) -> Any:
    """Give the exact ε at δ of one Gaussian answer. N answers are one with √N times the sensitivity."""
    positive(sensitivity=sensitivity, sigma=sigma)
    return mu_epsilon(np.asarray(sensitivity, dtype=np.float64) / np.asarray(sigma, dtype=np.float64), delta)


def gaussian_sigma(sensitivity: npt.ArrayLike, epsilon: npt.ArrayLike, delta: npt.ArrayLike) -> Any:
    """Give the smallest noise with which a Gaussian answer is (ε, δ)-DP."""
    positive(sensitivity=sensitivity)
    return _plain(np.asarray(np.asarray(sensitivity, dtype=np.float64) / epsilon_mu(epsilon, delta)))


def implied_tpr(mu: npt.ArrayLike, fpr: npt.ArrayLike) -> Any:
    """Bound the true-positive rate of any membership attack against μ-Gaussian DP (Dong, Roth & Su 2022)."""
    _not_negative(mu=mu)
    probability(fpr=fpr)
    return _plain(special.ndtr(np.asarray(mu, dtype=np.float64) + special.ndtri(np.asarray(fpr, dtype=np.float64))))


def tpr_bound(epsilon: npt.ArrayLike, delta: npt.ArrayLike, fpr: npt.ArrayLike) -> Any:
    """Bound the true-positive rate of any membership attack where only one (ε, δ) is known (Kairouz, Oh & Viswanath 2015)."""
    _not_negative(epsilon=epsilon, delta=delta)
    probability(fpr=fpr)
    eps, add, false = (np.asarray(value, dtype=np.float64) for value in (epsilon, delta, fpr))
    with np.errstate(over="ignore"):
        return _plain(np.asarray(np.minimum(np.exp(eps) * false + add, 1 - np.exp(-eps) * np.maximum(1 - add - false, 0.0))))


# ── Rényi DP ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def rdp_to_epsilon(rdp: npt.ArrayLike, orders: npt.ArrayLike, delta: float) -> tuple[float, float]:
    """Convert a Rényi curve to (ε, the order it was found at) (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    alpha = valid_orders(orders)
    curve = np.atleast_1d(np.asarray(rdp, dtype=np.float64))
    _require(curve.shape == alpha.shape, "rdp", f"of the orders' shape {alpha.shape}", curve.shape)
    _require(bool(np.all(curve >= 0)), "rdp", "≥ 0 and not NaN", "others (withheld: a curve may be data-dependent)")
    probability(delta=delta)
    epsilon = curve + np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
    best = int(np.argmin(epsilon))
    return max(0.0, float(epsilon[best])), float(alpha[best])


def laplace_rdp(epsilon: float, orders: npt.ArrayLike) -> Array:
    """Rényi curve of one Laplace answer with sensitivity/scale = ε (Mironov 2017, Proposition 6), stable at every ε."""
    _not_negative(epsilon=epsilon)
    alpha = valid_orders(orders)
    one = np.log(alpha / (2 * alpha - 1)) + (alpha - 1) * epsilon
    two = np.log((alpha - 1) / (2 * alpha - 1)) - alpha * epsilon
    small = alpha * epsilon < 1e-3  # logaddexp cancels there; ε²α/2·(1 + …) is dominated by the pure-DP curve
    return np.asarray(np.where(small, pure_rdp(epsilon, alpha), np.minimum(np.logaddexp(one, two) / (alpha - 1), epsilon)))


def pure_rdp(epsilon: float, orders: npt.ArrayLike) -> Array:
    """Rényi curve of any ε-DP mechanism: at most ε and at most α·ε²/2 (Bun & Steinke 2016, Proposition 3.3)."""
    _not_negative(epsilon=epsilon)
    return np.minimum(epsilon, valid_orders(orders) * (epsilon * epsilon) / 2)


def smooth_release_rdp(beta: float, sigma: float, orders: npt.ArrayLike) -> Array:
    """Rényi curve of a number released with `sigma` times its β-smooth sensitivity, exact for the worst pair of neighbours.

    Neighbours differ by at most the smaller of their two smooth sensitivities, which differ by at most e^β. The divergence of
    two such normals (Gil, Alajaji & Linder 2013) is largest where the second is narrower by e^β. Infinite from order
    1/(1 − e^{−2β}) on.
    """
    positive(beta=beta, sigma=sigma)
    alpha = valid_orders(orders)
    room = 1 - (alpha - 1) * math.expm1(2 * beta)
    inside = room > 0
    safe = np.where(inside, room, 1.0)
    return np.asarray(np.where(inside, alpha / (2 * (sigma * sigma) * safe) - np.log(safe) / (2 * (alpha - 1)) - beta, math.inf))


def published_smooth_release_rdp(beta: float, sigma: float, orders: npt.ArrayLike) -> Array:
    """The same curve as printed (Papernot et al. 2018, Theorem 23), to reproduce published figures with. Charge nothing by it.

    It is *not* an upper bound for α·β above about 1/4: at its authors' own optimum, α·β = 0.47, the true divergence is
    four times as large.
    """
    positive(beta=beta, sigma=sigma)
    alpha = valid_orders(orders)
    inside = 2 * alpha * beta < 1
    spread = -0.5 * np.log1p(-np.where(inside, 2 * alpha * beta, 0.0)) + beta * alpha
    return np.asarray(np.where(inside, alpha * math.exp(2 * beta) / (sigma * sigma) + spread / (alpha - 1), math.inf))


# ── one event ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def event_mu(event: Event) -> float | None:
    """Give μ where the event is (post-processing of) one Gaussian answer, else None."""
    match event:
        case Gaussian() | SummedGaussian():
            return event.sensitivity / event.sigma
        case NoisyMax(noise="gaussian"):
            return math.sqrt(2) * event.votes / event.scale
        case Threshold():
            return event.votes / event.sigma
    return None


def event_pure(event: Event) -> float:
    """Give ε where the event is pure ε-DP, else infinity."""
    match event:
        case Laplace():
            return event.sensitivity / event.scale
        case NoisyMax(noise="laplace"):
            return 2 * event.votes / event.scale
        case SparseVector():
            return event.epsilon_threshold + event.epsilon_answers
        case Reserved():  # but for its delta, which `_reserved_delta` adds up
            return event.epsilon
    return math.inf


def event_rdp(event: Event, orders: npt.ArrayLike) -> Array:
    """Give the data-independent Rényi curve of one event."""
    alpha = valid_orders(orders)
    mu = event_mu(event)
    if mu is not None:
        return np.asarray(alpha * (mu * mu) / 2)
    match event:
        case NoisyMax():  # two counts move by one vote each: two Laplace answers, and arg-max is post-processing
            single = event.votes / event.scale
            return np.asarray(np.minimum(2 * laplace_rdp(single, alpha), pure_rdp(2 * single, alpha)))
        case Laplace():  # the 1-norm may sit in one coordinate: the one-dimensional curve is the worst case
            return laplace_rdp(event.sensitivity / event.scale, alpha)
        case SparseVector() | Reserved():
            return pure_rdp(event_pure(event), alpha)
        case SmoothRelease():
            return smooth_release_rdp(event.beta, event.sigma, alpha)
    return np.full(alpha.shape, math.inf)


# ── composition ───────────────────────────────────────────────────────────────────────────────────────────────────────


@final
@dataclass(frozen=True)
class Cost:
    """What a list of events costs at one δ, and how that was found."""

    epsilon: float
    delta: float
    method: str
    mu: float | None = None  # the whole trade-off curve, where everything is Gaussian
    order: float | None = None


def cost(entries: Iterable[tuple[Event, int]], delta: float) -> Cost:
    """Compose (event, count) pairs. The count is multiplied here and nowhere else.

    Only Gaussian answers: they are one Gaussian answer, so the figure is exact. Any sampled event: dp-accounting's
    privacy loss distributions. Otherwise the better of Rényi composition and the sum of pure ε.
    """
    probability(delta=delta)
    pairs = _counted(entries)
    if not pairs:
        return Cost(0.0, delta, "nothing was released", 0.0)
    if any(isinstance(event, NonPrivate) for event, _ in pairs):
        return Cost(math.inf, delta, "no guarantee: a private value was looked at", math.inf)
    rest = delta - _reserved_delta(pairs)
    if rest <= 0:  # nothing is left for others: pure events alone need none
        return Cost(pure_sum(pairs) if rest == 0 else math.inf, delta, "sum of pure ε")
    if any(isinstance(event, Sampled) for event, _ in pairs):
        epsilon = _sampled_epsilon(pairs, rest)
        return Cost(epsilon, delta, "privacy loss distributions")
    square = gaussian_mu_squared(pairs)
    if square is not None:
        mu = math.sqrt(max(square, 1e-300))  # the square of less is nothing to a float
        return Cost(mu_epsilon(mu, delta), delta, "exact Gaussian", mu)
    total = sum((count * event_rdp(event, ORDERS) for event, count in pairs), np.zeros_like(ORDERS))
    epsilon, order = rdp_to_epsilon(total, ORDERS, rest)
    pure = pure_sum(pairs)
    if pure <= epsilon:
        return Cost(pure, delta, "sum of pure ε")
    return Cost(epsilon, delta, "Rényi", order=order)


def _reserved_delta(pairs: Iterable[tuple[Event, int]]) -> float:
    """Add up the δ of reservations. Each is taken off the whole δ, and what is left of a reservation is pure."""
    return math.fsum(event.delta * count for event, count in pairs if isinstance(event, Reserved))


def _counted(entries: Iterable[tuple[Event, int]]) -> list[tuple[Event, int]]:
    pairs = [(event, count) for event, count in entries if count]
    for _, count in pairs:
        _require(isinstance(count, int) and count > 0, "count", "a whole number ≥ 0", count)
    return pairs


def gaussian_mu_squared(pairs: Iterable[tuple[Event, int]]) -> float | None:
    """Add up μ² where everything is Gaussian, else None."""
    total = 0.0
    for event, count in pairs:
        mu = event_mu(event)
        if mu is None:
            return None
        total += count * (mu * mu)
    return total


def pure_sum(pairs: Iterable[tuple[Event, int]]) -> float:
    """Add up pure ε; infinite as soon as one event is not pure."""
    return float(sum(count * event_pure(event) for event, count in pairs))


def _sampled_epsilon(pairs: list[tuple[Event, int]], delta: float) -> float:
    """Compose loss distributions on dp-accounting's grid. Infinite, which is never too little, where they would not fit on it."""
    if beyond(pairs, _GRID_EPSILON, delta) or sum(count for _, count in pairs) > _GRID_COUNT:
        return math.inf
    from dp_accounting.pld import privacy_loss_distribution as pld

    try:
        with np.errstate(over="ignore"):  # dp-accounting's tails overflow to infinity on purpose
            whole = pld.identity()
            for event, count in pairs:
                whole = whole.compose(_loss_distribution(event, pld).self_compose(count))
            return float(whole.get_epsilon_for_delta(delta))
    except (OverflowError, MemoryError):
        raise RecipeError("`event` must be one that dp-accounting can price. Got one with far too much noise instead.") from None


def beyond(pairs: Iterable[tuple[Event, int]], epsilon: float, delta: float) -> bool:
    """Tell, without a grid, that one kind of event alone costs more than (ε, δ). False says nothing.

    Each of n events is reduced to one bit, whose probability is a or b: an attacker who counts k bits or more wins by
    P[Bin(n, a) ≥ k] − e^ε·P[Bin(n, b) ≥ k], which no (ε, δ) mechanism lets exceed δ.
    """
    for event, count in pairs:
        a, b = _bit(event)
        for k in (1, math.ceil(count * (a + b) / 2), count):
            if 1 <= k <= count:
                hit, false = (float(special.betainc(k, count - k + 1, p)) for p in (a, b))
                if hit - (math.exp(min(epsilon, 700.0)) * false if false else 0.0) > 1.01 * delta + 1e-12:  # clearly
                    return True
    return False


def _bit(event: Event) -> tuple[float, float]:
    """Give the probabilities, under two neighbours, of one bit of what the event's price is computed for."""
    inner, rate = (event.event, event.rate) if isinstance(event, Sampled) else (event, 1.0)
    if isinstance(inner, Reserved):  # priced as a pair, and not by what happened
        return 0.5, 0.5
    mu, pure = event_mu(inner), event_pure(inner)
    if isinstance(inner, SmoothRelease):  # no one bit of it is known: it tells nothing here
        hit = false = 0.5
    elif mu is not None:  # a normal number lies beyond the middle of the two means
        hit, false = float(special.ndtr(mu / 2)), float(special.ndtr(-mu / 2))
    elif isinstance(event, Sampled):  # a Laplace number likewise
        false = math.exp(-pure / 2) / 2
        hit = 1 - false
    else:  # the answer of randomised response
        hit, false = float(special.expit(pure)), float(special.expit(-pure))
    return rate * hit + (1 - rate) * false, false


def _loss_distribution(event: Event, pld: Any) -> Any:
    if isinstance(event, Sampled):
        if event.sampler == "fixed":
            return _fixed_size_distribution(event, pld)
        if isinstance(event.event, Gaussian):
            return pld.from_gaussian_mechanism(event.event.sigma / event.event.sensitivity, sampling_prob=event.rate)
        return pld.from_laplace_mechanism(event.event.scale / event.event.sensitivity, sampling_prob=event.rate)
    mu = event_mu(event)
    if mu is not None:
        return pld.from_gaussian_mechanism(1 / mu)
    pure = event_pure(event)
    _require(math.isfinite(pure), "event", "one that composes with sampled events", type(event).__name__)
    from dp_accounting.pld import common

    return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(pure, 0.0))


def _fixed_size_distribution(event: Sampled, pld: Any) -> Any:
    """Dominate a fixed-size sample without replacement under replace-one.

    Balle, Barthe & Gaboardi 2018, Theorem 9: δ′(log(1 + q(e^ε − 1))) ≤ q·δ(ε) for ε ≥ 0, in both directions, because the
    relation is symmetric; for negative ε, δ(−ε) = 1 − e^{−ε} + e^{−ε}·δ(ε) of the reversed pair. Neither side of the Poisson
    pair dominates both directions, so the curve itself is handed to dp-accounting's pessimistic connect-the-dots.
    """
    from dp_accounting.pld import pld_pmf

    mu, pure = event_mu(event.event), event_pure(event.event)
    step = 1e-4  # dp-accounting's own, so that everything composes
    last = pure if mu is None else float(mu_epsilon(mu, 1e-20))  # no δ to speak of beyond; past 60 the rest counts as infinite
    reach = 1 + int(min(math.log1p(event.rate * math.expm1(min(last, 700.0))), 60.0) / step)
    rounded = np.arange(-reach, reach + 1)
    epsilon = np.abs(rounded * step)
    inner = np.log1p(np.expm1(epsilon) / event.rate)
    # Laplace: δ(ε) = 1 − e^{(ε − ε₀)/2} below ε₀, else 0.
    base = -np.expm1(np.minimum(inner - pure, 0.0) / 2) if mu is None else np.exp(_log_delta(np.asarray(mu), inner))
    above = event.rate * base
    delta = np.where(rounded >= 0, above, -np.expm1(-epsilon) + np.exp(-epsilon) * above)
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -reach, reach, delta))


# ── adaptive use ──────────────────────────────────────────────────────────────────────────────────────────────────────


def filter_order(epsilon: float, delta: float) -> float:
    """Fix, before any data is read, the order at which a mixed book is filtered: where a Gaussian would fit most often."""
    room = epsilon + math.log(delta) / (ORDERS - 1)
    return float(ORDERS[int(np.argmax(room / ORDERS))])


@lru_cache(maxsize=64)
def _budget_mu(epsilon: float, delta: float) -> float:
    return float(epsilon_mu(epsilon, delta))


def admits(entries: Iterable[tuple[Event, int]], epsilon: float, delta: float) -> bool:
    """Decide whether a book with these entries stays (ε, δ)-DP even when every question, count and stop was adaptive.

    Only Gaussian answers: continue while Σμ² is at most the budget's μ² (Smith & Thakurta 2022, Theorem 1: a fully
    adaptive Gaussian filter). Otherwise continue while Σ pure ε ≤ ε, or the Rényi sum at one order fixed beforehand fits
    (Rogers et al. 2016; Feldman & Zrnic 2021, Theorem 4.3); that either may hold costs no more δ, see
    docs/theory/composition.md. Sampled events: their counts must not depend on answers, and the composed price counts.
    """
    positive(epsilon=epsilon)
    probability(delta=delta)
    pairs = _counted(entries)
    if any(isinstance(event, NonPrivate) for event, _ in pairs):
        return False
    slack = 1 + 1e-12  # a plan calibrated to exactly the budget must pass its own rounding
    square = gaussian_mu_squared(pairs)
    if square is not None:
        return square <= _budget_mu(epsilon, delta) ** 2 * slack
    rest = delta - _reserved_delta(pairs)
    if rest <= 0:
        return rest == 0 and pure_sum(pairs) <= epsilon * slack
    if any(isinstance(event, Sampled) for event, _ in pairs):
        return not beyond(pairs, epsilon * slack, delta) and cost(pairs, delta).epsilon <= epsilon * slack
    order = filter_order(epsilon, delta)
    renyi = sum(count * float(event_rdp(event, order)[0]) for event, count in pairs)
    return pure_sum(pairs) <= epsilon * slack or renyi + math.log(1 / rest) / (order - 1) <= epsilon * slack
