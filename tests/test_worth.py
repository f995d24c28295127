"""The labels that a plan is said to give are those that the real test and the real answers give."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tutelage as tt
from tutelage import worth
from tutelage.choice import Choice, best
from tutelage.planning import Aggregation
from tutelage.privacy import accounting
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import NoisyMax, Threshold
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.mechanisms import GNMax, ThresholdTest
from tutelage.privacy.sealed import Sealed
from tutelage.simulation import PublicVotes, right_chance, simulate, with_student
from tutelage.tasks.labels.interview import Interview
from tutelage.telling import silent
from tutelage.worth import Situation, Worth, parts, situations

BUDGET = Budget(6.0, 1e-5)
VOTES = with_student(simulate(10, 60, 0.7, queries=500), 0.75)
KINDS = ("right", "wrong", "known", "own", "mistaken")
RUNS = 40


@pytest.fixture(scope="module")
def taken() -> Choice:
    return best(VOTES, BUDGET, queries=200, methods=["interactive-gnmax"], rounds=3, sure=0.8)[0]


def cast(counts: Any) -> np.ndarray:
    """Give ballots (teachers, questions) that add up to these counts."""
    return np.stack([np.repeat(np.arange(counts.shape[1]), row.astype(int)) for row in counts], axis=1)


def run(votes: PublicVotes, how: Aggregation, queries: int, draw: np.random.Generator) -> list[int]:
    """Take the mechanism's two steps on questions drawn from the votes, in rounds, and count labels as `KINDS` names them."""
    mechanism, screen = how.built(BUDGET, queries, votes.teachers, OneHot(votes.classes))
    assert isinstance(mechanism, GNMax)
    assert isinstance(screen, ThresholdTest)
    assert votes.student is not None
    some = draw.integers(len(votes), size=queries)
    first = len(np.array_split(some, how.turns)[0])
    expected = votes.student[some].copy()
    expected[:first] = 1 / votes.classes
    ballots = Sealed(cast(votes.counts[some])[..., None] == np.arange(votes.classes))
    passed = screen.contribute(ballots, baseline=expected)
    said, truth = mechanism.contribute(ballots), votes.truth[some]
    guess, late = expected.argmax(axis=1), np.arange(queries) >= first
    own = ~passed & (expected.max(axis=1) >= how.sure)
    right = passed & (said == truth)
    counted = (right, passed & (said != truth), right & late & (guess == truth), own, own & (guess != truth))
    return [int(kind.sum()) for kind in counted]


@pytest.fixture(scope="module")
def drawn(taken: Choice) -> np.ndarray:
    draw = np.random.default_rng(0)
    return np.asarray([run(VOTES, taken.how, taken.queries, draw) for _ in range(RUNS)])  # (runs, kinds)


def away(drawn: np.ndarray, expected: Any) -> np.ndarray:
    """Tell by how many deviations of their mean the runs are off what was expected, beside a tenth of a label for the grid."""
    error = np.maximum(np.abs(drawn.mean(axis=0) - [float(getattr(expected, kind)) for kind in KINDS]) - 0.1, 0)
    return np.asarray(error / (drawn.std(axis=0, ddof=1) / math.sqrt(len(drawn)) + 1e-9))


# ── what is expected is what happens ──────────────────────────────────────────────────────────────────────────────────


def test_a_plan_has_every_kind_of_label(taken: Choice) -> None:
    assert taken.how.interactive
    assert (taken.how.rounds, taken.how.sure) == (3, 0.8)
    for kind in KINDS:
        assert getattr(taken, kind) > 0.5, kind
    assert taken.known < taken.right
    assert taken.mistaken < taken.own
    assert taken.utility == pytest.approx(taken.right - taken.known - taken.wrong - taken.mistaken)


def test_expectations_are_those_of_the_real_mechanism(taken: Choice, drawn: np.ndarray) -> None:
    assert (away(drawn, taken) < 5).all()


def expectation(how: Aggregation, queries: int, votes: PublicVotes = VOTES) -> Any:
    """Ask for one plan's labels, scalars in place of arrays."""
    assert how.sigma is not None
    asked = Worth(votes, how, [how.sigma], right_chance(votes, how.sigma)[None])
    found = asked.labels(*(np.asarray([x]) for x in (queries, how.sigma, how.threshold, how.sigma * how.test_ratio)))
    return type("One", (), {kind: float(getattr(found, kind)[0]) for kind in KINDS})


def ignoring_the_student(votes: PublicVotes, how: Aggregation) -> list[Situation]:
    first, later = situations(votes, how)
    return [first, replace(later, beyond=votes.counts.max(axis=1))]


def knowing_from_the_start(votes: PublicVotes, how: Aggregation) -> list[Situation]:
    _, later = situations(votes, how)
    return [later, later]


def never_sure(votes: PublicVotes, how: Aggregation) -> list[Situation]:
    first, later = situations(votes, how)
    return [first, replace(later, own=np.zeros(len(votes), dtype=bool))]


@pytest.mark.parametrize("twin", [ignoring_the_student, knowing_from_the_start, never_sure])
def test_twins_are_caught(taken: Choice, drawn: np.ndarray, twin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert (away(drawn, expectation(taken.how, taken.queries)) < 5).all()
    monkeypatch.setattr(worth, "situations", twin)
    assert (away(drawn, expectation(taken.how, taken.queries)) > 5).any()


def test_the_grid_agrees_with_every_question_counted_by_itself(taken: Choice) -> None:
    how, chance = taken.how, right_chance(VOTES, taken.how.sigma or 0.0)
    found = np.zeros(3)
    for one, part in zip(situations(VOTES, how), parts(how, taken.queries)[:, 0], strict=True):
        passing = one.passing(how.threshold * 60, (how.sigma or 0.0) * how.test_ratio)
        found += part * taken.queries * np.asarray([(passing * chance).mean(), passing.mean(), ((1 - passing) * one.own).mean()])
    assert [taken.right, taken.right + taken.wrong, taken.own] == pytest.approx(found.tolist(), rel=2e-3)


# ── a run, with its book ──────────────────────────────────────────────────────────────────────────────────────────────


class Numbered:
    """Teachers and a student that are asked for records by number, and say what the votes say they would."""

    def __init__(self, votes: PublicVotes) -> None:
        self.votes, self.said = votes, cast(votes.counts)

    def vote(self, inputs: np.ndarray) -> Sealed:
        return Sealed(self.said[:, inputs[:, 0].astype(int)])

    def fit(self, public: Any, labels: Any) -> Numbered:
        return self

    def probabilities(self, inputs: np.ndarray) -> np.ndarray:
        assert self.votes.student is not None
        return self.votes.student[np.asarray(inputs)[:, 0].astype(int)]


def interviewed(votes: PublicVotes, plan: Choice, folder: Path) -> tuple[Any, dict[str, int], float]:
    """Carry the plan out through the door: the labels, what the book was charged for, and what that costs."""
    mechanism, screen = plan.how.built(BUDGET, plan.queries, plan.teachers, OneHot(plan.classes))
    public, everybody = tt.Public.of(np.arange(len(votes), dtype=np.float64)[:, None]), Numbered(votes)
    with Ledger(folder / "book.sqlite", BUDGET) as book:
        curator = Curator(everybody, tt.Votes(plan.classes), mechanism, book, screen=screen)
        found = Interview(public, plan.queries, plan.classes, plan.how, None).hold(
            curator,
            lambda: everybody,  # type: ignore[arg-type, return-value]
            folder / "rounds",
            silent,
        )
        assert accounting.admits(book.totals(), BUDGET.epsilon, BUDGET.delta)
        return found, {type(event).__name__: count for event, count in book.totals()}, book.spent().epsilon


def test_a_run_is_charged_what_the_plan_says_and_gives_the_labels_it_says(taken: Choice, tmp_path: Path) -> None:
    found, charged, spent = interviewed(VOTES, taken, tmp_path)
    events = {type(event).__name__: count for event, count in taken.events(BUDGET)}
    assert events == {"Threshold": taken.queries, "NoisyMax": taken.how.answers}
    assert charged["Threshold"] > 0.8 * taken.queries  # the budget may end before the questions do
    assert abs(charged["NoisyMax"] - taken.right - taken.wrong) < 5 * math.sqrt(taken.queries / 4)
    assert found.counts()["released"] == charged["NoisyMax"]
    assert abs(found.counts()["reinforced"] - taken.own) < 5 * math.sqrt(taken.queries / 4)
    assert spent <= BUDGET.epsilon * (1 + 1e-9)
    sigma = taken.how.sigma or 0.0
    mine = [(Threshold(sigma * taken.how.test_ratio), charged["Threshold"]), (NoisyMax("gaussian", sigma), charged["NoisyMax"])]
    assert spent == pytest.approx(accounting.cost(mine, BUDGET.delta).epsilon)


def test_votes_unlike_those_it_was_chosen_on_end_a_run_and_not_its_budget(taken: Choice, tmp_path: Path) -> None:
    wrong = np.eye(10)[(VOTES.truth + 1) % 10]
    stubborn = PublicVotes(60 * np.eye(10)[VOTES.truth], VOTES.truth, student=wrong)  # every test passes
    _, charged, spent = interviewed(stubborn, taken, tmp_path)
    assert charged["Threshold"] < taken.queries
    assert charged["NoisyMax"] > (taken.how.answers or 0)
    assert 0.95 * BUDGET.epsilon < spent <= BUDGET.epsilon * (1 + 1e-9)


# ── situations ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_first_round_takes_what_is_over_and_one_round_is_all() -> None:
    how = Aggregation("interactive-gnmax", rounds=3)
    for count in (1, 2, 3, 10, 100, 301):
        sizes = [len(part) for part in np.array_split(np.arange(count), min(3, count))]
        assert parts(how, count)[:, 0] == pytest.approx([sizes[0] / count, 1 - sizes[0] / count])
    assert parts(Aggregation("interactive-gnmax", rounds=1), 10).tolist() == [[1.0]]
    assert parts(Aggregation("confident-gnmax"), [10, 20]).tolist() == [[1.0, 1.0]]


def test_one_round_has_no_student_and_more_need_one() -> None:
    alone = simulate(10, 60, 0.7, queries=50)
    (only,) = situations(alone, Aggregation("interactive-gnmax", rounds=1))
    assert only.beyond == pytest.approx(alone.counts.max(axis=1) - 6)
    assert not (only.known | only.own).any()
    with pytest.raises(RecipeError, match=r"`student` must come with the votes for 'interactive-gnmax' .* Got none instead"):
        situations(alone, Aggregation("interactive-gnmax"))


def test_a_student_that_knows_everything_leaves_nothing_to_ask() -> None:
    sure = 0.98 * np.eye(10)[VOTES.truth] + 0.002
    found = best(replace(VOTES, student=sure), BUDGET, queries=200, methods=["interactive-gnmax"], rounds=2)[0]
    assert found.mistaken == 0
    assert found.right - found.known <= 100  # the first round's
