"""Plans: every direction, every refusal, and noise that is calibrated to exactly the budget."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.planning import METHODS, Aggregation, MeanPlan, Sanitise, Selection, by_adjacency, side_by_side, warnings
from tutelage.privacy import accounting
from tutelage.privacy.bounds import Ball, Binary, Bound, Cube, OneHot, Orthant, Simplex, bound_named
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import Gaussian, NoisyMax, SmoothRelease, Threshold
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.mechanisms import AboveThreshold, GNMax, LNMax, NoisyMean
from tutelage.privacy.units import Adjacency, Unit

BUDGET = Budget(8.0, 1e-5)

plans = st.builds(
    MeanPlan,
    teachers=st.integers(2, 500),
    queries=st.integers(1, 10_000),
    sigma=st.floats(0.01, 100),
    epsilon=st.none(),
    delta=st.floats(1e-12, 0.1),
    bound=st.sampled_from(["ball", "orthant", "cube"]),
    dimension=st.integers(2, 64),
    norm=st.floats(0.1, 10),
    unit=st.builds(Unit, st.sampled_from(["record", "patient"]), st.integers(1, 3)),
)


# ── noisy means ───────────────────────────────────────────────────────────────────────────────────────────────────────


@given(plan=plans)
def test_what_is_solved_for_fits_what_was_given(plan: MeanPlan) -> None:
    full = plan.solved()
    if not 1e-3 < full.epsilon < 500:  # type: ignore[operator]
        return
    assert replace(full, sigma=None).solved().sigma == pytest.approx(full.sigma, rel=1e-9)
    assert replace(full, norm=None).solved().norm == pytest.approx(full.norm, rel=1e-9)
    assert replace(full, delta=None).solved().delta == pytest.approx(full.delta, rel=1e-6)
    assert replace(full, queries=None).solved().queries == full.queries
    assert replace(full, teachers=None).solved().teachers == full.teachers


def test_published_figures() -> None:
    plan = MeanPlan(8, 62, 0.075, None, 1e-2)
    replaced, removed = (view for _, view in side_by_side(plan))
    assert replaced is not None
    assert removed is not None
    assert replaced.epsilon == pytest.approx(404.546, abs=1e-3)
    assert removed.epsilon == pytest.approx(115.721, abs=1e-3)
    fewest = [view for _, view in side_by_side(replace(plan, teachers=None, epsilon=9.99999))]
    assert [view.teachers for view in fewest if view is not None] == [74, 37]


def test_every_adjacency_keeps_the_reach_of_a_unit() -> None:
    views = by_adjacency(MeanPlan(8, 62, 0.075, None, 1e-2, unit=Unit("patient", 3)))
    assert [(view.adjacency, view.unit.teachers) for _, view in views] == [(Adjacency.REPLACE_ONE, 3), (Adjacency.ADD_REMOVE, 3)]


def test_a_unit_behind_m_teachers_moves_m_times_as_far() -> None:
    alone, thrice = MeanPlan(8, 62, 0.075, None, 1e-2), MeanPlan(8, 62, 0.075, None, 1e-2, unit=Unit("institution", 3))
    assert thrice.mu() == pytest.approx(3 * alone.mu())


def test_sensitivity_is_the_diameter() -> None:
    assert MeanPlan(bound="ball", norm=2.0).sensitivity() == pytest.approx(4.0, rel=1e-7)
    assert MeanPlan(bound="orthant", norm=2.0).sensitivity() == pytest.approx(2 * math.sqrt(2), rel=1e-7)
    assert MeanPlan(bound="cube", dimension=16).sensitivity() == pytest.approx(8.0, rel=1e-7)
    assert MeanPlan(bound="binary", dimension=9).sensitivity() == 3.0
    assert MeanPlan(bound="onehot", dimension=9).sensitivity() == pytest.approx(math.sqrt(2), rel=1e-15)


@pytest.mark.parametrize("bound", ["ball", "orthant", "cube", "simplex", "onehot", "binary"])
def test_a_plan_is_what_the_book_will_charge(bound: str, tmp_path: Path) -> None:
    plan = MeanPlan(20, 57, None, 3.0, 1e-5, bound, 8).solved()
    mechanism = NoisyMean(bound_named(bound, 8), (plan.sigma or 0) * 20, 20)  # the plan's noise is on the mean
    with Ledger(tmp_path / "book.sqlite", Budget(3.0, 1e-5)) as ledger:
        assert ledger.affordable(mechanism.event()) == 57
        ledger.charge(mechanism.event(), count=57)
        assert ledger.spent().epsilon == pytest.approx(3.0, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"teachers": 2.5}, "`teachers` must be a whole number ≥ 1. Got 2.5"),
        ({"teachers": True}, "`teachers` must be a whole number ≥ 1. Got True"),
        ({"queries": 0}, "`queries` must be a whole number ≥ 1. Got 0"),
        ({"sigma": math.inf}, "`sigma` must be a finite number > 0. Got inf"),
        ({"norm": 0.0}, "`norm` must be a finite number > 0. Got 0.0"),
        ({"delta": 0.0}, r"`delta` must be in \(0, 1\). Got 0.0"),
        ({"bound": "sphere"}, "`bound` must be one of"),
        ({"dimension": 0}, "`dimension` must be a whole number ≥ 1. Got 0"),
        ({"adjacency": Adjacency.ADD_REMOVE}, "`adjacency` must be 'replace-one' unless the unit is a whole institution"),
        ({"epsilon": 1.0}, r"must be left open. Got 0 \(none\)"),
        ({"sigma": None}, r"must be left open. Got 2 \(sigma, epsilon\)"),
    ],
)
def test_plans_that_make_no_sense_are_refused(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(RecipeError, match=rule):
        replace(MeanPlan(8, 62, 0.075, None, 1e-2), **change).solved()


@pytest.mark.parametrize("bound", ["simplex", "onehot", "binary"])
def test_a_bound_of_fixed_size_has_no_norm_to_solve_for(bound: str) -> None:
    with pytest.raises(RecipeError, match="`norm` must stay out of it"):
        MeanPlan(8, 62, 0.075, 1.0, 1e-2, bound, norm=None).solved()


# ── votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reach", [1, 3])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("epsilon", "delta"), [(8.0, 1e-5), (0.5, 1e-9), (40.0, 1e-3)])
def test_calibrated_noise_uses_the_budget_up_and_no_more(method: str, reach: int, epsilon: float, delta: float) -> None:
    budget = Budget(epsilon, delta, Unit("institution", reach))
    events = Aggregation(method).planned(budget, 50, 100, OneHot(10))
    assert accounting.admits(events, epsilon, delta)
    more = [(event, count * 51 // 50) for event, count in events]
    assert not accounting.admits(more, epsilon, delta)


def test_gnmax_is_one_gaussian() -> None:
    ((event, count),) = Aggregation("gnmax").planned(BUDGET, 200, 100, OneHot(10))
    assert isinstance(event, NoisyMax)
    assert count == 200
    assert event.scale == pytest.approx(20 / accounting.epsilon_mu(8.0, 1e-5))
    assert accounting.cost([(event, count)], 1e-5).epsilon == pytest.approx(8.0, rel=1e-12)


def test_confident_noise_is_calibrated_for_the_answers_it_is_told() -> None:
    how = Aggregation("confident-gnmax", threshold=0.4, test_ratio=3.0, answers=100)
    (test, tests), (answer, answers) = how.planned(BUDGET, 200, 100, OneHot(10))
    assert (tests, answers) == (200, 100)
    assert isinstance(test, Threshold)
    assert test.sigma == pytest.approx(3 * answer.scale)  # type: ignore[union-attr]
    mechanism, screen = how.built(BUDGET, 200, 100, OneHot(10))
    assert screen is not None
    assert screen.threshold == 40.0
    assert isinstance(mechanism, GNMax)
    assert mechanism.teachers == screen.teachers == 100
    assert how.planned(BUDGET, 50, 100, OneHot(10))[1][1] == 50  # never more answers than questions


def test_the_interactive_screen_looks_beyond_the_student_at_the_same_price() -> None:
    how = Aggregation("interactive-gnmax", threshold=0.4, answers=100)
    mechanism, screen = how.built(BUDGET, 200, 100, OneHot(10))
    assert screen is not None
    assert screen.beyond_student
    assert (mechanism, replace(screen, beyond_student=False)) == replace(how, method="confident-gnmax").built(
        BUDGET, 200, 100, OneHot(10)
    )
    assert how.turns == 3
    assert replace(how, rounds=5).turns == 5
    assert Aggregation("confident-gnmax").turns == 1


def test_given_noise_is_kept() -> None:
    assert Aggregation("gnmax", sigma=40.0).built(BUDGET, 10, 100, OneHot(10))[0] == GNMax(10, 40.0, Unit(), 100)
    assert Aggregation("lnmax", gamma=0.05).built(BUDGET, 10, 100, OneHot(10))[0] == LNMax(10, 0.05, Unit(), 100)


def test_a_sanitised_plan_leaves_room_for_its_release() -> None:
    sanitise = Sanitise(order=3.0, beta=0.02, sigma=20.0)
    for method in ("gnmax", "confident-gnmax"):
        events = Aggregation(method, sanitise=sanitise).planned(BUDGET, 60, 100, OneHot(10))
        assert events[-1] == (SmoothRelease(0.02, 20.0), 1)
        assert accounting.admits(events, 8.0, 1e-5)
        assert not accounting.admits([(event, count * 62 // 60) for event, count in events], 8.0, 1e-5)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (
            lambda: Aggregation("majority"),
            "`method` must be one of 'gnmax', 'lnmax', .*'interactive-gnmax', 'mean'. Got 'majority'",
        ),
        (lambda: Aggregation("interactive-gnmax", rounds=0), "`rounds` must be a whole number ≥ 1. Got 0"),
        (lambda: Aggregation("interactive-gnmax", rounds=2.5), "`rounds` must be a whole number ≥ 1. Got 2.5"),  # type: ignore[arg-type]
        (lambda: Aggregation("interactive-gnmax", sure=1.5), "`sure` must be a share, at most 1. Got 1.5"),
        (lambda: Aggregation("interactive-gnmax", sure=0.0), "`sure` must be a finite number > 0. Got 0.0"),
        (lambda: Aggregation(sigma=-1.0), "`sigma` must be a finite number > 0. Got -1.0"),
        (lambda: Aggregation(gamma=0.1), "`gamma` must stay open for 'gnmax'"),
        (lambda: Aggregation("lnmax", sigma=1.0), "`sigma` and `sanitise` must stay open for 'lnmax'"),
        (lambda: Aggregation("lnmax", sanitise=Sanitise(3.0, 0.02, 20.0)), "must stay open for 'lnmax'"),
        (
            lambda: Aggregation("confident-gnmax", threshold=200.0),
            "`threshold` must be a share of the teachers, at most 2",
        ),
        (lambda: Aggregation("mean", gamma=0.1), "`gamma` must stay open for 'mean'"),
        (lambda: Aggregation("mean", answers=10), "`answers` must stay open for 'mean'"),
        (lambda: Aggregation("mean", sanitise=Sanitise(3.0, 0.02, 20.0)), "`sanitise` must stay open for 'mean'"),
        (lambda: Aggregation("mean", sigma=0.1).built(BUDGET, 10, 100, Ball(9)), "`sigma` must let one answer fit ε = 8"),
        (lambda: Aggregation("gnmax", answers=10), "`answers` must stay open for 'gnmax'"),
        (lambda: Aggregation("confident-gnmax", answers=-1), "`answers` must be a finite number > 0. Got -1"),
        (lambda: Aggregation().built(BUDGET, 0, 100, OneHot(10)), "`queries` must be a whole number ≥ 1. Got 0"),
        (lambda: Aggregation(sigma=0.01).built(BUDGET, 10, 100, OneHot(10)), "`sigma` must let one answer fit ε = 8"),
        (lambda: Aggregation("lnmax", gamma=9.0).built(BUDGET, 10, 100, OneHot(10)), "`gamma` must let one answer fit ε = 8"),
        (lambda: Sanitise(1.0, 0.02, 20.0), "`orders` must be finite numbers > 1"),
        (lambda: Sanitise(3.0, 0.0, 20.0), "`beta` must be a finite number > 0"),
        (lambda: Sanitise(30.0, 0.5, 20.0), r"`order` must be below 1/\(1 − e\^\(−2·beta\)\) = 1.58198"),
        (
            lambda: Aggregation(sanitise=Sanitise(3.0, 0.02, 0.1)).built(BUDGET, 10, 100, OneHot(10)),
            "`sanitise` must leave room for answers in ε = 8",
        ),
        (
            lambda: Aggregation(sanitise=Sanitise(10.0, 0.01, 20.0)).built(BUDGET, 60, 100, OneHot(10)),
            "`sanitise.order` must satisfy conditions C5 and C6",
        ),
        (
            lambda: Aggregation(sanitise=Sanitise(3.0, 0.02, 20.0)).built(
                Budget(8.0, 1e-5, Unit("record", 2)), 60, 100, OneHot(10)
            ),
            "`sanitise` must come with a unit behind one teacher. Got one behind 2",
        ),
    ],
)
def test_votes_that_cannot_be_planned_are_refused(make: Any, rule: str) -> None:
    with pytest.raises(RecipeError, match=rule):
        make()


def test_only_a_screen_makes_a_run_adaptive() -> None:
    assert Aggregation("confident-gnmax").adaptive
    assert Aggregation("interactive-gnmax").adaptive
    assert not Aggregation("gnmax").adaptive
    assert not Aggregation("lnmax").adaptive
    assert not Aggregation("mean").adaptive


# ── means of ballots ──────────────────────────────────────────────────────────────────────────────────────────────────

GONE = Budget(8.0, 1e-5, Unit("institution", 2), Adjacency.ADD_REMOVE)
BOUNDS = [Ball(64, 3.0), Orthant(64, 3.0), Cube(16), Simplex(10), OneHot(10), Binary(9)]


def used_up(sigma: float, bound: Bound, budget: Budget, queries: int = 50) -> bool:
    """Tell whether the book admits so many answers with this noise and not a fiftieth more."""
    event = NoisyMean(bound, sigma, 100, budget.adjacency, budget.unit).event()
    counts = (queries, queries * 51 // 50)
    return [accounting.admits([(event, count)], budget.epsilon, budget.delta) for count in counts] == [True, False]


@pytest.mark.parametrize("budget", [BUDGET, Budget(0.5, 1e-9, Unit("patient", 3)), GONE], ids=["record", "patients", "gone"])
@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: type(bound).__name__)
def test_a_mean_s_noise_uses_the_budget_up_and_no_more(bound: Bound, budget: Budget) -> None:
    mechanism, screen = Aggregation("mean").built(budget, 50, 100, bound)
    assert screen is None
    assert isinstance(mechanism, NoisyMean)
    assert (mechanism.bound, mechanism.teachers, mechanism.adjacency) == (bound, 100, budget.adjacency)
    assert used_up(mechanism.sigma, bound, budget)
    assert Aggregation("mean").planned(budget, 50, 100, bound) == [(mechanism.event(), 50)]


def test_noise_for_the_radius_overspends_where_a_ballot_is_replaced() -> None:
    bound, room = Orthant(64, 3.0), math.sqrt(50) / accounting.epsilon_mu(8.0, 1e-5)
    assert used_up(bound.diameter() * room * (1 + 1e-7), bound, BUDGET)
    assert not used_up(bound.radius() * room * (1 + 1e-7), bound, BUDGET)  # the twin
    gone, _ = Aggregation("mean").built(GONE, 50, 100, bound)
    assert gone.sigma == pytest.approx(2 * bound.radius() * room, rel=1e-6)  # two teachers leave, and leave nothing behind
    assert used_up(gone.sigma, bound, GONE)


def test_a_histogram_costs_what_its_winner_costs() -> None:
    ((mean, means),) = Aggregation("mean").planned(BUDGET, 200, 100, OneHot(10))
    ((winner, winners),) = Aggregation("gnmax").planned(BUDGET, 200, 100, OneHot(10))
    assert isinstance(mean, Gaussian)
    assert isinstance(winner, NoisyMax)
    assert mean.sigma == pytest.approx(winner.scale, rel=1e-12)
    prices = [accounting.cost([pair], 1e-5).epsilon for pair in ((mean, means), (winner, winners))]
    assert prices[0] == pytest.approx(prices[1], rel=1e-12) == pytest.approx(8.0)


def test_given_noise_on_a_mean_is_kept() -> None:
    built, _ = Aggregation("mean", sigma=40.0).built(BUDGET, 10, 100, Ball(9))
    assert built == NoisyMean(Ball(9), 40.0, 100, Adjacency.REPLACE_ONE, Unit())
    assert Aggregation("mean").vectors
    assert not any(Aggregation(method).vectors for method in METHODS if method != "mean")


# ── a choice of coordinates first ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("budget", [BUDGET, Budget(0.5, 1e-9, Unit("patient", 3)), Budget(1.0, 1e-5)], ids=["8", "0.5", "1"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_selection_and_its_values_use_the_budget_up_together_and_no_more(budget: Budget, share: float) -> None:
    how = Aggregation("mean", selection=Selection(2.0, 30, share))
    mechanism, screen = how.built(budget, 40, 130, Ball(500, 58.0))
    choice = how.selecting(budget, 40, mechanism)
    assert screen is None
    assert isinstance(choice, AboveThreshold)
    assert isinstance(mechanism, NoisyMean)
    assert (choice.bound, choice.teachers, choice.answers, choice.unit) == (mechanism.bound, 130, 30, budget.unit)
    events = how.planned(budget, 40, 130, Ball(500, 58.0))
    assert events == [(choice.event(), 40), (mechanism.event(), 40)]
    assert accounting.admits(events, budget.epsilon, budget.delta)
    assert accounting.cost(events, budget.delta).epsilon <= budget.epsilon * (1 + 1e-9)
    more = [(choice.event(), 41), (mechanism.event(), 41)]
    assert not accounting.admits(more, budget.epsilon, budget.delta)
    order = accounting.filter_order(budget.epsilon, budget.delta)
    parts = [count * float(accounting.event_rdp(event, order)[0]) for event, count in events]
    assert parts[0] / sum(parts) == pytest.approx(share, rel=1e-6)


def test_a_selection_that_forgets_its_count_overspends() -> None:
    how = Aggregation("mean", selection=Selection(2.0, 30))
    mechanism, _ = how.built(BUDGET, 40, 130, Ball(500, 58.0))
    twin = how.selecting(BUDGET, 1, mechanism)  # calibrated as if one question were asked
    assert twin is not None
    assert not accounting.admits([(twin.event(), 40), (mechanism.event(), 40)], 8.0, 1e-5)


def test_no_least_noise_is_promised_beside_a_selection() -> None:
    how = Aggregation("mean", sigma=0.5, selection=Selection(2.0, 30))
    with pytest.raises(RecipeError, match="left open, it is calibrated beside the selection"):
        how.built(Budget(8.0, 1e-5), 1000, 100, Ball(64, 1.0))


def test_selections_without_room_and_without_codes_are_refused() -> None:
    loud = Aggregation("mean", selection=Selection(2.0, 30), sigma=Aggregation("mean").built(BUDGET, 40, 130, Ball(9))[0].sigma)  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match="`sigma` must leave a selection some of ε = 8 beside the values"):
        loud.planned(BUDGET, 40, 130, Ball(9))
    assert Aggregation("mean").selecting(BUDGET, 40, NoisyMean(Ball(9), 1.0, 130)) is None
    with pytest.raises(RecipeError, match="`selection` must stay open for 'gnmax', which lets out no codes"):
        Aggregation("gnmax", selection=Selection(2.0, 30))
    with pytest.raises(RecipeError, match=r"`selection.share` must stay open where sigma is given"):
        Aggregation("mean", sigma=40.0, selection=Selection(2.0, 30, 0.5))
    for parts, message in (((0.0, 3), "`threshold`"), ((1.0, 0), "`answers`"), ((1.0, 3, 1.0), "`share`")):
        with pytest.raises(RecipeError, match=message):
            Selection(*parts)


# ── warnings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_warnings_say_when_figures_promise_less_than_they_seem() -> None:
    assert warnings(8.0, 1e-5, 1000) == []
    assert warnings(8.0, 1e-5) == []
    assert warnings(20.0, 1e-3, 999) == []
    (weak,) = warnings(8.0, 1e-3, 1000)
    assert weak.startswith("δ = 0.001 is not below 1/n = 0.001")
    (loose,) = warnings(20.1, 1e-5, 1000)
    assert loose == "ε = 20.1 is above 20: practically no guarantee."
    assert len(warnings(math.inf, 0.5, 2)) == 2


@pytest.mark.parametrize(
    ("how", "bound"),
    [
        (Aggregation(sigma=2.0), OneHot(5)),
        (Aggregation("lnmax", gamma=0.5), OneHot(5)),
        (Aggregation("mean", sigma=2.0), Ball(16)),
        (Aggregation("confident-gnmax", sigma=2.0, answers=8), OneHot(5)),
        (Aggregation(sigma=6.0, sanitise=Sanitise(6.0, 0.062, 4.51)), OneHot(10)),
    ],
)
def test_what_does_not_fit_is_told_with_the_least_noise_that_does(how: Aggregation, bound: Bound) -> None:
    said = how.shortfall(BUDGET, 64, 24, bound)
    assert said is not None
    held, limit = re.search(r"holds (\d+) of 64 .* [γσ] [≥≤] ([\d.e+-]+) fits", said).groups()  # type: ignore[union-attr]
    assert 1 <= int(held) < 64
    key = "gamma" if how.method == "lnmax" else "sigma"
    enough = replace(how, **{key: float(limit)})
    assert enough.shortfall(BUDGET, 64, 24, bound) is None
    little = replace(how, **{key: float(limit) * (1.01 if key == "gamma" else 0.99)})
    if how.sanitise is None:  # beside a release the calibration is at one order, and may be careful
        assert little.shortfall(BUDGET, 64, 24, bound) is not None
    if not how.adaptive and how.sanitise is None:
        assert accounting.admits([(event, int(held)) for event, _ in how.planned(BUDGET, 64, 24, bound)], 8.0, 1e-5)
        assert not accounting.admits([(event, int(held) + 1) for event, _ in how.planned(BUDGET, 64, 24, bound)], 8.0, 1e-5)


def test_calibrated_noise_is_never_short() -> None:
    for method in ("gnmax", "lnmax", "confident-gnmax", "mean"):
        assert Aggregation(method).shortfall(BUDGET, 64, 24, OneHot(5)) is None
