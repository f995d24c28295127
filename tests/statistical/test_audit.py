"""Every mechanism, sampled on its worst neighbours: what it leaks stays under what its event costs. Broken twins are caught."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.statistical.audit import Audit, audit

from tutelage.privacy import mechanisms
from tutelage.privacy.accounting import Cost, cost
from tutelage.privacy.bounds import Ball, Binary, Bound, Cube, OneHot, Orthant, Simplex
from tutelage.privacy.events import Event, Gaussian
from tutelage.privacy.mechanisms import AboveThreshold, GNMax, LaplaceMean, LNMax, NoisyMean, SmoothNumber, ThresholdTest
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Adjacency, Unit

SIZE = 200_000
Statistic = Callable[[np.ndarray], np.ndarray]


def value(released: np.ndarray) -> np.ndarray:
    return released


def repeated(ballots: Any, size: int = SIZE) -> Sealed:
    """Ask the same question many times: (teachers, dimension) → sealed (teachers, size, dimension)."""
    return Sealed(np.repeat(np.asarray(ballots, dtype=np.float64)[:, None], size, axis=1))


@dataclass(frozen=True)
class Case:
    """One mechanism, two neighbouring ballots (teachers, dimension) that differ in one row, and what to look at."""

    mechanism: Any
    ballots: Any
    neighbour: Any
    statistic: Statistic = value
    delta: float = 1e-5
    size: int = SIZE
    rows: int = 1  # teachers that the unit stands behind

    def __post_init__(self) -> None:
        assert (np.asarray(self.ballots) != np.asarray(self.neighbour)).any(axis=1).sum() == self.rows

    def run(self, *, doer: Any = None, claimed: Event | None = None, count: int = 1) -> Audit:
        """Sample `doer` (the mechanism itself unless a twin is named) against the price of what is claimed."""
        doing = doer or self.mechanism
        claim = cost([(claimed or self.mechanism.event(), count)], self.delta)
        samples = (self.statistic(doing.contribute(repeated(side, self.size))) for side in (self.ballots, self.neighbour))
        return audit(*samples, claim)


def votes(*labels: int) -> np.ndarray:
    return np.eye(2)[list(labels)]


def along(direction: np.ndarray) -> Statistic:
    return lambda released: released @ direction


# The two members of each bound that lie furthest apart in the 2-norm.
FURTHEST: dict[str, tuple[Bound, Any, Any]] = {
    "line": (Ball(1, 1.5), [1.5], [-1.5]),
    "ball": (Ball(8, 1.0), np.full(8, 8**-0.5), -np.full(8, 8**-0.5)),
    "orthant": (Orthant(3, 2.0), [2.0, 0, 0], [0, 2.0, 0]),
    "cube": (Cube(4, 0.5), [0.5] * 4, [-0.5] * 4),
    "simplex": (Simplex(3), [1.0, 0, 0], [0, 0, 1.0]),
    "onehot": (OneHot(3), [1.0, 0, 0], [0, 0, 1.0]),
    "binary": (Binary(4), [1.0] * 4, [0.0] * 4),
}


def mean_case(name: str, sigma: float | None = None) -> Case:
    bound, one, other = FURTHEST[name]
    rest = np.zeros((2, bound.dimension))
    return Case(
        NoisyMean(bound, sigma or bound.diameter(), 3),
        np.vstack([rest, one]),
        np.vstack([rest, other]),
        along(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)),
    )


def laplace_case(dimension: int) -> Case:
    bound = Cube(dimension, 1.0)
    mechanism = LaplaceMean(bound, bound.diameter(1), 2)
    corner = np.ones((1, dimension))

    def likelihood_ratio(released: np.ndarray) -> np.ndarray:
        total = released * 2
        return (np.abs(total + 1) - np.abs(total - 1)).sum(axis=1)

    return Case(mechanism, np.vstack([0 * corner, corner]), np.vstack([0 * corner, -corner]), likelihood_ratio)


def sparse_case() -> Case:
    """Seven coordinates just below and one just above the threshold, or the reverse; the event is «the last one, alone»."""
    below, above = np.ones((3, 8)), np.ones((3, 8))
    below[2, :7], above[2, 7:] = -1, -1  # the sums are 1 and 3: one teacher moves every coordinate by its whole reach of 2

    def last_alone(found: np.ndarray) -> np.ndarray:
        return found.any(axis=1) & (found.argmax(axis=1) == 7)

    return Case(AboveThreshold(Cube(8), 2 / 3, 1.0, 1.0, 1, 3), below, above, last_alone)


CASES: dict[str, Case] = {
    "GNMax": Case(GNMax(2, 1.0), votes(0, 0, 1), votes(0, 1, 1)),
    "GNMax, sure": Case(GNMax(2, 2.0), votes(0, 0, 0, 0), votes(0, 0, 0, 1)),
    "GNMax, two teachers": Case(GNMax(2, 2.0, Unit("institution", 2)), votes(0, 0, 0), votes(0, 1, 1), rows=2),
    "LNMax": Case(LNMax(2, 1.0), votes(0, 0, 0), votes(0, 0, 1)),
    "ThresholdTest": Case(ThresholdTest(2, 2.5, 1.0), votes(0, 0, 0), votes(0, 0, 1)),
    **{f"NoisyMean, {name}": mean_case(name) for name in FURTHEST},
    "NoisyMean, an institution comes": Case(
        NoisyMean(Ball(1), 1.0, 2, adjacency=Adjacency.ADD_REMOVE, unit=Unit("institution")), [[0.0], [1.0]], [[0.0], [0.0]]
    ),
    "LaplaceMean": laplace_case(1),
    "LaplaceMean, vector": laplace_case(3),
    "AboveThreshold": sparse_case(),
}


# ── the audit itself ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_audit_is_close_to_the_truth_and_below_it() -> None:
    rng, size = np.random.default_rng(1), 500_000
    claim = Cost(1.0, 1e-5, "exact Gaussian", 1.0)
    gaussian = audit(rng.normal(0, 1, size), rng.normal(1, 1, size), claim)
    assert 0.95 < gaussian.mu <= 1.0
    assert 2.0 < gaussian.epsilon <= 4.377  # ε of μ = 1 at δ = 1e-5
    assert gaussian.refuted
    laplace = audit(rng.laplace(0, 1, size), rng.laplace(1, 1, size), claim)
    assert 0.95 < laplace.epsilon <= 1.0


def test_the_audit_finds_nothing_where_nothing_is() -> None:
    rng = np.random.default_rng(2)
    found = audit(rng.normal(size=SIZE), rng.normal(size=SIZE), Cost(0.01, 1e-5, "exact Gaussian", 0.01))
    assert found.epsilon == found.mu == 0.0
    constant = audit(np.zeros(100), np.zeros(100), Cost(0.01, 1e-5, "sum of pure ε"))
    assert constant.epsilon == constant.mu == 0.0
    assert not constant.refuted


def test_the_audit_sees_a_certain_difference() -> None:
    found = audit(np.zeros(SIZE), np.ones(SIZE), Cost(5.0, 1e-5, "sum of pure ε"))
    assert found.epsilon > 8
    assert found.refuted


# ── the mechanisms ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", CASES)
def test_what_leaks_stays_under_the_claim(name: str, record_property: Callable[[str, object], None]) -> None:
    found = CASES[name].run()
    record_property("claim", str(found.claim))
    record_property("epsilon", found.epsilon)
    record_property("mu", found.mu)
    assert not found.refuted
    assert found.epsilon > 0.05  # the pair is a telling one
    if found.claim.method == "exact Gaussian":
        assert found.claim.mu is not None
        assert found.mu > 0.85 * found.claim.mu  # the claim is tight: there is no slack for a bug to hide in


def smooth_samples(mechanism: Any, number: float, smooth: float, size: int) -> np.ndarray:
    pair = Sealed([number, smooth])
    return np.array([mechanism.contribute(pair) for _ in range(size)])


def smooth_audit(doer: Any, claimed: SmoothNumber, smooth: float, size: int) -> Audit:
    """Neighbours: the number moves by its sensitivity, and the sensitivity by e^β."""
    less = smooth * math.exp(-claimed.beta)
    claim = cost([(claimed.event(), 1)], 0.01)
    return audit(smooth_samples(doer, 0.0, smooth, size), smooth_samples(doer, smooth, less, size), claim)


SMOOTH = SmoothNumber(0.01, 1.0)


@pytest.mark.parametrize(("smooth", "size"), [(0.05, 20_000), (1e5, 3_000)])
def test_the_smooth_release_stays_under_the_claim(
    smooth: float, size: int, record_property: Callable[[str, object], None]
) -> None:
    found = smooth_audit(SMOOTH, SMOOTH, smooth, size)
    record_property("claim", str(found.claim))
    record_property("epsilon", found.epsilon)
    assert not found.refuted
    assert found.epsilon > 0.5


def test_parties_that_share_the_noise_keep_the_claim() -> None:
    mechanism = NoisyMean(Ball(1), 2.0, 2)

    def together(ballot: float) -> np.ndarray:
        parts = [mechanism.contribute(repeated([[x]]), share=0.5) for x in (0.0, ballot)]
        return mechanism.combine(parts)

    found = audit(together(1.0), together(-1.0), cost([(mechanism.event(), 1)], 1e-5))
    assert not found.refuted
    assert found.mu > 0.9


@pytest.mark.parametrize("count", [2, 9])
def test_several_answers_stay_under_the_price_of_several(count: int) -> None:
    found = audit(*several(count), cost([(NoisyMean(Ball(1), 4.0, 1).event(), count)], 1e-5))
    assert not found.refuted
    assert found.mu > 0.85 * math.sqrt(count) / 2


def several(count: int) -> tuple[np.ndarray, np.ndarray]:
    mechanism, size = NoisyMean(Ball(1), 4.0, 1), SIZE // 3
    return tuple(sum(mechanism.contribute(repeated([[side]], size)) for _ in range(count)) for side in (1.0, -1.0))  # type: ignore[return-value]


# ── broken twins ──────────────────────────────────────────────────────────────────────────────────────────────────────

HALF: dict[str, Any] = {
    "GNMax": GNMax(2, 0.5),
    "LNMax": LNMax(2, 2.0),
    "ThresholdTest": ThresholdTest(2, 2.5, 0.5),
    "LaplaceMean": LaplaceMean(Cube(1), 1.0, 2),
    "AboveThreshold": AboveThreshold(Cube(8), 2 / 3, 2.0, 2.0, 1, 3),
    **{f"NoisyMean, {name}": mean_case(name, bound.diameter() / 2).mechanism for name, (bound, *_) in FURTHEST.items()},
}


@pytest.mark.parametrize("name", HALF)
def test_half_the_noise_is_caught(name: str) -> None:
    assert CASES[name].run(doer=HALF[name]).refuted


def test_half_the_noise_of_a_smooth_release_is_caught() -> None:
    assert smooth_audit(SmoothNumber(0.01, 0.5), SMOOTH, 0.05, 20_000).refuted


def test_a_smooth_release_whose_noise_is_capped_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = mechanisms.rounded_gaussian
    monkeypatch.setattr(mechanisms, "rounded_gaussian", lambda scale, shape: real(min(scale, 2.0**30), shape))
    assert smooth_audit(SMOOTH, SMOOTH, 1e5, 3_000).refuted


class Unclipped:
    """A mean whose bound no longer clips; everything else is the real mechanism."""

    def __init__(self, mechanism: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mechanism, self.patch = mechanism, monkeypatch

    def contribute(self, ballots: Sealed) -> np.ndarray:
        with self.patch.context() as patch:
            patch.setattr(type(self.mechanism.bound), "clip", lambda self, ballot: np.asarray(ballot, dtype=np.float64))
            return np.asarray(self.mechanism.contribute(ballots))


@pytest.mark.parametrize("make", [NoisyMean, LaplaceMean])
def test_no_clip_is_caught(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = make(Ball(1), 2.0, 2)
    loud = Case(mechanism, [[0.0], [3.0]], [[0.0], [-3.0]])
    assert not loud.run().refuted
    assert loud.run(doer=Unclipped(mechanism, monkeypatch)).refuted


class LoudVotes:
    """A noisy max that counts ballots as they come."""

    def contribute(self, ballots: Sealed) -> np.ndarray:
        counts = ballots.map(lambda opened: opened.sum(axis=0))
        noise = mechanisms.rounded_gaussian(2.0**20, (*counts.shape,)) * 2.0**-20
        return np.asarray((counts._open(mechanisms._KEY) + noise).argmax(axis=1))


def test_votes_that_are_not_clipped_are_caught() -> None:
    loud = Case(GNMax(2, 1.0), [[1.0, 0], [0, 1.0], [3.0, 0]], [[1.0, 0], [0, 1.0], [0, 3.0]])
    assert not loud.run().refuted
    assert loud.run(doer=LoudVotes()).refuted


@pytest.mark.parametrize("name", ["line", "ball", "cube"])
def test_the_radius_for_the_diameter_is_caught(name: str) -> None:
    """The papers' 1/K where it is 2/K."""
    case = mean_case(name)
    radius = case.mechanism.bound.radius()
    assert radius == case.mechanism.bound.diameter() / 2
    assert case.run(claimed=Gaussian(radius, case.mechanism.sigma)).refuted


def test_one_vote_for_the_two_that_move_is_caught() -> None:
    assert CASES["GNMax"].run(claimed=Gaussian(1.0, 1.0)).refuted


def test_one_teacher_for_the_two_behind_an_institution_is_caught() -> None:
    case = CASES["GNMax, two teachers"]
    assert case.run(claimed=GNMax(2, 2.0).event()).refuted


def test_a_count_that_is_not_multiplied_is_caught() -> None:
    assert audit(*several(9), cost([(NoisyMean(Ball(1), 4.0, 1).event(), 1)], 1e-5)).refuted


def test_a_sparse_vector_without_noise_on_its_comparisons_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lyu, Su & Li 2017 found this in print (their Algorithm 5)."""
    real = mechanisms.rounded_laplace
    monkeypatch.setattr(
        mechanisms,
        "rounded_laplace",
        lambda scale, shape: real(scale, shape) if shape[1] == 1 else np.zeros(shape, dtype=np.int64),
    )
    assert CASES["AboveThreshold"].run().refuted


def test_a_share_of_the_noise_passed_off_as_the_whole_is_caught() -> None:
    mechanism = NoisyMean(Ball(1), 2.0, 1)

    def part(ballot: float) -> np.ndarray:
        return mechanism.combine([mechanism.contribute(repeated([[ballot]]), share=0.25)])

    assert audit(part(1.0), part(-1.0), cost([(mechanism.event(), 1)], 1e-5)).refuted
