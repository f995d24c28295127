"""dp-accounting as the judge: its exact Gaussian, its Rényi accountant, and its loss distributions from both sides.

Add-or-remove-one only: its Rényi accountant ignores the doubled sensitivity of replace-one (shown below).
"""

import functools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant

from tutelage.privacy import accounting
from tutelage.privacy.accounting import ORDERS
from tutelage.privacy.bounds import Ball
from tutelage.privacy.events import Event, Gaussian, Laplace, Sampled

DELTA = 1e-5


def renyi(*events: tuple[dp_accounting.DpEvent, int], orders: np.ndarray = ORDERS) -> float:
    accountant = RdpAccountant(list(orders), NeighboringRelation.ADD_OR_REMOVE_ONE)
    for event, count in events:
        accountant.compose(event, count)
    return float(accountant.get_epsilon(DELTA))


def losses(pessimistic: bool, *parts: tuple[str, float, int]) -> float:
    """ε of composed Gaussian and Laplace answers by loss distributions: too high when pessimistic, too low otherwise."""
    each = [distribution(kind, scale, pessimistic).self_compose(count) for kind, scale, count in parts]
    return float(functools.reduce(lambda one, two: one.compose(two), each).get_epsilon_for_delta(DELTA))


def distribution(kind: str, scale: float, pessimistic: bool, rate: float = 1.0) -> pld.PrivacyLossDistribution:
    build = {"gaussian": pld.from_gaussian_mechanism, "laplace": pld.from_laplace_mechanism}[kind]
    return build(scale, pessimistic_estimate=pessimistic, use_connect_dots=pessimistic, sampling_prob=rate)


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-10])
def test_one_gaussian_has_the_same_exact_price(sigma: float, delta: float) -> None:
    epsilon = accounting.gaussian_epsilon(1.0, sigma, delta)
    assert epsilon == pytest.approx(dp_accounting.get_epsilon_gaussian(sigma, delta), rel=1e-9, abs=1e-11)
    if epsilon > 0:
        assert sigma == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-9)


@pytest.mark.parametrize(("sigma", "count"), [(0.5, 1), (1.0, 1), (4.0, 10), (20.0, 300), (40.0, 1000)])
def test_composed_gaussians_lie_between_its_two_distributions(sigma: float, count: int) -> None:
    ours = accounting.cost([(Gaussian(1.0, sigma), count)], DELTA).epsilon
    low, high = losses(False, ("gaussian", sigma, count)), losses(True, ("gaussian", sigma, count))
    assert low <= ours * (1 + 1e-9)
    assert ours <= high * (1 + 1e-9)
    assert high == pytest.approx(ours, rel=1e-3)


@pytest.mark.parametrize(("sigma", "count"), [(0.5, 1), (4.0, 10), (40.0, 1000)])
def test_the_gaussian_curve_is_the_same(sigma: float, count: int) -> None:
    curve = count * accounting.event_rdp(Gaussian(1.0, sigma), ORDERS)
    ours, _ = accounting.rdp_to_epsilon(curve, ORDERS, DELTA)
    assert ours == pytest.approx(renyi((dp_accounting.GaussianDpEvent(sigma), count)), rel=1e-12)
    assert accounting.cost([(Gaussian(1.0, sigma), count)], DELTA).epsilon < ours


@pytest.mark.parametrize(("scale", "count"), [(0.5, 1), (2.0, 3), (10.0, 50), (100.0, 2000)])
def test_laplace_answers(scale: float, count: int) -> None:
    ours = accounting.cost([(Laplace(1.0, scale), count)], DELTA).epsilon
    assert losses(False, ("laplace", scale, count)) <= ours * (1 + 1e-9)  # never below the truth
    assert ours <= count / scale  # never above the sum of pure ε
    curve = count * accounting.laplace_rdp(1 / scale, ORDERS)
    theirs = renyi((dp_accounting.LaplaceDpEvent(scale), count))
    assert accounting.rdp_to_epsilon(curve, ORDERS, DELTA)[0] == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(("sigma", "scale"), [(20.0, 20.0), (60.0, 15.0)])
def test_mixed_books(sigma: float, scale: float) -> None:
    entries: list[tuple[Event, int]] = [(Gaussian(1.0, sigma), 200), (Laplace(1.0, scale), 100)]
    ours = accounting.cost(entries, DELTA)
    assert ours.method == "Rényi"
    assert ours.epsilon == pytest.approx(
        renyi((dp_accounting.GaussianDpEvent(sigma), 200), (dp_accounting.LaplaceDpEvent(scale), 100)), rel=1e-6
    )
    truth = losses(False, ("gaussian", sigma, 200), ("laplace", scale, 100))
    assert truth <= ours.epsilon <= 1.15 * truth
    assert accounting.admits(entries, 1.3 * ours.epsilon, DELTA)
    assert not accounting.admits(entries, 0.99 * truth, DELTA)


@pytest.mark.parametrize(("rate", "sigma", "steps"), [(0.01, 1.1, 300), (0.1, 4.0, 200), (0.25, 8.0, 100)])
def test_poisson_sampled_gaussians(rate: float, sigma: float, steps: int) -> None:
    ours = accounting.cost([(Sampled(Gaussian(1.0, sigma), rate), steps)], DELTA).epsilon
    low = distribution("gaussian", sigma, False, rate).self_compose(steps)
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    assert low.get_epsilon_for_delta(DELTA) <= ours * (1 + 1e-9)
    assert ours < renyi((event, steps), orders=np.arange(2, 65))
    assert ours == pytest.approx(low.get_epsilon_for_delta(DELTA), abs=steps * 1e-4)  # its buckets are that wide
    # A sensitivity other than 1 is a noise multiplier.
    doubled = accounting.cost([(Sampled(Gaussian(2.0, 2 * sigma), rate), steps)], DELTA).epsilon
    assert doubled == pytest.approx(ours, rel=1e-12)


def test_poisson_sampled_laplace() -> None:
    ours = accounting.cost([(Sampled(Laplace(1.0, 2.0), 0.1), 20)], DELTA).epsilon
    low = distribution("laplace", 2.0, False, 0.1).self_compose(20)
    assert low.get_epsilon_for_delta(DELTA) <= ours * (1 + 1e-9)
    assert ours == pytest.approx(low.get_epsilon_for_delta(DELTA), rel=1e-2)


def test_a_fixed_size_sample_costs_no_more_than_a_poisson_sample_of_twice_the_reach() -> None:
    """Replacing is removing and adding: two Poisson relations, each at the distance of one record."""
    fixed = accounting.cost([(Sampled(Gaussian(2.0, 4.0), 0.05, "fixed", 50, 1000), 50)], DELTA).epsilon
    poisson = accounting.cost([(Sampled(Gaussian(1.0, 4.0), 0.05), 50)], DELTA).epsilon
    assert poisson < fixed < accounting.cost([(Gaussian(2.0, 4.0), 50)], DELTA).epsilon


def test_replace_one_is_where_its_renyi_accountant_errs() -> None:
    """Ten answers of noise multiplier 2 when a record is replaced: 8.08 there, 17.86 in truth and here."""
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_accounting.GaussianDpEvent(2.0), 10)
    assert accountant.get_epsilon(DELTA) == pytest.approx(8.08, abs=5e-3)
    event = Gaussian(Ball(3).sensitivity(), 2.0)  # ballots of norm 1: the diameter is 2
    assert accounting.cost([(event, 10)], DELTA).epsilon == pytest.approx(17.86, abs=5e-3)
    assert losses(False, ("gaussian", 1.0, 10)) == pytest.approx(17.86, abs=5e-3)  # its own distributions agree with us


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_the_conversion_is_the_same(delta: float) -> None:
    curve = np.linspace(0.01, 5, len(ORDERS)) ** 2
    theirs, order = dp_accounting.rdp.compute_epsilon(ORDERS, curve, delta)
    ours, at = accounting.rdp_to_epsilon(curve, ORDERS, delta)
    assert ours == pytest.approx(theirs, rel=1e-12)
    assert math.isclose(order, at)
