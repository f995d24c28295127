"""Plans chosen on public votes: the right kind for the teachers at hand, and never above the budget."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage import choice
from tutelage.choice import Choice, best, dependent_epsilon, sanitised
from tutelage.choosing import choices
from tutelage.planning import Aggregation, Sanitise
from tutelage.privacy import accounting, consensus
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import Threshold
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Unit
from tutelage.simulation import PublicVotes, right_chance, save, simulate, with_student
from tutelage.worth import Worth

BUDGET = Budget(8.0, 1e-5)
STRONG = simulate(10, 250, 0.995, queries=400)
WEAK = simulate(10, 100, 0.4, agreement=0.31, queries=400)
TAUGHT = with_student(simulate(10, 100, 0.7, queries=400), 0.8)
INTERACTIVE = Aggregation("interactive-gnmax", rounds=4, sure=0.7)


@pytest.fixture(scope="module")
def for_strong() -> list[Choice]:
    return best(STRONG, BUDGET, queries=300)


@pytest.fixture(scope="module")
def for_weak() -> list[Choice]:
    return best(WEAK, BUDGET, queries=300)


@pytest.fixture(scope="module")
def for_taught() -> list[Choice]:
    return best(TAUGHT, BUDGET, queries=300, methods=["interactive-gnmax"], rounds=4, sure=0.7)


# ── what is chosen ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_teachers_that_agree_get_plain_answers_with_much_noise(for_strong: list[Choice]) -> None:
    taken = for_strong[0]
    assert taken.how.method == "gnmax"
    assert taken.queries == 300
    needed, _ = Aggregation("gnmax").built(BUDGET, 300, 250, OneHot(10))
    assert taken.how.sigma > 2 * needed.sigma  # type: ignore[attr-defined, operator]
    assert taken.epsilon < BUDGET.epsilon / 2  # noise that the teachers bear is privacy for nothing
    assert taken.right > 0.98 * 300


def test_weak_teachers_get_a_test_first(for_weak: list[Choice]) -> None:
    taken = for_weak[0]
    assert taken.how.method == "confident-gnmax"
    assert taken.how.answers is not None
    assert taken.how.answers < taken.queries
    plain = max(one.utility for one in best(WEAK, BUDGET, queries=300, methods=["gnmax"]))
    assert taken.utility > 1.2 * plain


def test_a_dearer_mistake_asks_for_surer_answers() -> None:
    mild, strict = (best(WEAK, BUDGET, queries=300, penalty=penalty)[0] for penalty in (0.5, 5.0))
    assert strict.wrong / (strict.right + strict.wrong) < mild.wrong / (mild.right + mild.wrong)
    assert mild.utility == mild.right - 0.5 * mild.wrong


def test_a_limit_on_wrong_answers_is_kept() -> None:
    for limit in (0.3, 0.15):
        for one in best(WEAK, BUDGET, queries=300, penalty=0.0, flip_rate=limit):
            assert one.wrong <= limit * (one.right + one.wrong) * (1 + 1e-9)
    with pytest.raises(RecipeError, match="`budget` must hold a plan on the grid"):
        best(WEAK, Budget(0.05, 1e-9), queries=300, flip_rate=1e-6)


def test_expectations_are_those_of_a_run(for_weak: list[Choice]) -> None:
    """Draw the whole plan many times on the same votes."""
    taken, draw = for_weak[0], np.random.default_rng(0)
    how, right, wrong = taken.how, [], []
    assert how.sigma is not None
    for _ in range(300):
        some = draw.integers(len(WEAK), size=taken.queries)
        counts, truth = WEAK.counts[some], WEAK.truth[some]
        passed = counts.max(axis=1) + draw.normal(0, how.sigma * how.test_ratio, len(some)) >= how.threshold * 100
        said = (counts + draw.normal(0, how.sigma, counts.shape)).argmax(axis=1)
        right.append(np.sum(passed & (said == truth)))
        wrong.append(np.sum(passed & (said != truth)))
    assert taken.right == pytest.approx(np.mean(right), rel=0.04)
    assert taken.wrong == pytest.approx(np.mean(wrong), rel=0.06)
    assert taken.how.answers == pytest.approx(np.mean(right) + np.mean(wrong), rel=0.2)  # planned for, with something to spare


def test_a_student_that_knows_more_is_asked_for_more_before_it_is_told(for_taught: list[Choice]) -> None:
    """With nothing known already, and with much known: a higher bar, and fewer answers planned for."""
    votes = simulate(10, 100, 0.7, queries=400)
    weak, strong = (
        best(with_student(votes, accuracy), BUDGET, queries=300, methods=["interactive-gnmax"])[0] for accuracy in (0.15, 0.97)
    )
    assert (weak.how.answers or 0) > 1.3 * (strong.how.answers or 0)
    assert weak.right - weak.known > strong.right - strong.known
    assert strong.own > weak.own
    assert all(one.how.interactive for one in for_taught)


def test_a_plan_made_for_nobody_is_worth_less_to_a_student() -> None:
    """A twin that ignores the student takes what is best for one who expects nothing, and is beaten on the one there is."""
    votes = with_student(simulate(10, 100, 0.8, queries=400), 0.9)
    budget, name = Budget(1.0, 1e-5), ["interactive-gnmax"]
    real = best(votes, budget, queries=300, methods=name)[0]
    even = replace(votes, student=np.full_like(votes.counts, 0.1))
    blind = best(even, budget, queries=300, methods=name)[0]
    assert blind.how.sigma is not None
    seen = Worth(votes, blind.how, [blind.how.sigma], right_chance(votes, blind.how.sigma)[None])
    plan = (blind.queries, blind.how.sigma, blind.how.threshold, blind.how.sigma * blind.how.test_ratio)
    labels = seen.labels(*(np.asarray([value]) for value in plan))
    labels = labels.held(np.minimum(1.0, (blind.how.answers or 0) / labels.answers))
    assert real.utility > 1.05 * float(labels.worth(1.0)[0])


# ── what it costs ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("budget", [BUDGET, Budget(0.5, 1e-6), Budget(3.0, 1e-5, Unit("institution", 3))])
@pytest.mark.parametrize("votes", [STRONG, WEAK], ids=["strong", "weak"])
def test_every_plan_fits_the_budget(votes: PublicVotes, budget: Budget) -> None:
    found = best(votes, budget, queries=200, keep=100)
    assert {one.how.method for one in found} == {"gnmax", "confident-gnmax"}
    for one in found:
        events = one.events(budget)
        assert accounting.admits(events, budget.epsilon, budget.delta)
        assert accounting.cost(events, budget.delta).epsilon == pytest.approx(one.epsilon, rel=1e-6)


@pytest.mark.parametrize("budget", [BUDGET, Budget(0.5, 1e-6), Budget(3.0, 1e-5, Unit("institution", 3))])
def test_every_interactive_plan_fits_the_budget_at_the_price_of_a_run(budget: Budget) -> None:
    for one in best(TAUGHT, budget, queries=200, methods=["interactive-gnmax"], keep=100):
        mechanism, screen = one.how.built(budget, one.queries, 100, OneHot(10))
        assert screen is not None
        assert screen.beyond_student
        assert one.how.answers is not None
        charged = [(screen.event(), one.queries), (mechanism.event(), one.how.answers)]
        assert one.events(budget) == charged
        assert accounting.admits(charged, budget.epsilon, budget.delta)
        assert accounting.cost(charged, budget.delta).epsilon == pytest.approx(one.epsilon, rel=1e-6)


def test_the_whole_budget_is_used_where_teachers_need_it(for_weak: list[Choice]) -> None:
    assert 0.97 * BUDGET.epsilon < for_weak[0].epsilon <= BUDGET.epsilon


def test_a_twin_that_counts_tests_for_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = choice._mu

    def free(budget: Budget, tests: Any, answers: Any, sigma: Any, ratio: Any) -> Any:
        return real(budget, 0.0 * np.asarray(tests), answers, sigma, ratio)

    monkeypatch.setattr(choice, "_mu", free)
    with pytest.raises(RecipeError, match=r"every plan must fit ε = 8\. Got Aggregation"):
        best(WEAK, BUDGET, queries=300)


def test_a_plan_is_a_recipes_aggregation(for_weak: list[Choice], for_strong: list[Choice], for_taught: list[Choice]) -> None:
    interactive = (for_taught[0], sanitised(TAUGHT, for_taught[0], BUDGET))
    assert {(one.how.rounds, one.how.sure) for one in interactive} == {(4, 0.7)}
    for taken in (for_weak[0], for_strong[0], sanitised(STRONG, for_strong[0], BUDGET), *interactive):
        text = taken.toml()
        section = tomllib.loads(text)["aggregation"]
        queries, release = section.pop("queries"), section.pop("sanitise", None)
        how = Aggregation(**section, sanitise=None if release is None else Sanitise(**release))
        assert how == taken.how
        assert queries == taken.queries
        assert accounting.admits(how.planned(BUDGET, queries, taken.teachers, OneHot(10)), 8.0, 1e-5)
        assert text.startswith('# tuned_on = "simulated: accuracy ')


def test_noise_is_rounded_upwards_to_four_figures() -> None:
    assert choice._rounded_up(np.asarray([12.00461, 0.0123451, 999.96])).tolist() == [12.01, 0.01235, 1000.0]


# ── data-dependent figures ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_dependent_figure_is_that_of_the_votes() -> None:
    votes = simulate(10, 100, 0.95, queries=100)
    taken = best(votes, BUDGET, queries=100, methods=["gnmax"])[0]
    assert taken.how.sigma is not None
    curve = consensus.gnmax_rdp(votes.counts, taken.how.sigma, accounting.ORDERS).sum(axis=0) * taken.queries / 100
    expected = accounting.rdp_to_epsilon(curve, accounting.ORDERS, 1e-5)[0]
    assert dependent_epsilon(votes, taken, BUDGET) == pytest.approx(expected)
    assert expected < taken.epsilon


@pytest.mark.parametrize(("votes", "method"), [(STRONG, "gnmax"), (WEAK, "confident-gnmax")], ids=["strong", "weak"])
def test_a_sanitised_plan_fits_and_says_what_to_expect(votes: PublicVotes, method: str) -> None:
    before = best(votes, BUDGET, queries=100, methods=[method])[0]
    after = sanitised(votes, before, BUDGET)
    assert after.how.sanitise is not None
    assert after.how.sigma is not None
    assert before.how.sigma is not None
    assert after.how.sigma >= before.how.sigma
    assert accounting.admits(after.events(BUDGET), 8.0, 1e-5)
    assert all(consensus.gnmax_smooth_conditions(after.how.sigma, 10, after.how.sanitise.order))
    assert after.sanitised_epsilon is not None
    assert after.sanitised_deviation is not None
    assert 0 < after.sanitised_deviation < after.sanitised_epsilon < 12
    assert after.right <= before.right * 1.001  # the search interpolates between noises


def test_tests_beyond_a_student_have_the_price_that_a_run_gives_them(for_taught: list[Choice]) -> None:
    taken = for_taught[0]
    assert taken.how.sigma is not None
    tests = accounting.event_rdp(Threshold(taken.how.sigma * taken.how.test_ratio), accounting.ORDERS) * taken.queries
    answers = consensus.gnmax_rdp(TAUGHT.counts, taken.how.sigma, accounting.ORDERS)
    passing = choice._passing(TAUGHT, taken)
    expected = passing @ answers * taken.queries / len(TAUGHT) + tests
    assert choice._expected_rdp(TAUGHT, taken, accounting.ORDERS) == pytest.approx(expected)
    assert passing.mean() * taken.queries == pytest.approx(taken.right + taken.wrong, rel=2e-3)
    after = sanitised(TAUGHT, taken, BUDGET)
    assert accounting.admits(after.events(BUDGET), 8.0, 1e-5)
    assert (after.how.sigma or 0.0) >= taken.how.sigma
    assert after.sanitised_deviation is not None
    assert after.own == pytest.approx(taken.own, rel=0.2)


def test_the_release_is_better_than_one_picked_by_hand() -> None:
    votes = simulate(10, 100, 0.97, queries=250)
    taken = sanitised(votes, best(votes, BUDGET, queries=100, methods=["gnmax"])[0], BUDGET)
    assert taken.sanitised_epsilon is not None
    assert taken.sanitised_deviation is not None
    assert taken.how.sanitise is not None
    mine = taken.sanitised_epsilon + taken.sanitised_deviation
    for release in (Sanitise(3.0, 0.02, 20.0), Sanitise(2.0, 0.1, 5.0), replace(taken.how.sanitise, sigma=60.0)):
        assert sum(choice._figure(votes, taken, BUDGET, release)) > mine


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"queries": 0}, "`queries` must be a whole number ≥ 1. Got 0"),
        ({"keep": 0}, "`keep` must be a whole number ≥ 1. Got 0"),
        ({"penalty": -1.0}, "`penalty` must be a finite number ≥ 0. Got -1.0"),
        ({"flip_rate": 1.0}, r"`flip_rate` must be in \(0, 1\)"),
        ({"methods": ["lnmax"]}, "`methods` must be among 'gnmax' and 'confident-gnmax', or .* alone. Got \\['lnmax'\\]"),
        ({"methods": ["gnmax", "interactive-gnmax"]}, "'interactive-gnmax' alone. Got \\['gnmax', 'interactive-gnmax'\\]"),
        ({"methods": ["interactive-gnmax"]}, "`student` must come with the votes for 'interactive-gnmax'"),
        ({"methods": ["interactive-gnmax"], "rounds": 1, "sure": 0.05}, "`sure` must be above 1/10"),
        ({"methods": []}, "`methods` must be among"),
    ],
)
def test_choices_that_cannot_be_made_are_refused(change: dict[str, Any], rule: str) -> None:
    settings: dict[str, Any] = {"queries": 10, **change}
    with pytest.raises(RecipeError, match=rule):
        best(WEAK, BUDGET, **settings)


def test_votes_come_from_one_place_and_fit_the_recipe(tmp_path: Path) -> None:
    file = save(WEAK, tmp_path / "votes")
    for words in ({}, {"accuracy": 0.5, "file": file}, {"agreement": 0.5, "file": file}):
        with pytest.raises(RecipeError, match="`votes` must be either simulated"):
            choices(BUDGET, 10, 100, 50, **words)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match=r"`votes` must be of the recipe's 50 teachers and 10 classes\. Got 100 and 10"):
        choices(BUDGET, 10, 50, 50, file=file)
    assert choices(BUDGET, 10, 100, 50, file=file)[0].source == "votes.npz"
    wide = choices(Budget(8.0, 1e-5, Unit("institution", 2)), 10, 100, 50, accuracy=0.8)
    assert wide[0].dependent_epsilon is None  # that price is for one vote


def test_a_student_comes_from_one_place_and_where_one_is_fitted(tmp_path: Path) -> None:
    alone, both = save(replace(TAUGHT, student=None), tmp_path / "alone"), save(TAUGHT, tmp_path / "both")
    for words, what in (({"file": alone}, "none"), ({"accuracy": 0.7}, "none"), ({"file": both, "student": 0.8}, "both")):
        with pytest.raises(
            RecipeError, match=rf"`student` must be either simulated \(--student-accuracy\) .* Got {what} instead"
        ):
            choices(BUDGET, 10, 100, 50, how=INTERACTIVE, **words)  # type: ignore[arg-type]
    once = replace(INTERACTIVE, rounds=1)
    for how, got in ((None, "'gnmax' in 1"), (once, "'interactive-gnmax' in 1")):
        with pytest.raises(RecipeError, match=f"`student_accuracy` must come with .* Got {got} instead"):
            choices(BUDGET, 10, 100, 50, how=how, accuracy=0.7, student=0.8)
    assert choices(BUDGET, 10, 100, 50, how=INTERACTIVE, file=both)[0].source == "both.npz"
    beside = choices(BUDGET, 10, 100, 50, how=INTERACTIVE, file=alone, student=0.8)[0]
    assert beside.source == "alone.npz; a simulated student, accuracy 0.8"
    assert beside.dependent_epsilon is not None
    assert beside.sanitised_epsilon is None
    assert choices(BUDGET, 10, 100, 50, how=once, file=alone)[0].own == 0  # one round: nobody is fitted in between


def test_an_interactive_figure_is_sanitised_where_the_recipe_says_so() -> None:
    how = replace(INTERACTIVE, sanitise=Sanitise(3.0, 0.02, 20.0))
    taken = choices(BUDGET, 10, 100, 50, how=how, accuracy=0.9, student=0.8)[0]
    assert taken.how.sanitise is not None
    assert taken.sanitised_epsilon is not None
    assert "[aggregation.sanitise]" in taken.toml()


def test_other_methods_keep_the_rounds_and_questions_of_their_recipe() -> None:
    taken = choices(BUDGET, 10, 100, 50, how=Aggregation("gnmax", rounds=3), accuracy=0.9)[0]
    section = tomllib.loads(taken.toml(questions="uncertain"))["aggregation"]
    assert (section["rounds"], section["questions"]) == (3, "uncertain")
    assert "sure" not in section
    assert {taken.figures()[name] for name in ("known", "own", "mistaken")} == {None}
