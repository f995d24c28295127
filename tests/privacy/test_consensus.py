"""The data-dependent prices are true: checked against high precision, against the exact mechanism, and vote by vote."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import integrate, special, stats

from tutelage.privacy import consensus
from tutelage.privacy.accounting import ORDERS
from tutelage.privacy.errors import DataError, RecipeError

FACTS = json.loads((Path(__file__).parents[1] / "fixtures" / "accounting.json").read_text(encoding="utf-8"))
NEAR = {"rel": 1e-9, "abs": 1e-14}


def votes_of(row: dict[str, Any]) -> list[int]:
    if row["counts"]:
        return list(row["counts"])
    assert row["counts_rule"] == "[5000]+[0]*149"
    return [5000] + [0] * 149


def log_floats(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


counts = hnp.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(2, 5)), elements=st.integers(0, 250))
sigmas = log_floats(0.5, 200)


# ── the fixtures ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", FACTS["unit_gnmax"], ids=lambda r: f"{r['name']} {r['sigma']}")
def test_gnmax_matches_high_precision(row: dict[str, Any]) -> None:
    votes, orders = votes_of(row), [float(order) for order in row["rdp"]]
    assert consensus.gnmax_log_q(votes, row["sigma"])[0] == pytest.approx(float(row["logq"]), rel=1e-12)
    curve = consensus.gnmax_rdp(votes, row["sigma"], orders)[0]
    for ours, fact in zip(curve, row["rdp"].values(), strict=True):
        assert ours == pytest.approx(float(fact["mpmath"]), **NEAR)


def test_prices_near_zero_keep_their_digits() -> None:
    tiny = [(row, order, float(fact["mpmath"])) for row in FACTS["unit_gnmax"] for order, fact in row["rdp"].items()]
    tiny = [(row, order, true) for row, order, true in tiny if 0 < true < 1e-14]
    assert len(tiny) > 20
    for row, order, true in tiny:
        assert consensus.gnmax_rdp(votes_of(row), row["sigma"], float(order))[0, 0] == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize("row", FACTS["unit_lnmax"], ids=lambda r: f"{r['name']} {r['gamma']}")
def test_lnmax_matches_high_precision(row: dict[str, Any]) -> None:
    votes, moments = votes_of(row), [float(moment) for moment in row["logmgf"]]
    assert consensus.lnmax_log_q(votes, row["gamma"])[0] == pytest.approx(float(row["logq"]), rel=1e-12)
    bound = consensus.lnmax_log_moments(votes, row["gamma"], moments)[0]
    for ours, fact in zip(bound, row["logmgf"].values(), strict=True):
        assert ours == pytest.approx(float(fact["mpmath"]), **NEAR)


@pytest.mark.parametrize("row", FACTS["unit_threshold"], ids=lambda r: f"{r['max_count']} {r['threshold']} {r['sigma1']}")
def test_the_threshold_test_matches_high_precision(row: dict[str, Any]) -> None:
    answered = consensus.log_answered(row["max_count"], row["threshold"], row["sigma1"])
    assert answered == pytest.approx(float(row["log_pr_answered"]), rel=1e-12)
    curve = consensus.threshold_rdp(row["max_count"], row["threshold"], row["sigma1"], [float(order) for order in row["rdp"]])[0]
    for ours, fact in zip(curve, row["rdp"].values(), strict=True):
        assert ours == pytest.approx(float(fact["mpmath"]), **NEAR)


@pytest.mark.parametrize("row", FACTS["smooth_sensitivity_2018"], ids=lambda r: f"{r['sigma2']} {r['order']}")
def test_smooth_sensitivity_matches_the_published_scripts(row: dict[str, Any]) -> None:
    sigma, order, teachers, first = row["sigma2"], row["order"], row["num_teachers"], row["first_query"]
    assert consensus.gnmax_log_q0(sigma, order) == pytest.approx(row["logq0"], **NEAR)
    local = consensus.gnmax_local_sensitivity(first["counts"], sigma, order, teachers)
    assert local.shape == (1, teachers)
    for distance, fact in first["local_sens_at_d"].items():
        assert local[0, int(distance)] == pytest.approx(fact, **NEAR)
    assert local.max() == pytest.approx(row["plateau"], **NEAR)
    smooth = consensus.gnmax_smooth_sensitivity(first["counts"], sigma, order, 0.4 / order, teachers)
    assert smooth == pytest.approx(first["ss_beta_0p4_over_order"], **NEAR)
    assert list(consensus.gnmax_smooth_conditions(sigma, len(first["counts"]), order)) == row["conditions_C5_C6"]


@pytest.mark.parametrize("row", FACTS["smooth_sensitivity_2018"], ids=lambda r: f"{r['sigma2']} {r['order']}")
def test_the_plateau_begins_one_vote_below_its_end(row: dict[str, Any]) -> None:
    top = np.array([row["logq0"]])
    assert consensus._neighbour_log_q(top, row["sigma2"], 10, -1)[0] == pytest.approx(row["logq1"], **NEAR)


# ── the exact mechanism, by integration ───────────────────────────────────────────────────────────────────────────────


def all_votes(teachers: int, classes: int) -> Iterator[tuple[int, ...]]:
    if classes == 1:
        yield (teachers,)
        return
    for first in range(teachers + 1):
        for rest in all_votes(teachers - first, classes - 1):
            yield (first, *rest)


class Neighbourhood:
    """All ways in which `teachers` can vote for `classes`, and every pair that differs in one vote."""

    def __init__(self, teachers: int, classes: int) -> None:
        self.teachers, self.classes = teachers, classes
        self.votes = np.asarray(list(all_votes(teachers, classes)), dtype=np.float64)
        where = {tuple(row): k for k, row in enumerate(self.votes)}
        pairs = []
        for k, row in enumerate(self.votes):
            for source in range(classes):
                for target in range(classes):
                    if source != target and row[source] > 0:
                        moved = row.copy()
                        moved[source] -= 1
                        moved[target] += 1
                        pairs.append((k, where[tuple(moved)]))
        self.one, self.two = np.asarray(pairs).T


TWELVE = Neighbourhood(12, 3)
PAIR = Neighbourhood(20, 2)


def test_the_neighbourhood_is_complete() -> None:
    assert len(TWELVE.votes) == math.comb(14, 2)
    assert (np.abs(TWELVE.votes[TWELVE.one] - TWELVE.votes[TWELVE.two]).sum(axis=1) == 2).all()
    assert set(zip(TWELVE.one, TWELVE.two, strict=True)) == set(zip(TWELVE.two, TWELVE.one, strict=True))


def winner_probabilities(votes: np.ndarray, noise: Any, scale: float) -> np.ndarray:
    """Pr[class wins] with independent noise on every count: ∫ f(x − n_i)·Π F(x − n_j) dx, on a grid that meets every kink."""
    steps = 64
    reach = math.ceil(16 * max(scale, 1.0))
    x = np.arange(-reach * steps, (int(votes.max()) + reach) * steps + 1) / steps
    density = noise.pdf(x[None, :, None], votes[:, None, :], scale)  # (votes, x, classes)
    below = noise.cdf(x[None, :, None], votes[:, None, :], scale)
    wins = [density[:, :, k] * np.prod(np.delete(below, k, axis=2), axis=2) for k in range(votes.shape[1])]
    return np.stack([integrate.simpson(win, x=x, axis=1) for win in wins], axis=1)


def divergence(one: np.ndarray, two: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Exact Rényi divergences of paired output distributions: (pairs, orders)."""
    log_one, log_two = np.log(one)[:, :, None], np.log(two)[:, :, None]
    return special.logsumexp(orders * log_one + (1 - orders) * log_two, axis=1) / (orders - 1)


SMALL = Neighbourhood(6, 3)
FEW = np.array([1.5, 2.0, 3.0, 5.0, 9.0])


@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.0, 4.0])
def test_gnmax_price_is_above_the_exact_divergence(sigma: float) -> None:
    chances = winner_probabilities(SMALL.votes, stats.norm, sigma)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-8)
    lost = 1 - chances[np.arange(len(chances)), SMALL.votes.argmax(axis=1)]
    assert (lost <= np.exp(consensus.gnmax_log_q(SMALL.votes, sigma)) + 1e-8).all()
    exact = divergence(chances[SMALL.one], chances[SMALL.two], FEW)
    claimed = consensus.gnmax_rdp(SMALL.votes, sigma, FEW)[SMALL.one]
    assert (exact <= claimed * (1 + 1e-6) + 1e-9).all()
    if sigma <= 1:  # and the claim is worth making: agreement is cheaper than no agreement
        assert (claimed < 0.5 * FEW / sigma**2).any()


@pytest.mark.parametrize("gamma", [0.3, 0.7, 1.5])
def test_lnmax_price_is_above_the_exact_moment(gamma: float) -> None:
    chances = winner_probabilities(SMALL.votes, stats.laplace, 1 / gamma)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-5)
    lost = 1 - chances[np.arange(len(chances)), SMALL.votes.argmax(axis=1)]
    assert (lost <= np.exp(consensus.lnmax_log_q(SMALL.votes, gamma)) + 1e-5).all()
    moments = FEW - 1
    exact = moments * divergence(chances[SMALL.one], chances[SMALL.two], FEW)
    claimed = consensus.lnmax_log_moments(SMALL.votes, gamma, moments)[SMALL.one]
    assert (exact <= claimed * (1 + 1e-4) + 1e-5).all()


@pytest.mark.parametrize(("threshold", "sigma"), [(7.0, 0.8), (7.5, 2.0), (12.0, 3.0)])
def test_threshold_price_is_above_the_exact_divergence(threshold: float, sigma: float) -> None:
    top = np.arange(13)
    yes = np.exp(consensus.log_answered(top, threshold, sigma))
    outcomes = np.stack([yes, special.ndtr((threshold - top) / sigma)], axis=1)
    claimed = consensus.threshold_rdp(top, threshold, sigma, FEW)
    for step in (1, -1):
        here = top[1:-1]
        exact = divergence(outcomes[here], outcomes[here + step], FEW)
        assert (exact <= claimed[here] * (1 + 1e-9) + 1e-12).all()


def lnmax_up_to_half(votes: Any, gamma: float, moments: Any) -> np.ndarray:
    """Broken twin: Theorem 3 for every q < 1/2, as the widespread scripts have it."""
    log_q = consensus.lnmax_log_q(votes, gamma)
    order = np.asarray(moments, dtype=np.float64)
    result = np.broadcast_to(np.minimum(2 * gamma**2 * order * (order + 1), 2 * gamma * order), (len(log_q), len(order))).copy()
    for k, q in enumerate(np.exp(log_q)):
        if q < 0.5 and q * math.exp(2 * gamma) < 1:
            ratio = (1 - q) / (1 - math.exp(2 * gamma) * q)
            result[k] = np.log((1 - q) * ratio**order + q * np.exp(2 * gamma * order))
    return result


@pytest.mark.parametrize(("moments_of", "holds"), [(consensus.lnmax_log_moments, True), (lnmax_up_to_half, False)])
def test_lnmax_is_plain_where_theorem_3_does_not_hold(moments_of: Callable[..., np.ndarray], holds: bool) -> None:
    moments = np.array([1.0, 2.0, 8.0])
    for gamma in (0.2, 0.5):
        votes = np.asarray([(126, 126 - gap) for gap in range(12)])
        q = np.exp(consensus.lnmax_log_q(votes, gamma))
        outside = (q > 1 / (math.exp(2 * gamma) + 1)) & (q < 0.5)
        plain = np.minimum(2 * gamma**2 * moments * (moments + 1), 2 * gamma * moments)
        assert outside.any()
        assert bool(np.allclose(moments_of(votes, gamma, moments)[outside], plain, rtol=1e-12)) is holds


@pytest.mark.parametrize(("moments_of", "holds"), [(consensus.lnmax_log_moments, True), (lnmax_up_to_half, False)])
def test_the_fixtures_catch_theorem_3_out_of_range(moments_of: Callable[..., np.ndarray], holds: bool) -> None:
    rows = [row for row in FACTS["unit_lnmax"] if row["name"] == "126_124"]
    same = [
        moments_of([row["counts"]], row["gamma"], [float(moment)])[0, 0] == pytest.approx(float(fact["mpmath"]), rel=1e-6)
        for row in rows
        for moment, fact in row["logmgf"].items()
    ]
    assert all(same) is holds


# ── properties ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(votes=counts, sigma=sigmas)
def test_gnmax_curves_rise_and_stay_below_the_plain_price(votes: np.ndarray, sigma: float) -> None:
    curve = consensus.gnmax_rdp(votes, sigma, ORDERS)
    plain = ORDERS / sigma**2
    assert curve.shape == (len(votes), len(ORDERS))
    assert (curve >= 0).all()
    assert (curve <= plain * (1 + 1e-12)).all()
    assert (np.diff(curve, axis=1) >= -1e-9 * curve[:, 1:] - 1e-300).all()


@given(votes=counts, gamma=log_floats(1e-3, 3))
def test_lnmax_moments_rise_and_stay_below_the_plain_price(votes: np.ndarray, gamma: float) -> None:
    moments = np.arange(1, 33)
    bound = consensus.lnmax_log_moments(votes, gamma, moments)
    assert (bound >= 0).all()
    assert (bound <= np.minimum(2 * gamma**2 * moments * (moments + 1), 2 * gamma * moments) * (1 + 1e-12)).all()
    assert (np.diff(bound / moments, axis=1) >= -1e-9 * bound[:, 1:] - 1e-15).all()


@given(top=st.lists(st.integers(0, 250), min_size=1, max_size=8), threshold=st.floats(0, 300), sigma=sigmas)
def test_threshold_curves_rise_and_stay_below_the_plain_price(top: list[int], threshold: float, sigma: float) -> None:
    curve = consensus.threshold_rdp(top, threshold, sigma, ORDERS)
    assert curve.shape == (len(top), len(ORDERS))
    assert (curve >= 0).all()
    assert (curve <= ORDERS / (2 * sigma**2) * (1 + 1e-12)).all()
    assert (np.diff(curve, axis=1) >= -1e-9 * curve[:, 1:] - 1e-300).all()


@given(votes=counts, sigma=sigmas, seed=st.integers(0, 99))
def test_classes_and_queries_may_stand_in_any_order(votes: np.ndarray, sigma: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.permutation(len(votes))
    shuffled = generator.permuted(votes, axis=1)[rows]
    curve = consensus.gnmax_rdp(votes, sigma, [1.5, 4.0, 30.0])
    np.testing.assert_allclose(consensus.gnmax_rdp(shuffled, sigma, [1.5, 4.0, 30.0]), curve[rows], rtol=1e-9, atol=1e-300)
    local = consensus.gnmax_local_sensitivity(votes, 40.0, 20.0, 30)
    np.testing.assert_allclose(consensus.gnmax_local_sensitivity(shuffled, 40.0, 20.0, 30), local[rows], rtol=1e-9, atol=1e-300)


@given(sigma=log_floats(1, 100), lead=st.integers(1, 240), order=log_floats(1.1, 60))
def test_more_agreement_never_costs_more(sigma: float, lead: int, order: float) -> None:
    votes = [(250 - loss, loss) for loss in range(125)]
    curve = consensus.gnmax_rdp(votes, sigma, order)[:, 0]
    assert (np.diff(curve) >= -1e-12 * curve[1:]).all()
    assert consensus.gnmax_log_q([lead, 0], sigma)[0] <= consensus.gnmax_log_q([lead - 1, 0], sigma)[0]


def test_large_tables_are_looked_up_and_agree_with_single_rows() -> None:
    generator = np.random.default_rng(5)
    votes = generator.multinomial(250, [0.9, 0.05, 0.03, 0.02], size=1500)  # many enough for the table of gaps
    pick = generator.choice(1500, 20, replace=False)
    np.testing.assert_allclose(consensus.gnmax_log_q(votes, 20.0)[pick], [consensus.gnmax_log_q(votes[k], 20.0)[0] for k in pick])
    np.testing.assert_allclose(consensus.lnmax_log_q(votes, 0.1)[pick], [consensus.lnmax_log_q(votes[k], 0.1)[0] for k in pick])
    np.testing.assert_allclose(
        consensus.gnmax_rdp(votes, 20.0, ORDERS)[pick],
        np.vstack([consensus.gnmax_rdp(votes[k], 20.0, ORDERS) for k in pick]),
        rtol=1e-10,
    )
    halves = votes[:1200] / 2 + 0.25  # not whole: no table, the same numbers
    np.testing.assert_allclose(consensus.gnmax_log_q(halves, 10.0), consensus.gnmax_log_q(votes[:1200], 20.0), rtol=1e-9)
    far = votes * 10_000.0  # a table of a million gaps would be no help
    assert np.isfinite(consensus.gnmax_log_q(far, 20.0)).all()


def test_nothing_underflows_or_overflows() -> None:
    votes = [[250, 0], [5000, 0], [10**6, 0], [10**300, 0], [125, 125], [0, 0]]
    for sigma in (1e-3, 1.0, 1e3):
        log_q = consensus.gnmax_log_q(votes, sigma)
        curve = consensus.gnmax_rdp(votes, sigma, ORDERS)
        assert np.isfinite(log_q).all()
        assert (log_q < 0).all()
        assert np.isfinite(curve).all()
    for gamma in (1e-3, 1.0, 1e4):
        assert np.isfinite(consensus.lnmax_log_moments(votes, gamma, [1, 8, 500])).all()
    assert np.isfinite(consensus.threshold_rdp([0, 250, 1e300], 200.0, 1e-3, ORDERS)).all()


WHOLE = [np.arange(2, 128, dtype=np.int8), np.arange(2, 128), list(range(2, 128))]


@pytest.mark.parametrize("orders", WHOLE, ids=["int8", "int64", "list"])
def test_whole_orders_do_not_overflow(orders: Any) -> None:
    floats = np.arange(2, 128, dtype=np.float64)
    votes = [[200, 50, 0], [126, 124, 0]]
    for price in (
        lambda orders: consensus.gnmax_rdp(votes, 20.0, orders),
        lambda orders: consensus.threshold_rdp([200], 150.0, 20.0, orders),
        lambda orders: consensus.lnmax_log_moments(votes, 0.1, orders),
    ):
        np.testing.assert_array_equal(price(orders), price(floats))


def integer_orders(votes: Any, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Broken twin: the plain price in the orders' own type."""
    with np.errstate(over="ignore"):
        return (orders * np.int8(1 / sigma**2 * 2)) / 2


@pytest.mark.parametrize(("curve_of", "holds"), [(consensus.gnmax_rdp, True), (integer_orders, False)])
def test_the_sign_catches_orders_that_overflow(curve_of: Callable[..., Any], holds: bool) -> None:
    curve = curve_of([[125, 125]], 0.5, np.arange(2, 128, dtype=np.int8))
    assert bool((np.diff(np.atleast_2d(curve), axis=1) > 0).all()) is holds


def test_no_queries_cost_nothing() -> None:
    none = np.zeros((0, 10))
    assert consensus.gnmax_rdp(none, 40.0, [2.0, 3.0]).shape == (0, 2)
    assert consensus.lnmax_log_moments(none, 0.1, [1, 2]).shape == (0, 2)
    assert consensus.threshold_rdp([], 200.0, 150.0, [2.0]).shape == (0, 1)
    assert consensus.gnmax_local_sensitivity(none, 40.0, 20.0, 5).shape == (0, 5)
    assert consensus.gnmax_smooth_sensitivity(none, 40.0, 20.0, 0.1, 5) == 0.0


# ── smooth sensitivity, vote by vote ──────────────────────────────────────────────────────────────────────────────────

# σ and orders at which conditions C5 and C6 hold; the first ones need the end of Theorem 6's range to be exact.
SETTINGS = [
    *((0.1, 1.1), (0.3, 1.2), (0.5, 1.5), (0.8, 1.2), (1.0, 1.5)),
    *((1.0, 2.0), (1.5, 2.0), (2.0, 2.0), (2.5, 3.0), (4.0, 2.0)),
]


def bounds_every_neighbour(space: Neighbourhood, price: np.ndarray, local: np.ndarray) -> bool:
    """One vote never moves the price by more than the local sensitivity at distance 0."""
    change = np.abs(price[space.one] - price[space.two])
    return bool((change <= local[space.one, 0] * (1 + 1e-9) + 1e-12).all())


def moves_with_distance(space: Neighbourhood, local: np.ndarray) -> bool:
    """What is bounded d votes away from here is bounded d + 1 votes away from every neighbour.

    Summed over queries and discounted, that is β-smoothness for every β and any number of queries.
    """
    return bool((local[space.one, :-1] <= local[space.two, 1:] * (1 + 1e-9) + 1e-12).all())


def sensitivities(space: Neighbourhood, sigma: float, order: float) -> tuple[np.ndarray, np.ndarray]:
    price = consensus.gnmax_rdp(space.votes, sigma, order)[:, 0]
    return price, consensus.gnmax_local_sensitivity(space.votes, sigma, order, space.teachers)


@pytest.mark.parametrize("space", [TWELVE, PAIR], ids=["12 teachers, 3 classes", "20 teachers, 2 classes"])
@pytest.mark.parametrize(("sigma", "order"), SETTINGS)
def test_local_sensitivity_bounds_every_neighbour_at_every_distance(space: Neighbourhood, sigma: float, order: float) -> None:
    assert consensus.gnmax_smooth_conditions(sigma, space.classes, order) == (True, True)
    price, local = sensitivities(space, sigma, order)
    assert np.ptp(price) > 0
    assert bounds_every_neighbour(space, price, local)
    assert moves_with_distance(space, local)


@pytest.mark.parametrize(("sigma", "order"), SETTINGS[3:7])
@pytest.mark.parametrize("beta", [0.01, 0.1, 0.5])
def test_smooth_sensitivity_is_smooth(sigma: float, order: float, beta: float) -> None:
    _, local = sensitivities(TWELVE, sigma, order)
    smooth = np.array([consensus.discounted_max(row, beta) for row in local])
    assert (smooth[TWELVE.one] <= math.exp(beta) * smooth[TWELVE.two] * (1 + 1e-9)).all()
    assert (smooth >= local[:, 0]).all()
    # Two queries at once: one teacher may move a vote in both.
    both = np.array([[consensus.discounted_max(local[i] + local[j], beta) for j in range(0, 91, 7)] for i in range(91)])
    assert (both[TWELVE.one] <= math.exp(beta) * both[TWELVE.two] * (1 + 1e-9)).all()
    direct = consensus.gnmax_smooth_sensitivity(TWELVE.votes[[5, 70]], sigma, order, beta, 12)
    assert direct == pytest.approx(consensus.discounted_max(local[5] + local[70], beta))


def published_log_q0(sigma: float, order: float) -> float:
    """Broken twin for small noise: the end of Theorem 6's range as the published script puts it."""
    return min(-((1 + 1 / sigma) ** 2), -(((order - 0.99) / sigma) ** 2), -1 / sigma**2)


def test_neighbours_catch_a_range_that_ends_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    price, local = sensitivities(TWELVE, 0.5, 1.5)
    assert bounds_every_neighbour(TWELVE, price, local)
    monkeypatch.setattr(consensus, "gnmax_log_q0", published_log_q0)
    price, local = sensitivities(TWELVE, 0.5, 1.5)
    assert not bounds_every_neighbour(TWELVE, price, local)


def test_neighbours_catch_a_release_without_its_conditions() -> None:
    assert consensus.gnmax_smooth_conditions(2.0, 3, 5.0) == (True, False)
    assert not moves_with_distance(TWELVE, sensitivities(TWELVE, 2.0, 5.0)[1])
    assert consensus.gnmax_smooth_conditions(0.5, 3, 5.0) == (False, False)
    assert not moves_with_distance(TWELVE, sensitivities(TWELVE, 0.5, 5.0)[1])


TESTS = [(7.2, 0.5, 2.0), (7.0, 1.0, 1.5), (7.5, 2.0, 5.0), (20.0, 4.0, 5.0), (0.0, 1.0, 2.0)]


@pytest.mark.parametrize(("threshold", "sigma", "order"), TESTS)
def test_threshold_sensitivity_bounds_every_neighbour_at_every_distance(threshold: float, sigma: float, order: float) -> None:
    top = np.arange(13)
    price = consensus.threshold_rdp(top, threshold, sigma, order)[:, 0]
    local = consensus.threshold_local_sensitivity(top, threshold, sigma, order, 12)
    assert local.shape == (13, 12)
    for step in (1, -1):
        here = np.arange(1, 12) if step < 0 else np.arange(12)
        assert (np.abs(price[here] - price[here + step]) <= local[here, 0] + 1e-15).all()
        assert (local[here, :-1] <= local[here + step, 1:] + 1e-15).all()


def exactly_at_distance(threshold: float, sigma: float, order: float, teachers: int) -> np.ndarray:
    """Broken twin: what one vote changes at exactly d votes' distance, as the published script has it."""
    price = consensus.threshold_rdp(np.arange(teachers + 1), threshold, sigma, order)[:, 0]
    change = np.abs(np.diff(price))
    at = np.maximum(np.append(change, 0), np.append(0, change))
    reach = [[(v + d, v - d) for d in range(teachers)] for v in range(teachers + 1)]
    return np.array([[max((at[k] for k in ends if 0 <= k <= teachers), default=0.0) for ends in row] for row in reach])


@pytest.mark.parametrize("holds", [True, False])
def test_two_queries_catch_distances_taken_exactly(holds: bool) -> None:
    threshold, sigma, order, beta = 7.2, 1.0, 2.0, 0.05
    ours = consensus.threshold_local_sensitivity(np.arange(13), threshold, sigma, order, 12)
    local = ours if holds else exactly_at_distance(threshold, sigma, order, 12)
    smooth = np.array([[consensus.discounted_max(one + two, beta) for two in local] for one in local])
    worst = max(
        (smooth[i, j] / smooth[i + a, j + b]) for i in range(1, 12) for j in range(1, 12) for a in (-1, 0, 1) for b in (-1, 0, 1)
    )
    assert bool(worst <= math.exp(beta) * (1 + 1e-9)) is holds


def test_long_walks_stop_where_the_votes_end() -> None:
    # More agreement than exists: the walk to the left ends with the runner-up's last vote.
    local = consensus.gnmax_local_sensitivity([[3, 2, 0]], 40.0, 20.0, 30)
    assert local.shape == (1, 30)
    assert (np.diff(local[0]) >= -1e-18).all()
    # Teachers fewer than the lead: the walk to the right ends early.
    assert consensus.gnmax_local_sensitivity([[250, 0, 0]], 40.0, 20.0, 3).shape == (1, 3)


@given(local=st.lists(st.floats(0, 10), min_size=1, max_size=20), beta=log_floats(1e-4, 2))
def test_the_discounted_maximum_is_one(local: list[float], beta: float) -> None:
    found = consensus.discounted_max(local, beta)
    assert found == pytest.approx(max(value * math.exp(-beta * d) for d, value in enumerate(local)), rel=1e-12)


def test_conditions_depend_on_noise_classes_and_order_alone() -> None:
    assert consensus.gnmax_smooth_conditions(40.0, 10, 20) == (True, True)
    assert consensus.gnmax_smooth_conditions(20.0, 10, 19.0) == (True, False)
    assert consensus.gnmax_smooth_conditions(40.0, 10, 1e4)[0] is False
    assert consensus.gnmax_smooth_conditions(0.1, 10, 1.5)[0] is True  # noise so small that Theorem 6 always applies


def prices_beside(log_q: float, sigma: float, order: float) -> list[float]:
    return [consensus._rdp_of_log_q(np.array([log_q + side]), sigma, np.array([order]))[0, 0] for side in (-1e-6, 1e-6)]


def test_log_q0_is_where_the_two_prices_meet() -> None:
    for sigma, order in ((40.0, 20.0), (100.0, 8.0)):
        top = consensus.gnmax_log_q0(sigma, order)
        below, above = prices_beside(top, sigma, order)
        assert below < order / sigma**2
        assert above == order / sigma**2
        assert below == pytest.approx(order / sigma**2, rel=1e-4)
    # With next to no noise Theorem 6 ends before they meet, and the price jumps there.
    below, above = prices_beside(consensus.gnmax_log_q0(0.1, 1.1), 0.1, 1.1)
    assert above == pytest.approx(110)
    assert below < 0.4 * above


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SECRET = "7770123"
BAD_COUNTS = [
    [],
    [[]],
    [[7770123]],
    [[7770123, math.nan]],
    [[7770123, math.inf]],
    [[7770123, -1]],
    [[-7770123, 1]],
    np.full((2, 2, 2), 7770123),
    [[7770123, 1], [7770123]],
    [["7770123 votes", "1"]],
    [[7770123j, 1]],
    "7770123!",
    None,
]
TAKES_COUNTS: list[Callable[[Any], Any]] = [
    lambda c: consensus.gnmax_log_q(c, 40.0),
    lambda c: consensus.gnmax_rdp(c, 40.0, [2.0]),
    lambda c: consensus.lnmax_log_q(c, 0.1),
    lambda c: consensus.lnmax_log_moments(c, 0.1, [1.0]),
    lambda c: consensus.gnmax_local_sensitivity(c, 40.0, 20.0, 5),
    lambda c: consensus.gnmax_smooth_sensitivity(c, 40.0, 20.0, 0.1, 5),
]


def refused(error: type[Exception], name: str, call: Callable[[], Any]) -> str:
    with pytest.raises(error, match=rf"^`{name}` must .*\. Got .* instead") as caught:
        call()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value)


@pytest.mark.parametrize("call", TAKES_COUNTS)
@pytest.mark.parametrize("bad", BAD_COUNTS, ids=range(len(BAD_COUNTS)))
def test_bad_counts_are_refused_without_being_quoted(call: Callable[[Any], Any], bad: Any) -> None:
    assert SECRET not in refused(DataError, "counts", lambda: call(bad))


BAD_TOPS = [[7770123, math.nan], [-7770123.0], [math.inf], [[7770123, 2]], ["7770123 votes"], [[1], [2, 7770123]], 7770123j]
TAKES_TOPS: list[Callable[[Any], Any]] = [
    lambda c: consensus.log_answered(c, 200.0, 150.0),
    lambda c: consensus.threshold_rdp(c, 200.0, 150.0, [2.0]),
    lambda c: consensus.threshold_local_sensitivity(c, 200.0, 150.0, 2.0, 10**7),
]


@pytest.mark.parametrize("call", TAKES_TOPS)
@pytest.mark.parametrize("bad", BAD_TOPS, ids=range(len(BAD_TOPS)))
def test_bad_largest_counts_are_refused_without_being_quoted(call: Callable[[Any], Any], bad: Any) -> None:
    assert SECRET not in refused(DataError, "max_counts", lambda: call(bad))


def test_more_votes_than_teachers_are_refused_without_being_quoted() -> None:
    message = refused(DataError, "max_counts", lambda: consensus.threshold_local_sensitivity([7770123], 200.0, 150.0, 2.0, 250))
    assert SECRET not in message


@pytest.mark.parametrize("bad", [[], [math.nan], [-1.0], [math.inf], [[1.0]], 1.0, "7770123"], ids=repr)
def test_bad_sensitivities_are_refused_without_being_quoted(bad: Any) -> None:
    assert SECRET not in refused(DataError, "local", lambda: consensus.discounted_max(bad, 0.1))


VOTES = [[9, 3, 0]]
NOT_POSITIVE = [0, -1.0, math.nan, math.inf, [], "one", None]
NOT_ORDERS = [1, 0.5, -2, math.nan, math.inf, [], "two", None]
NOT_WHOLE = [0, -1, 2.5, math.nan, None, "3"]
BAD: list[tuple[str, Callable[[Any], Any], list[Any]]] = [
    ("sigma", lambda v: consensus.gnmax_log_q(VOTES, v), NOT_POSITIVE),
    ("sigma", lambda v: consensus.gnmax_rdp(VOTES, v, [2.0]), NOT_POSITIVE),
    ("gamma", lambda v: consensus.lnmax_log_q(VOTES, v), NOT_POSITIVE),
    ("gamma", lambda v: consensus.lnmax_log_moments(VOTES, v, [1.0]), NOT_POSITIVE),
    ("moments", lambda v: consensus.lnmax_log_moments(VOTES, 0.1, v), [0, -1, math.nan, math.inf, []]),
    ("orders", lambda v: consensus.gnmax_rdp(VOTES, 40.0, v), NOT_ORDERS),
    ("sigma", lambda v: consensus.log_answered([9], 5.0, v), NOT_POSITIVE),
    ("threshold", lambda v: consensus.log_answered([9], v, 1.0), [math.nan, math.inf, None, "5", [5.0]]),
    ("threshold", lambda v: consensus.threshold_rdp([9], v, 1.0, [2.0]), [math.nan, -math.inf, None, "5", [5.0]]),
    ("sigma", lambda v: consensus.threshold_rdp([9], 5.0, v, [2.0]), NOT_POSITIVE),
    ("orders", lambda v: consensus.threshold_rdp([9], 5.0, 1.0, v), NOT_ORDERS),
    ("orders", lambda v: consensus.threshold_local_sensitivity([9], 5.0, 1.0, v, 12), NOT_ORDERS),
    ("order", lambda v: consensus.threshold_local_sensitivity([9], 5.0, 1.0, v, 12), [[2.0, 3.0]]),
    ("teachers", lambda v: consensus.threshold_local_sensitivity([9], 5.0, 1.0, 2.0, v), NOT_WHOLE),
    ("sigma", lambda v: consensus.gnmax_local_sensitivity(VOTES, v, 2.0, 12), NOT_POSITIVE),
    ("orders", lambda v: consensus.gnmax_local_sensitivity(VOTES, 4.0, v, 12), NOT_ORDERS),
    ("order", lambda v: consensus.gnmax_local_sensitivity(VOTES, 4.0, v, 12), [[2.0, 3.0]]),
    ("teachers", lambda v: consensus.gnmax_local_sensitivity(VOTES, 4.0, 2.0, v), NOT_WHOLE),
    ("beta", lambda v: consensus.gnmax_smooth_sensitivity(VOTES, 4.0, 2.0, v, 12), NOT_POSITIVE),
    ("sigma", lambda v: consensus.gnmax_smooth_conditions(v, 10, 2.0), NOT_POSITIVE),
    ("classes", lambda v: consensus.gnmax_smooth_conditions(4.0, v, 2.0), [1, *NOT_WHOLE]),
    ("orders", lambda v: consensus.gnmax_smooth_conditions(4.0, 10, v), NOT_ORDERS),
    ("sigma", lambda v: consensus.gnmax_log_q0(v, 2.0), NOT_POSITIVE),
]


@pytest.mark.parametrize(("name", "call", "value"), [(name, call, value) for name, call, values in BAD for value in values])
def test_bad_parameters_are_refused_by_name(name: str, call: Callable[[Any], Any], value: Any) -> None:
    assert refused(RecipeError, name, lambda: call(value)).endswith("instead.")
