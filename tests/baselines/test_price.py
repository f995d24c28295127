"""The baselines' noise, against dp-accounting and against what a wrong sensitivity would give."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch")
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld

from tutelage.baselines.dpsgd import DPSGD
from tutelage.baselines.price import batch, calibrated, step
from tutelage.nets.networks import Perceptron
from tutelage.privacy import accounting
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import Gaussian, Sampled

DELTA = 1e-5


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
def test_full_batches_are_one_exact_gaussian(epsilon: float) -> None:
    plan = DPSGD(Perceptron(features=4, classes=2), epsilon=epsilon, delta=DELTA, steps=300, clip=0.5)
    event = plan.event(200)
    assert isinstance(event, Gaussian)
    assert event.sensitivity == pytest.approx(2 * 0.5, rel=1e-3)
    assert event.sensitivity > 2 * 0.5
    judged = pld.from_gaussian_mechanism(event.sigma / (2 * 0.5 * math.sqrt(300))).get_epsilon_for_delta(DELTA)
    assert epsilon * 0.995 < judged <= epsilon  # what the 32-bit norms' reserve takes


def test_noise_for_the_radius_would_be_seen() -> None:
    """A twin that takes the clip for the sensitivity, as add-remove papers do, breaks replace-one by far."""
    twin = calibrated(1.0, steps=300, rate=1.0, population=200, epsilon=3.0, delta=DELTA)
    assert pld.from_gaussian_mechanism(twin / (2 * math.sqrt(300))).get_epsilon_for_delta(DELTA) > 6.5


def test_a_sample_in_a_replace_one_book_is_of_fixed_size() -> None:
    plan = DPSGD(Perceptron(features=4, classes=2), epsilon=3.0, delta=DELTA, steps=40, rate=0.25, clip=0.5)
    event = plan.event(200)
    assert isinstance(event, Sampled)
    assert (event.sampler, event.size, event.population) == ("fixed", 50, 200)
    assert event.event.sensitivity > 1.0
    assert 3.0 * 0.99 < accounting.cost([(event, 40)], DELTA).epsilon <= 3.0
    # Never less than what dp-accounting asks of Poisson under replace-one, which a sample of fixed size cannot beat.
    with np.errstate(over="ignore"):
        other = pld.from_gaussian_mechanism(
            event.event.sigma / 0.5, sampling_prob=0.25, neighboring_relation=NeighboringRelation.REPLACE_ONE
        )
        assert other.self_compose(40).get_epsilon_for_delta(DELTA) < 3.0
    # Per mean gradient it has more noise than everyone's has: sampling saves time.
    everyone = DPSGD(Perceptron(features=4, classes=2), epsilon=3.0, delta=DELTA, steps=40, clip=0.5).event(200)
    assert isinstance(everyone, Gaussian)
    assert event.event.sigma / 50 > everyone.sigma / 200


def test_steps_and_batches() -> None:
    answer = Gaussian(1.0, 1.0)
    assert step(answer, rate=1.0, population=7) is answer
    assert step(answer, rate=0.99, population=7) is answer  # all seven
    assert batch(0.001, 10) == 1
    for rate in (0.0, 1.5, True, "all"):
        with pytest.raises(RecipeError, match="`rate` must lie in"):
            batch(rate, 10)  # type: ignore[arg-type]
