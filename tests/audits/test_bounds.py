"""Lower bounds: other people's fixtures, truth that is never exceeded, and what is refused."""

import numpy as np
import pytest
from scipy import stats

from tutelage.audits.bounds import lower, one_run, one_run_gaussian, two_sample, upper
from tutelage.privacy.accounting import mu_epsilon
from tutelage.privacy.errors import DataError, RecipeError


def normal(shift: float, size: int) -> np.ndarray:
    """Quantiles in the middle of equal steps: what jax_privacy's fixtures are made of."""
    return stats.norm.ppf((np.arange(size) + 0.5) / size) + shift


@pytest.mark.parametrize(
    ("shift", "steinke", "mahloujifar"),
    [(0, 0, 0), (1, 1.13346, 2.164749), (2, 2.311945, 4.7218075), (4, 4.395568, 9.133752)],
)
def test_one_run_is_jax_privacys(shift: float, steinke: float, mahloujifar: float) -> None:
    members, others = normal(shift, 10_000), normal(0, 10_000)
    assert one_run(members, others, 1e-6).epsilon == pytest.approx(steinke, rel=1e-5)
    assert one_run_gaussian(members, others, 1e-6).epsilon == pytest.approx(mahloujifar, rel=1e-5)


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_many_runs_come_close_to_the_truth_and_stay_below(mu: float) -> None:
    truth = float(mu_epsilon(mu, 1e-5))
    general, gaussian = two_sample(normal(mu, 1_000_000), normal(0, 1_000_000), 1e-5, alarm=0.05)
    assert 0.95 * mu < gaussian.mu < mu
    assert 0.9 * truth < gaussian.epsilon < truth
    assert 0.4 * truth < general.epsilon < truth


def test_thresholds_by_rank_keep_their_alarm() -> None:
    """At μ = 1 a bound may lie above the truth in 5 % of the cases. It does in fewer, and a twin without Bonferroni in more."""
    rng, above, twin = np.random.default_rng(0), 0, 0
    for _ in range(400):
        members, others = rng.normal(1, 1, 100), rng.normal(0, 1, 100)
        above += two_sample(members, others, 1e-5)[1].mu > 1
        twin += two_sample(members, others, 1e-5, alarm=0.49)[1].mu > 1
    assert above <= 400 * 0.05
    assert twin > above


def test_scores_that_say_nothing_bound_nothing() -> None:
    rng = np.random.default_rng(3)
    members, others = rng.normal(size=300), rng.normal(size=300)
    for bound in (*two_sample(members, others, 1e-5), one_run(members, others, 1e-5), one_run_gaussian(members, others, 1e-5)):
        assert bound.epsilon < 0.5
        assert (bound.members, bound.others) == (300, 300)


def test_a_score_that_only_others_have_counts_as_much() -> None:
    """An attack that is sure of half of the others refutes ε = 4, though it is sure of no member."""
    members, others = np.ones(2000), np.r_[np.zeros(1000), np.ones(1000)]
    assert two_sample(members, others, 1e-5)[0].epsilon > 4
    assert two_sample(others, members, 1e-5)[0].epsilon == 0  # which way a score points is the attack's to say


def test_ties_are_not_counted_as_told_apart() -> None:
    assert two_sample(np.ones(500), np.ones(500), 0.0)[0].epsilon == 0
    members, others = np.r_[np.ones(50), np.zeros(50)], np.zeros(100)
    assert 1.5 < two_sample(members, others, 0.0)[0].epsilon < np.log(50)


def test_sides_are_clopper_and_pearsons() -> None:
    for hits in (0, 3, 10):
        interval = stats.binomtest(hits, 10).proportion_ci(0.9, method="exact")
        assert float(lower(hits, 10, 0.05)) == pytest.approx(interval.low, abs=1e-12)
        assert float(upper(hits, 10, 0.05)) == pytest.approx(interval.high, abs=1e-12)


def test_what_no_score_is_is_refused() -> None:
    with pytest.raises(DataError, match="must hold numbers"):
        two_sample([0.0, np.nan], [1.0], 1e-5)
    with pytest.raises(DataError, match="`others` must hold at least one"):
        one_run([0.0], [], 1e-5)
    with pytest.raises(RecipeError, match="`alarm`"):
        two_sample([0.0], [1.0], 1e-5, alarm=0.0)
    with pytest.raises(RecipeError, match="`delta`"):
        one_run_gaussian([0.0], [1.0], 1.5)
