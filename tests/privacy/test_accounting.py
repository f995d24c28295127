"""Prices are exact where they can be, true upper bounds elsewhere, and the filter never admits what the price forbids."""

import functools
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from tutelage.privacy import accounting
from tutelage.privacy.accounting import ORDERS
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

FACTS = json.loads((Path(__file__).parents[1] / "fixtures" / "accounting.json").read_text(encoding="utf-8"))
EXACT = FACTS["analytic_gaussian"]


def log_floats(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


epsilons, deltas, sigmas = log_floats(1e-3, 1e3), log_floats(1e-15, 0.1), log_floats(1e-2, 1e3)


def number(text: str) -> float:
    return math.sqrt(2) if text == "sqrt(2)" else float(text)


# ── the Gaussian mechanism ────────────────────────────────────────────────────────────────────────────────────────────


SIGMA_ROWS = EXACT["grid"] + EXACT["other_sensitivities"]


@pytest.mark.parametrize("row", SIGMA_ROWS, ids=lambda r: f"{r['Delta']} {r['eps']} {r['delta']}")
def test_sigma_and_delta_are_exact(row: dict[str, str]) -> None:
    sensitivity, epsilon, delta, sigma = number(row["Delta"]), float(row["eps"]), float(row["delta"]), float(row["sigma_20"])
    assert accounting.gaussian_sigma(sensitivity, epsilon, delta) == pytest.approx(sigma, rel=1e-12)
    assert accounting.gaussian_delta(sensitivity, sigma, epsilon) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("row", EXACT["inverse_eps_of_sigma"], ids=lambda r: f"{r['sigma_over_Delta']} {r['delta']}")
def test_epsilon_is_exact(row: dict[str, Any]) -> None:
    epsilon = accounting.gaussian_epsilon(1.0, float(row["sigma_over_Delta"]), float(row["delta"]))
    assert epsilon == pytest.approx(float(row["eps_20"]), rel=1e-12, abs=1e-14)


def naive_delta(sensitivity: float, sigma: float, epsilon: float) -> float:
    """Broken twin: the textbook line, which overflows and cancels."""
    mu = sensitivity / sigma
    with np.errstate(all="ignore"):
        return float(special.ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * special.ndtr(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize(("delta_of", "holds"), [(accounting.gaussian_delta, True), (naive_delta, False)])
def test_the_fixtures_catch_cancellation(delta_of: Callable[..., float], holds: bool) -> None:
    pairs = [(delta_of(number(r["Delta"]), float(r["sigma_20"]), float(r["eps"])), float(r["delta"])) for r in EXACT["grid"]]
    assert all(ours == pytest.approx(true, rel=1e-9) for ours, true in pairs) is holds


def classic_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Broken twin: √(2 log(1.25/δ))·Δ/ε, proved for ε ≤ 1 only."""
    return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon


@pytest.mark.parametrize(("calibrate", "holds"), [(accounting.gaussian_sigma, True), (classic_sigma, False)])
def test_calibrated_noise_is_enough_and_not_too_much(calibrate: Callable[..., float], holds: bool) -> None:
    spent = [accounting.gaussian_delta(1.0, calibrate(1.0, epsilon, 1e-5), epsilon) for epsilon in (0.1, 1.0, 10.0, 100.0)]
    assert all(0.999999e-5 <= delta <= 1.000001e-5 for delta in spent) is holds


@given(epsilon=epsilons, delta=deltas, sensitivity=log_floats(1e-3, 1e3))
def test_sigma_to_epsilon_and_back(epsilon: float, delta: float, sensitivity: float) -> None:
    sigma = accounting.gaussian_sigma(sensitivity, epsilon, delta)
    assert accounting.gaussian_epsilon(sensitivity, sigma, delta) == pytest.approx(epsilon, rel=1e-9)
    assert accounting.gaussian_delta(sensitivity, sigma, epsilon) == pytest.approx(delta, rel=1e-8)
    assert accounting.epsilon_mu(epsilon, delta) == pytest.approx(sensitivity / sigma, rel=1e-13)


@given(epsilon=st.floats(0, 50), step=log_floats(1e-3, 10), sigma=log_floats(0.1, 100), factor=log_floats(1.001, 10))
def test_delta_falls_with_epsilon_and_with_sigma(epsilon: float, step: float, sigma: float, factor: float) -> None:
    here = accounting.gaussian_delta(1.0, sigma, epsilon)
    assert 0 <= here <= 1
    assert accounting.gaussian_delta(1.0, sigma, epsilon + step) <= here
    assert accounting.gaussian_delta(1.0, sigma * factor, epsilon) <= here
    if here > 1e-300:
        assert accounting.gaussian_delta(1.0, sigma, epsilon + step) < here
        assert accounting.gaussian_delta(1.0, sigma * factor, epsilon) < here


@given(epsilon=epsilons, delta=deltas, factor=log_floats(1.001, 10))
def test_sigma_falls_with_epsilon_and_with_delta(epsilon: float, delta: float, factor: float) -> None:
    here = accounting.gaussian_sigma(1.0, epsilon, delta)
    assert accounting.gaussian_sigma(1.0, epsilon * factor, delta) < here
    assert accounting.gaussian_sigma(1.0, epsilon, min(delta * factor, 0.5)) < here
    assert accounting.gaussian_sigma(2.0, epsilon, delta) == pytest.approx(2 * here, rel=1e-14)


def test_the_gaussian_functions_take_arrays() -> None:
    sigma, delta = np.array([[0.5], [1.0], [2.0]]), np.array([1e-5, 1e-10])
    epsilon = accounting.gaussian_epsilon(1.0, sigma, delta)
    assert epsilon.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            assert epsilon[i, j] == accounting.gaussian_epsilon(1.0, sigma[i, 0], delta[j])
    np.testing.assert_allclose(accounting.gaussian_sigma(1.0, epsilon, delta), np.broadcast_to(sigma, (3, 2)), rtol=1e-12)
    assert accounting.gaussian_delta([1, 2], 3, 4).shape == (2,)
    assert isinstance(accounting.gaussian_delta(1, 3, 4), float)


def test_noise_beyond_need_costs_nothing() -> None:
    assert accounting.gaussian_epsilon(1.0, 1e6, 1e-3) == 0.0
    assert accounting.gaussian_delta(1e-200, 1.0, 1.0) == 0.0
    assert accounting.gaussian_delta(1.0, 1e-200, 1.0) == 1.0


@pytest.mark.parametrize("mu", [1e2, 1e4, 1e8, 1e9, 1e12])
def test_absurdly_little_noise_still_has_a_price(mu: float) -> None:
    assert accounting.mu_epsilon(mu, 1e-5) == pytest.approx(mu**2 / 2 + 4.264890793922825 * mu, rel=1e-3)
    assert accounting.mu_epsilon(mu, 1e-5) < accounting.mu_epsilon(1.1 * mu, 1e-5)


@pytest.mark.parametrize(("epsilon", "mu", "tpr"), [(1, 0.268, 0.0024), (3, 0.719, 0.0089), (8, 1.666, 0.077), (10, 2.0, 0.138)])
def test_mu_and_the_attackers_best(epsilon: float, mu: float, tpr: float) -> None:
    found = accounting.epsilon_mu(epsilon, 1e-5)
    assert found == pytest.approx(mu, abs=5e-4)
    assert accounting.implied_tpr(found, 1e-3) == pytest.approx(tpr, rel=0.02)
    assert accounting.implied_tpr(found, 1e-3) <= math.exp(epsilon) * 1e-3 + 1e-5  # what (ε, δ) says


@given(epsilon=st.floats(0, 60), delta=st.floats(0, 0.1), fpr=log_floats(1e-6, 0.999))
def test_one_pair_bounds_the_attack_as_well_as_can_be(epsilon: float, delta: float, fpr: float) -> None:
    bound = accounting.tpr_bound(epsilon, delta, fpr)
    assert fpr - 1e-15 <= bound <= 1
    # Both halves of the definition, and the mechanism that attains them (Kairouz, Oh & Viswanath 2015, Theorem 2.1).
    assert bound <= math.exp(epsilon) * fpr + delta + 1e-15
    assert 1 - fpr <= math.exp(epsilon) * (1 - bound + 1e-15) + delta
    corner = (1 - delta) / (1 + math.exp(epsilon))
    told = delta + math.exp(epsilon) * fpr if fpr <= corner else 1 - math.exp(-epsilon) * max(1 - delta - fpr, 0)
    assert bound == pytest.approx(told, rel=1e-12, abs=1e-15)


@given(mu=log_floats(0.05, 6), delta=deltas, fpr=log_floats(1e-4, 0.5))
def test_the_whole_curve_bounds_the_attack_better_than_one_pair(mu: float, delta: float, fpr: float) -> None:
    pair = accounting.tpr_bound(accounting.mu_epsilon(mu, delta), delta, fpr)
    assert accounting.implied_tpr(mu, fpr) <= pair * (1 + 1e-9)


def test_an_attack_on_nothing_is_a_guess_and_on_everything_is_sure() -> None:
    assert accounting.implied_tpr(0.0, 0.01) == pytest.approx(0.01)
    assert accounting.implied_tpr(math.inf, 0.01) == 1.0
    assert accounting.implied_tpr([0.5, 1.0], 0.01).shape == (2,)
    assert accounting.tpr_bound(math.inf, 0.0, 0.01) == 1.0
    assert accounting.tpr_bound([0.5, 1.0], 1e-5, 0.01).shape == (2,)


# ── Rényi curves ──────────────────────────────────────────────────────────────────────────────────────────────────────


def quadrature_laplace(epsilon: float, order: float) -> float:
    """Integrate p^α·q^(1−α) of two unit Laplace densities ε apart, in the units of its largest value."""

    def density(x: float) -> float:
        return 0.5 * math.exp(-order * abs(x) - (1 - order) * abs(x - epsilon) - (order - 1) * epsilon)

    pieces = ((-60, 0), (0, epsilon), (epsilon, epsilon + 60))
    total = sum(integrate.quad(density, *ends, epsabs=0, epsrel=1e-12)[0] for ends in pieces)
    return epsilon + math.log(total) / (order - 1)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("order", [1.05, 1.5, 2.0, 7.3, 40.0])
def test_the_laplace_curve_is_its_integral(epsilon: float, order: float) -> None:
    assert accounting.laplace_rdp(epsilon, order)[0] == pytest.approx(quadrature_laplace(epsilon, order), rel=1e-8)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 1e-4])
def test_the_laplace_curve_of_a_whisper_is_an_upper_bound_close_by(epsilon: float) -> None:
    curve = accounting.laplace_rdp(epsilon, [1.5, 2.0, 8.0])
    series = np.array([1.5, 2.0, 8.0]) * epsilon**2 / 2 * (1 - epsilon / 3)  # the first two terms
    assert (curve >= series * (1 - 1e-6)).all()
    np.testing.assert_allclose(curve, series, rtol=1e-3)


@given(a=log_floats(1e-3, 20), b=log_floats(1e-3, 20))
def test_two_laplace_coordinates_cost_no_more_than_one(a: float, b: float) -> None:
    together = accounting.laplace_rdp(a, ORDERS) + accounting.laplace_rdp(b, ORDERS)
    assert (together <= accounting.laplace_rdp(a + b, ORDERS) * (1 + 1e-9)).all()


@given(epsilon=log_floats(1e-6, 1e3))
def test_pure_dp_bounds_the_laplace_curve_and_randomised_response(epsilon: float) -> None:
    pure = accounting.pure_rdp(epsilon, ORDERS)
    assert (accounting.laplace_rdp(epsilon, ORDERS) <= pure * (1 + 1e-12)).all()
    # Randomised response is the worst ε-DP mechanism there is.
    yes, no = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    exact = np.logaddexp(ORDERS * yes + (1 - ORDERS) * no, ORDERS * no + (1 - ORDERS) * yes) / (ORDERS - 1)
    assert (exact <= pure * (1 + 1e-9) + 1e-12).all()


def exact_gaussian_divergence(order: float, mean: float, one: float, two: float) -> float:
    """Rényi divergence of N(0, one²) from N(mean, two²) (Gil, Alajaji & Linder 2013)."""
    spread = order * two**2 + (1 - order) * one**2
    if spread <= 0:
        return math.inf
    return math.log(two / one) + math.log(two**2 / spread) / (2 * (order - 1)) + order * mean**2 / (2 * spread)


def worst_neighbours(order: float, beta: float, sigma: float, tilts: Any, shifts: Any) -> float:
    """Search neighbours: smooth sensitivities 1 and e^(β·tilt), numbers apart by up to the smaller of the two."""
    pairs = [(math.exp(beta * tilt), shift * min(1.0, math.exp(beta * tilt))) for tilt in tilts for shift in shifts]
    return max(exact_gaussian_divergence(order, mean, sigma, ratio * sigma) for ratio, mean in pairs)


SMOOTH = {"beta": log_floats(1e-4, 0.3), "sigma": log_floats(0.3, 100), "part": st.floats(0.01, 0.99)}


@given(**SMOOTH, tilt=st.floats(-1, 1), shift=st.floats(-1, 1))
def test_the_smooth_release_curve_is_the_worst_divergence(
    beta: float, sigma: float, part: float, tilt: float, shift: float
) -> None:
    order = 1 + part / math.expm1(2 * beta)
    claimed = accounting.smooth_release_rdp(beta, sigma, order)[0]
    assert worst_neighbours(order, beta, sigma, (tilt, -1.0, 0.0, 1.0), (shift, 1.0)) <= claimed * (1 + 1e-9)
    assert worst_neighbours(order, beta, sigma, (-1.0,), (1.0,)) == pytest.approx(claimed, rel=1e-6)  # and no less


def quadrature_normals(order: float, mean: float, one: float, two: float) -> float:
    """Integrate p^α·q^(1−α) of N(0, one²) and N(mean, two²) around its own peak."""
    curvature = order / one**2 + (1 - order) / two**2
    peak = (1 - order) * mean / two**2 / curvature
    x = np.linspace(peak - 12 / math.sqrt(curvature), peak + 12 / math.sqrt(curvature), 20_001)
    log = order * stats.norm.logpdf(x, 0, one) + (1 - order) * stats.norm.logpdf(x, mean, two)
    return float(log.max() + math.log(integrate.trapezoid(np.exp(log - log.max()), x))) / (order - 1)


OPTIMUM = (0.0208888888888889, 8.79859348626928, 22.5)  # β, σ and order, the published choice for 100 MNIST queries


@pytest.mark.parametrize(("beta", "sigma", "order"), [OPTIMUM, (0.0329, 6.233, 14.0), (0.001, 100, 100)])
def test_the_smooth_release_curve_is_its_integral(beta: float, sigma: float, order: float) -> None:
    narrow = math.exp(-beta)
    true = quadrature_normals(order, narrow, sigma, narrow * sigma)
    assert exact_gaussian_divergence(order, narrow, sigma, narrow * sigma) == pytest.approx(true, rel=1e-9)
    assert accounting.smooth_release_rdp(beta, sigma, order)[0] == pytest.approx(true, rel=1e-9)


def forgetful_release(beta: float, sigma: float, orders: Any) -> np.ndarray:
    """Broken twin: a plain Gaussian, as if the noise itself told nothing."""
    return np.asarray(orders, dtype=float) / (2 * sigma**2)


@pytest.mark.parametrize(
    ("curve", "holds"),
    [(accounting.smooth_release_rdp, True), (accounting.published_smooth_release_rdp, False), (forgetful_release, False)],
)
def test_the_divergence_catches_curves_that_are_too_low(curve: Callable[..., Any], holds: bool) -> None:
    beta, sigma, order = OPTIMUM
    worst = worst_neighbours(order, beta, sigma, (-1.0, 1.0), (1.0,))
    assert bool(worst <= curve(beta, sigma, [order])[0] * (1 + 1e-9)) is holds


@given(**SMOOTH)
def test_the_published_curve_holds_only_far_from_its_end(beta: float, sigma: float, part: float) -> None:
    order = 1 + 0.2 * part / beta
    true = accounting.smooth_release_rdp(beta, sigma, order)[0]
    assert true <= accounting.published_smooth_release_rdp(beta, sigma, order)[0] * (1 + 1e-9)


@pytest.mark.parametrize("row", FACTS["gnss_rdp"], ids=lambda r: str(r["beta"]))
def test_the_published_smooth_release_curve_is_reproduced(row: dict[str, Any]) -> None:
    ours = accounting.published_smooth_release_rdp(row["beta"], row["sigma_ss"], row["order"])[0]
    assert ours == pytest.approx(float(row["rdp_mpmath"]), rel=1e-12)


def test_the_smooth_release_has_no_finite_price_where_the_integral_diverges() -> None:
    end = 1 / -math.expm1(-0.2)
    curve = accounting.smooth_release_rdp(0.1, 3.0, [2.0, end - 1e-6, end + 1e-6, 6.0])
    assert np.isfinite(curve).tolist() == [True, True, False, False]
    assert np.isfinite(accounting.published_smooth_release_rdp(0.1, 3.0, [4.999, 5.0])).tolist() == [True, False]
    assert exact_gaussian_divergence(end + 1e-6, 0.0, 1.0, math.exp(-0.1)) == math.inf


PLAIN_EVENTS = [
    Gaussian(1.0, 2.0),
    SummedGaussian(1.0, 2.0, 3),
    Laplace(1.0, 3.0),
    NoisyMax("gaussian", 40.0),
    NoisyMax("laplace", 20.0),
    NoisyMax("laplace", 0.5, 3),
    Threshold(150.0, 2),
    SparseVector(0.1, 0.4, 5),
    SmoothRelease(0.02, 8.0),
]
each = pytest.mark.parametrize("event", PLAIN_EVENTS, ids=str)


@each
def test_curves_do_not_fall_with_the_order(event: Event) -> None:
    curve = accounting.event_rdp(event, ORDERS)
    finite = curve[np.isfinite(curve)]
    assert curve.shape == ORDERS.shape
    assert (curve > 0).all()
    assert (np.diff(finite) >= -1e-12 * finite[:-1]).all()
    assert np.isinf(curve[len(finite) :]).all()  # infinite from some order on, if at all


def test_a_reservation_takes_its_delta_off_and_is_pure_then() -> None:
    event = Reserved(Sampled(Gaussian(1.0, 2.0), 0.1, "fixed", 1, 10), 5, 1.0, 4e-6)
    assert accounting.cost([(event, 1)], 1e-5).epsilon == 1.0
    assert accounting.cost([(event, 2)], 1e-5).epsilon == 2.0
    assert accounting.cost([(event, 3)], 1e-5).epsilon == math.inf  # 1.2e-5 is more than there is
    assert not accounting.admits([(event, 3)], 100.0, 1e-5)
    beside = accounting.cost([(event, 1), (Gaussian(1.0, 5.0), 1)], 1e-5).epsilon
    alone = accounting.cost([(Gaussian(1.0, 5.0), 1)], 6e-6).epsilon
    assert alone < beside <= 1.0 + 1.25 * alone


@given(noise=st.sampled_from(["gaussian", "laplace"]), scale=log_floats(0.2, 100), votes=st.integers(1, 4))
def test_votes_multiply_what_moves(noise: Any, scale: float, votes: int) -> None:
    one, several = NoisyMax(noise, scale), NoisyMax(noise, scale, votes)
    assert (accounting.event_rdp(several, ORDERS) >= votes * accounting.event_rdp(one, ORDERS) * (1 - 1e-9)).all()
    if noise == "gaussian":
        assert accounting.event_mu(several) == pytest.approx(votes * math.sqrt(2) / scale)
        assert accounting.event_pure(several) == math.inf
    else:
        assert accounting.event_mu(several) is None
        assert accounting.event_pure(several) == pytest.approx(2 * votes / scale)


def test_what_each_event_is() -> None:
    assert accounting.event_mu(Gaussian(3.0, 2.0)) == 1.5
    assert accounting.event_mu(SummedGaussian(3.0, 2.0, 5)) == 1.5
    assert accounting.event_mu(Threshold(4.0, 2)) == 0.5
    assert accounting.event_pure(Laplace(3.0, 2.0)) == 1.5
    assert accounting.event_pure(SparseVector(0.25, 0.5, 3)) == 0.75
    for event in (NonPrivate("x"), Sampled(Gaussian(1.0, 1.0), 0.1), SmoothRelease(0.1, 1.0)):
        assert accounting.event_mu(event) is None
        assert accounting.event_pure(event) == math.inf
    assert np.isinf(accounting.event_rdp(NonPrivate("x"), ORDERS)).all()
    np.testing.assert_allclose(accounting.event_rdp(NoisyMax("gaussian", 40.0), [2.0, 9.0]), [2 / 1600, 9 / 1600])
    np.testing.assert_allclose(accounting.event_rdp(Threshold(150.0), [2.0]), [2 / (2 * 150**2)])


@pytest.mark.parametrize("order", [2, np.int8(2), np.int64(2), 2.0, [2], np.array([2], dtype=np.uint8)], ids=repr)
def test_whole_orders_are_floats_in_time(order: Any) -> None:
    assert accounting.valid_orders(order).tolist() == [2.0]
    assert accounting.event_rdp(Gaussian(1.0, 0.01), order)[0] == pytest.approx(1e4)
    assert accounting.laplace_rdp(300.0, order)[0] == pytest.approx(accounting.laplace_rdp(300.0, 2.0)[0])


def test_whole_orders_do_not_overflow() -> None:
    orders = np.arange(2, 128, dtype=np.int8)
    curve = accounting.event_rdp(NoisyMax("gaussian", 1e-3), orders)
    np.testing.assert_allclose(curve, np.arange(2, 128) * 1e6, rtol=1e-12)
    assert accounting.rdp_to_epsilon(curve, orders, 1e-5)[0] > 0


# ── conversion ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(mu=log_floats(1e-3, 30), delta=deltas)
def test_the_conversion_is_an_upper_bound_close_to_the_exact_price(mu: float, delta: float) -> None:
    epsilon, order = accounting.rdp_to_epsilon(accounting.event_rdp(Gaussian(mu, 1.0), ORDERS), ORDERS, delta)
    exact = accounting.mu_epsilon(mu, delta)
    assert order in ORDERS
    assert exact <= epsilon * (1 + 1e-12) + 1e-12
    assert epsilon <= 1.5 * exact + 0.05


@given(mu=log_floats(1e-2, 10), delta=deltas)
def test_the_conversion_beats_the_classic_one(mu: float, delta: float) -> None:
    curve = accounting.event_rdp(Gaussian(mu, 1.0), ORDERS)
    classic = (curve + math.log(1 / delta) / (ORDERS - 1)).min()
    assert accounting.rdp_to_epsilon(curve, ORDERS, delta)[0] < classic


@pytest.mark.parametrize(("orders", "holds"), [(ORDERS, True), (ORDERS[ORDERS >= 2], False), (np.arange(2, 513), False)])
def test_orders_below_two_are_needed_for_large_prices(orders: Any, holds: bool) -> None:
    mu = 2 * math.sqrt(62) / 8 / 0.075  # the vector votes of paper 003, a record replaced
    epsilon, _ = accounting.rdp_to_epsilon(accounting.event_rdp(Gaussian(mu, 1.0), orders), orders, 1e-2)
    assert bool(epsilon < 1.05 * accounting.mu_epsilon(mu, 1e-2)) is holds


def test_the_conversion_skips_infinite_orders_and_never_goes_below_zero() -> None:
    assert accounting.rdp_to_epsilon([math.inf, 0.5], [2.0, 3.0], 1e-5)[1] == 3.0
    assert accounting.rdp_to_epsilon([math.inf], [2.0], 1e-5) == (math.inf, 2.0)
    assert accounting.rdp_to_epsilon([0.0], [1e6], 0.5)[0] == 0.0


# ── composition ───────────────────────────────────────────────────────────────────────────────────────────────────────


@given(sigma=log_floats(0.5, 500), count=st.integers(1, 10_000), delta=deltas)
def test_many_gaussians_are_one(sigma: float, count: int, delta: float) -> None:
    priced = accounting.cost([(Gaussian(1.0, sigma), count)], delta)
    assert priced.method == "exact Gaussian"
    assert priced.epsilon == pytest.approx(accounting.gaussian_epsilon(math.sqrt(count), sigma, delta), rel=1e-10, abs=1e-14)
    assert priced.mu == pytest.approx(math.sqrt(count) / sigma)
    parts = accounting.cost([(Gaussian(1.0, sigma), 1), (Gaussian(1.0, sigma), count - 1)], delta)
    assert parts.epsilon == pytest.approx(priced.epsilon, rel=1e-10, abs=1e-14)


def forgets_the_count(entries: Any, delta: float) -> Any:
    """Broken twin: prices every line of the book once."""
    return accounting.cost([(event, 1) for event, _ in entries], delta)


@each
@pytest.mark.parametrize(("price", "holds"), [(accounting.cost, True), (forgets_the_count, False)])
def test_a_hundred_cost_more_than_one(event: Event, price: Any, holds: bool) -> None:
    few = [price([(event, count)], 1e-5).epsilon for count in (1, 2, 10, 100, 1000)]
    assert all(low < high for low, high in itertools.pairwise(few)) is holds


@each
def test_a_line_of_ten_is_ten_lines_of_one(event: Event) -> None:
    ten, lines = accounting.cost([(event, 10)], 1e-5), accounting.cost([(event, 1)] * 10, 1e-5)
    assert ten.epsilon == pytest.approx(lines.epsilon, rel=1e-9)


def test_nothing_costs_nothing_and_looking_costs_everything() -> None:
    assert accounting.cost([], 1e-5).epsilon == 0.0
    assert accounting.cost([(Gaussian(1.0, 1.0), 0)], 1e-5).method == "nothing was released"
    looked = accounting.cost([(Gaussian(1.0, 1.0), 1), (NonPrivate("to see"), 1)], 1e-5)
    assert looked.epsilon == math.inf
    assert looked.mu == math.inf
    assert looked.method.startswith("no guarantee")


def test_pure_prices_add_up_until_renyi_is_better() -> None:
    few = accounting.cost([(Laplace(1.0, 10.0), 2), (SparseVector(0.1, 0.2, 1), 1)], 1e-5)
    assert few.method == "sum of pure ε"
    assert few.epsilon == pytest.approx(0.5)
    many = accounting.cost([(NoisyMax("laplace", 20.0), 1000)], 1e-5)
    assert many.method == "Rényi"
    assert many.order in ORDERS
    assert many.epsilon < 0.15 * 1000 * 0.1
    assert many.mu is None  # no one number tells the whole curve


def test_an_infinite_price_stays_infinite() -> None:
    assert accounting.cost([(SmoothRelease(5.0, 1.0), 1)], 1e-5).epsilon == math.inf
    assert accounting.cost([(Laplace(1e300, 1e-10), 1)], 1e-5).epsilon == math.inf


SIZES = log_floats(0.5, 60)
MIXED = st.lists(
    st.tuples(
        st.one_of(
            st.builds(Gaussian, st.just(1.0), SIZES),
            st.builds(Laplace, st.just(1.0), SIZES),
            st.builds(NoisyMax, st.sampled_from(["gaussian", "laplace"]), SIZES, st.integers(1, 2)),
            st.builds(Threshold, SIZES),
            st.builds(SparseVector, log_floats(1e-3, 1), log_floats(1e-3, 1), st.integers(1, 5)),
            st.builds(SmoothRelease, log_floats(1e-3, 0.05), SIZES),
        ),
        st.integers(0, 60),
    ),
    min_size=1,
    max_size=5,
)
GAUSSIANS = st.lists(st.tuples(st.builds(Gaussian, st.just(1.0), SIZES), st.integers(0, 60)), min_size=1, max_size=4)
PURE = st.lists(st.tuples(st.builds(Laplace, st.just(1.0), SIZES), st.integers(0, 9)), min_size=1, max_size=4)


@settings(max_examples=150)
@given(entries=st.one_of(MIXED, GAUSSIANS, PURE), delta=log_floats(1e-12, 1e-2), factor=log_floats(0.3, 4))
def test_the_filter_admits_nothing_over_budget(entries: list[tuple[Event, int]], delta: float, factor: float) -> None:
    price = accounting.cost(entries, delta).epsilon
    budget = min(max(price, 1e-3), 1e3) * factor
    if accounting.admits(entries, budget, delta):
        assert price <= budget * (1 + 1e-9)
        for k in range(len(entries)):  # and what fits still fits with less in it
            assert accounting.admits(entries[:k] + entries[k + 1 :], budget, delta)
    else:  # what does not fit fits no better into less
        assert not accounting.admits(entries, budget / 2, delta)
        assert not accounting.admits([*entries, (Laplace(1.0, 50.0), 1)], budget, delta)


def test_the_filter_says_yes_and_no_where_it_should() -> None:
    sigma = accounting.gaussian_sigma(1.0, 2.0, 1e-5) * math.sqrt(50)
    assert accounting.admits([(Gaussian(1.0, sigma), 50)], 2.0, 1e-5)  # a plan passes its own rounding
    assert not accounting.admits([(Gaussian(1.0, sigma), 51)], 2.0, 1e-5)
    assert accounting.admits([(Laplace(1.0, 10.0), 20)], 2.0, 1e-5)
    assert not accounting.admits([(Laplace(1.0, 10.0), 21)], 2.0, 1e-5)
    mixed = [(NoisyMax("gaussian", 40.0), 300), (NoisyMax("laplace", 40.0), 300)]
    assert accounting.admits(mixed, 6.0, 1e-5)
    assert not accounting.admits(mixed, 3.0, 1e-5)
    assert not accounting.admits([(NonPrivate("to see"), 1)], 1e300, 0.5)
    assert accounting.admits([], 1e-9, 1e-15)
    assert accounting.admits([(Gaussian(1.0, 1.0), 0), (NonPrivate("unused"), 0)], 1e-3, 1e-9)


def test_sampled_events_pass_the_filter_by_their_price() -> None:
    entries: list[tuple[Event, int]] = [(Sampled(Gaussian(1.0, 8.0), 0.2), 9)]
    price = accounting.cost(entries, 1e-5).epsilon
    assert accounting.admits(entries, price * 1.001, 1e-5)
    assert not accounting.admits(entries, price * 0.999, 1e-5)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (8.0, 1e-5), (100.0, 1e-3)])
def test_the_filters_order_is_the_best_for_small_gaussians(epsilon: float, delta: float) -> None:
    order = accounting.filter_order(epsilon, delta)
    room = [(epsilon - math.log(1 / delta) / (alpha - 1)) / alpha for alpha in ORDERS]
    assert room[int(np.flatnonzero(order == ORDERS)[0])] == max(room) > 0


# ── sampled events ────────────────────────────────────────────────────────────────────────────────────────────────────


SAMPLED = FACTS["subsampled_gaussian"]


@functools.cache
def sampled_epsilon(rate: float, sigma: float, steps: int, delta: float) -> float:
    priced = accounting.cost([(Sampled(Gaussian(1.0, sigma), rate), steps)], delta)
    assert priced.method == "privacy loss distributions"
    return priced.epsilon


@pytest.mark.parametrize("row", SAMPLED["rows"], ids=lambda r: f"{r['sampling_prob']:.3f} {r['noise_multiplier']}")
def test_poisson_samples_match_the_published_rows(row: dict[str, Any]) -> None:
    epsilon = sampled_epsilon(row["sampling_prob"], row["noise_multiplier"], row["steps"], row["delta"])
    assert epsilon == pytest.approx(row["dp_accounting_pld"], rel=1e-8)  # the row has ten digits
    assert epsilon < row["opacus_1_6_0_rdp"]


@pytest.mark.parametrize("row", SAMPLED["single_step_rdp_mpmath"], ids=lambda r: f"{r['noise_multiplier']} {r['order']}")
def test_poisson_samples_stay_below_their_exact_renyi_price(row: dict[str, Any]) -> None:
    bound, _ = accounting.rdp_to_epsilon([20 * float(row["rdp"])], [row["order"]], 1e-5)
    assert 0 < sampled_epsilon(row["sampling_prob"], row["noise_multiplier"], 20, 1e-5) <= bound


@pytest.mark.parametrize("event", [Gaussian(2.0, 4.0), Laplace(1.0, 4.0)], ids=str)
@pytest.mark.parametrize("sampler", ["poisson", "fixed"])
def test_a_sample_of_everybody_is_no_sample(event: Any, sampler: Any) -> None:
    whole = Sampled(event, 1.0, sampler, *((10, 10) if sampler == "fixed" else ()))
    sampled, plain = accounting.cost([(whole, 5)], 1e-5), accounting.cost([(event, 5)], 1e-5)
    assert sampled.epsilon <= plain.epsilon * (1 + 1e-6)
    assert sampled.epsilon == pytest.approx(plain.epsilon, rel=1e-6)


def exact_fixed_size_delta(sensitivity: float, sigma: float, rate: float, epsilon: float) -> float:
    """δ(ε) of one draw when only the replaced unit counts for anything: two mixtures of two normals, half Δ each way."""
    x = np.linspace(-12 * sigma - sensitivity, 12 * sigma + sensitivity, 40_001)
    one = rate * stats.norm.pdf(x, sensitivity / 2, sigma) + (1 - rate) * stats.norm.pdf(x, 0, sigma)
    two = rate * stats.norm.pdf(x, -sensitivity / 2, sigma) + (1 - rate) * stats.norm.pdf(x, 0, sigma)
    return float(integrate.trapezoid(np.maximum(one - math.exp(epsilon) * two, 0), x))


@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 1.0), (0.5, 2.0), (0.25, 0.7)])
def test_a_fixed_size_sample_costs_at_least_its_exact_price(rate: float, sigma: float) -> None:
    event = Sampled(Gaussian(1.0, sigma), rate, "fixed", round(rate * 100), 100)
    for delta in (1e-2, 1e-4, 1e-6):
        claimed = accounting.cost([(event, 1)], delta).epsilon
        assert exact_fixed_size_delta(1.0, sigma, rate, claimed) <= delta
        assert claimed < accounting.gaussian_epsilon(1.0, sigma, delta)  # and sampling is worth something


def test_sampled_events_compose_with_all_others() -> None:
    fixed, poisson = Sampled(Gaussian(1.0, 2.0), 0.1, "fixed", 10, 100), Sampled(Laplace(1.0, 2.0), 0.05)
    others: list[tuple[Event, int]] = [(Gaussian(1.0, 8.0), 2), (NoisyMax("laplace", 40.0), 3), (SparseVector(0.05, 0.05, 1), 1)]
    parts = [accounting.cost([entry], 1e-6).epsilon for entry in [(fixed, 4), (poisson, 5), *others]]
    together = accounting.cost([(fixed, 4), (poisson, 5), *others], 1e-5).epsilon
    assert max(parts) < together < sum(parts)


def test_a_smooth_release_has_no_loss_distribution() -> None:
    with pytest.raises(RecipeError, match=r"`event` must be one that composes with sampled events\. Got 'SmoothRelease'"):
        accounting.cost([(Sampled(Gaussian(1.0, 2.0), 0.1), 1), (SmoothRelease(0.01, 8.0), 1)], 1e-5)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────────

NOT_POSITIVE = [0, -1.0, math.nan, math.inf, -math.inf, [], "one", None, 1j, [1.0, math.nan], [[1.0], [-1.0]]]
NOT_PROBABILITY = [0, 1, -0.1, 1.5, math.nan, math.inf, [], "half", None, [0.5, 1.0]]
NOT_ORDERS = [1, 1.0, 0, -2, math.nan, math.inf, [], [[2.0, 3.0]], "two", None, [2.0, 1.0], [2.0, math.nan]]
LINE = [(Laplace(1.0, 1.0), 1)]

BAD: list[tuple[str, Callable[[Any], Any], list[Any]]] = [
    ("sensitivity", lambda v: accounting.gaussian_delta(v, 1.0, 1.0), NOT_POSITIVE),
    ("sigma", lambda v: accounting.gaussian_delta(1.0, v, 1.0), NOT_POSITIVE),
    ("epsilon", lambda v: accounting.gaussian_delta(1.0, 1.0, v), NOT_POSITIVE[1:]),
    ("sensitivity", lambda v: accounting.gaussian_epsilon(v, 1.0, 1e-5), NOT_POSITIVE),
    ("sigma", lambda v: accounting.gaussian_epsilon(1.0, v, 1e-5), NOT_POSITIVE),
    ("delta", lambda v: accounting.gaussian_epsilon(1.0, 1.0, v), NOT_PROBABILITY),
    ("sensitivity", lambda v: accounting.gaussian_sigma(v, 1.0, 1e-5), NOT_POSITIVE),
    ("epsilon", lambda v: accounting.gaussian_sigma(1.0, v, 1e-5), NOT_POSITIVE),
    ("delta", lambda v: accounting.gaussian_sigma(1.0, 1.0, v), NOT_PROBABILITY),
    ("mu", lambda v: accounting.mu_epsilon(v, 1e-5), NOT_POSITIVE),
    ("mu", lambda v: accounting.implied_tpr(v, 1e-3), [-1.0, math.nan, [], "one", None]),
    ("fpr", lambda v: accounting.implied_tpr(1.0, v), NOT_PROBABILITY),
    ("epsilon", lambda v: accounting.tpr_bound(v, 1e-5, 1e-3), [-1.0, math.nan, [], "one", None]),
    ("delta", lambda v: accounting.tpr_bound(1.0, v, 1e-3), [-1.0, math.nan, [], "one", None]),
    ("fpr", lambda v: accounting.tpr_bound(1.0, 1e-5, v), NOT_PROBABILITY),
    ("orders", lambda v: accounting.rdp_to_epsilon([1.0], v, 1e-5), NOT_ORDERS),
    ("rdp", lambda v: accounting.rdp_to_epsilon(v, [2.0], 1e-5), [-1.0, math.nan, [], [1.0, 2.0], [[1.0]]]),
    ("delta", lambda v: accounting.rdp_to_epsilon([1.0], [2.0], v), NOT_PROBABILITY),
    ("epsilon", lambda v: accounting.laplace_rdp(v, 2.0), [-1.0, math.nan, [], "one"]),
    ("epsilon", lambda v: accounting.pure_rdp(v, 2.0), [-1.0, math.nan, [], "one"]),
    ("orders", lambda v: accounting.laplace_rdp(1.0, v), NOT_ORDERS),
    ("orders", lambda v: accounting.pure_rdp(1.0, v), NOT_ORDERS),
    ("orders", lambda v: accounting.event_rdp(Gaussian(1.0, 1.0), v), NOT_ORDERS),
    ("beta", lambda v: accounting.smooth_release_rdp(v, 1.0, 2.0), NOT_POSITIVE),
    ("sigma", lambda v: accounting.smooth_release_rdp(0.1, v, 2.0), NOT_POSITIVE),
    ("orders", lambda v: accounting.smooth_release_rdp(0.1, 1.0, v), NOT_ORDERS),
    ("sigma", lambda v: accounting.published_smooth_release_rdp(0.1, v, 2.0), NOT_POSITIVE),
    ("delta", lambda v: accounting.cost(LINE, v), NOT_PROBABILITY),
    ("count", lambda v: accounting.cost([(Laplace(1.0, 1.0), v)], 1e-5), [-1, 1.5, math.nan, "2"]),
    ("epsilon", lambda v: accounting.admits(LINE, v, 1e-5), NOT_POSITIVE),
    ("delta", lambda v: accounting.admits(LINE, 1.0, v), NOT_PROBABILITY),
    ("count", lambda v: accounting.admits([(Gaussian(1.0, 1.0), v)], 9.0, 1e-5), [-1, 0.5, math.nan, "2"]),
]


@pytest.mark.parametrize(("name", "call", "value"), [(name, call, value) for name, call, values in BAD for value in values])
def test_bad_input_is_refused_by_name(name: str, call: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(RecipeError, match=rf"^`{name}` must be .*\. Got .* instead\.$"):
        call(value)


SAMPLED = Sampled(Gaussian(1.0, 2.0), 0.01)
FIXED = ("fixed", 10, 1000)
# The price of each took up to 15 GiB, or minutes, or ended in an OverflowError, before it was compared with the budget.
ENDLESS = {
    "a Laplace scale of 1e-9, sampled": [(Sampled(Laplace(1.0, 1e-9), 0.01), 1)],
    "the same, of a fixed size": [(Sampled(Laplace(1.0, 1e-9), 0.01, *FIXED), 1)],
    "the same, beside": [(SAMPLED, 1), (Laplace(1.0, 1e-9), 1)],
    "a Gaussian, sampled": [(Sampled(Gaussian(1.0, 1e-9), 0.01), 1)],
    "a Gaussian of a fixed size": [(Sampled(Gaussian(1.0, 1e-9), 0.01, *FIXED), 1)],
    "a Gaussian, beside": [(SAMPLED, 1), (Gaussian(1.0, 1e-9), 3)],
    "a million answers": [(SAMPLED, 1), (NoisyMax("laplace", 20.0), 10**6)],
    "ten million answers": [(SAMPLED, 1), (NoisyMax("laplace", 2000.0), 10**7)],
    "a billion answers that cost little": [(SAMPLED, 1), (NoisyMax("laplace", 2e6), 10**9)],
    "as many answers as there can be": [(SAMPLED, 1), (NoisyMax("laplace", 2e12), 2**53)],
    "a billion rounds": [(Sampled(Gaussian(1.0, 2.0), 0.5), 10**9)],
    "a costly test of positions": [(SAMPLED, 1), (SparseVector(1e5, 1e5, 3), 100)],
    "no noise to speak of": [(SAMPLED, 1), (Laplace(1e308, 1e-308), 1)],
}


@pytest.mark.parametrize("pairs", ENDLESS.values(), ids=ENDLESS)
def test_what_cannot_fit_is_refused_without_a_grid(pairs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "_loss_distribution", lambda *_: pytest.fail("it was priced on a grid"))
    assert not accounting.admits(pairs, 8.0, 1e-5)
    assert accounting.cost(pairs, 1e-5).epsilon == math.inf  # never too little


LISTS = [
    [(SAMPLED, 500)],
    [(Sampled(Gaussian(1.0, 0.8), 0.3), 2), (NoisyMax("gaussian", 5.0), 4)],
    [(Sampled(Laplace(1.0, 0.4), 0.2), 3)],
    [(Sampled(Laplace(1.0, 0.4), 0.01, *FIXED), 3), (Laplace(1.0, 0.5), 1)],
    [(Sampled(Gaussian(1.0, 3.0), 0.01, *FIXED), 3), (NoisyMax("laplace", 4.0), 40), (Threshold(3.0), 5)],
    [(Sampled(Gaussian(1.0, 3.0), 1e-6), 1), (Laplace(1.0, 1.0), 1)],  # nearly one randomised response: the bound is its price
]


@pytest.mark.parametrize("pairs", LISTS)
def test_the_bound_without_a_grid_never_refuses_what_the_price_allows(pairs: list[Any]) -> None:
    for delta in (1e-9, 1e-5, 1e-2):
        price = accounting.cost(pairs, delta).epsilon
        assert not accounting.beyond(pairs, price, delta)
        assert not accounting.beyond(pairs, price * 1.5, delta)
        assert accounting.beyond([(event, 10**7) for event, _ in pairs], price / 10, delta) or price < 1e-3


@pytest.mark.parametrize("sigma", [1e300, 1e308])
def test_more_noise_than_floats_hold_is_one_line_or_a_price(sigma: float) -> None:
    assert accounting.cost([(SmoothRelease(0.1, sigma), 1)], 1e-5).epsilon < 3.0
    assert accounting.cost([(Gaussian(1.0, sigma), 1)], 1e-5).epsilon < 1.0
    with pytest.raises(RecipeError, match="`event` must be one that dp-accounting can price"):
        accounting.cost([(Sampled(Gaussian(1.0, sigma), 0.5), 1)], 1e-5)


def test_a_curve_is_not_quoted_because_it_may_be_private() -> None:
    with pytest.raises(RecipeError) as caught:
        accounting.rdp_to_epsilon([0.7770123, math.nan], [2.0, 3.0], 1e-5)
    assert "7770123" not in str(caught.value)


def test_the_grid_of_orders_cannot_be_changed() -> None:
    assert ORDERS[0] < 1.01
    assert (np.diff(ORDERS) > 0).all()
    with pytest.raises(ValueError, match="read-only"):
        ORDERS[0] = 2.0
