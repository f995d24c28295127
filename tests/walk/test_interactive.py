"""Interactive-GNMax from end to end: rounds, the student's own labels, and resuming without paying twice."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.walk.tiny import CLASSES, QUESTIONS, Killed, MeanTeachers, clouds, kill_after, promised, tiny_run

import tutelage as tt
from tutelage.data.digits import digits
from tutelage.planning import Aggregation
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.ledger import Ledger, charges
from tutelage.runs import RunFolder
from tutelage.students.questions import Uncertain
from tutelage.tasks.labels.interview import class_shares
from tutelage.transfer import Outcome
from tutelage.verification import verify

WALK = Aggregation("interactive-gnmax", threshold=0.3, answers=80, sure=0.7)
CLEAR = Aggregation("interactive-gnmax", threshold=0.5, sigma=1.0, test_ratio=1.0)  # hardly any noise: what happens is certain
SHY = Aggregation("interactive-gnmax", threshold=1.0)  # hardly anything passes: there is room to pay twice
RICH = tt.Budget(500.0, 1e-5)


def tally(out: Path) -> dict[str, int]:
    """Count what the book was charged for."""
    found: dict[str, int] = {}
    with Ledger(out / "private" / "book.sqlite") as book:
        for event, count in charges(book.entries()):
            found[type(event).__name__] = found.get(type(event).__name__, 0) + count
    return found


class Opinion:
    """A student that says of every record what it was told to say."""

    def __init__(self, shares: Callable[[np.ndarray], np.ndarray], fits: list[int] | None = None, lives: int = 99) -> None:
        self.shares, self.fits, self.lives = shares, [] if fits is None else fits, lives

    def fit(self, public: Any, labels: Any) -> Opinion:
        self.fits.append(int((labels >= 0).sum()))
        if len(self.fits) > self.lives:
            raise Killed
        return self

    def probabilities(self, inputs: Any) -> np.ndarray:
        return self.shares(np.asarray(inputs))

    def predict(self, inputs: Any) -> np.ndarray:
        return self.probabilities(inputs).argmax(axis=1)

    def save(self, path: Path) -> Path:
        path.write_text("opinion", encoding="utf-8")
        return path


def share_of(labels: np.ndarray, top: float) -> np.ndarray:
    """Put the share `top` on one class per record and the rest evenly on the others."""
    shares = np.full((len(labels), CLASSES), (1 - top) / (CLASSES - 1))
    shares[np.arange(len(labels)), labels] = top
    return shares


def truth(inputs: np.ndarray) -> np.ndarray:
    """Name the nearest corner of the clouds."""
    corners = np.asarray([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    return np.asarray(((inputs[:, None] - corners) ** 2).sum(axis=2).argmin(axis=1))


def moody(inputs: np.ndarray) -> np.ndarray:
    """Think something else every time, as a network that is trained again on a GPU does in its last bits."""
    return np.random.default_rng().dirichlet(np.ones(CLASSES), len(inputs))


# ── the whole walk ────────────────────────────────────────────────────────────────────────────────────────────────────


def walk(out: Path, student: Any = None, **choices: Any) -> Outcome:
    private, public, test = digits()
    settings: dict[str, Any] = {
        "teachers": tt.EstimatorTeachers("kernel"),
        "student": student or (lambda: tt.SpreadingStudent("kernel")),
        "codec": tt.Votes(10),
        "budget": tt.Budget(8.0, 1e-5),
        "shards": 100,
        "queries": 150,
        "aggregation": WALK,
        "questions": Uncertain(),
        "test": test,
        "controls": False,
        "purpose": "interactive",
        **choices,
    }
    return tt.transfer(private, public, out=out, **settings)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return walk(tmp_path_factory.mktemp("interactive") / "run")


def test_the_walk_keeps_its_budget_and_is_verified(outcome: Outcome) -> None:
    said = outcome.guarantee
    assert said["adaptive"] is True
    assert said["epsilon"] == 8.0
    assert 0 < said["data_independent_epsilon"] <= 8.0 * (1 + 1e-9)
    assert verify(outcome.folder).recomputed_epsilon <= 8.0 * 1.005
    assert outcome.scores["private student"] > 0.6  # 0.86 ± 0.03 over runs; the public-only control is at 0.1


def test_labels_are_counted_by_who_gave_them(outcome: Outcome) -> None:
    counts, charged = outcome.guarantee["labels"], tally(outcome.folder.root)
    assert (counts["released"], counts["reinforced"]) == (charged["NoisyMax"], int(outcome.reinforced.sum()))
    assert counts["distinct"] <= counts["released"]
    assert (outcome.labels >= 0).sum() == counts["released"] + counts["reinforced"] <= charged["Threshold"] <= 150
    with (outcome.folder.release / "labels.csv").open(encoding="utf-8") as file:
        sources = [row["source"] for row in csv.DictReader(file)]
    assert (sources.count("teachers"), sources.count("student")) == (counts["released"], counts["reinforced"])
    scores = json.loads(outcome.folder.scores.read_text(encoding="utf-8"))
    assert ("reinforced labels" in scores) == (counts["reinforced"] > 0)


def test_every_round_is_kept_and_asks_about_other_records(outcome: Outcome) -> None:
    rounds = [np.load(path) for path in sorted(outcome.folder.rounds.iterdir())]
    chosen = np.concatenate([one["chosen"] for one in rounds])
    assert len(rounds) <= 3
    assert len(np.unique(chosen)) == len(chosen) <= 150
    assert (rounds[0]["shares"] == 0.1).all()  # nobody knows anything yet
    assert not (rounds[1]["shares"] == 0.1).all()
    assert set(np.flatnonzero(outcome.labels >= 0)) <= set(chosen.tolist())


def test_resuming_a_finished_walk_costs_nothing_and_changes_nothing(outcome: Outcome, tmp_path: Path) -> None:
    shutil.copytree(outcome.folder.root, tmp_path / "run")
    again = walk(tmp_path / "run", resume=True)
    assert promised(again) == promised(outcome)
    assert np.array_equal(again.labels, outcome.labels)
    assert np.array_equal(again.reinforced, outcome.reinforced)


def test_a_walk_whose_student_dies_between_rounds_goes_on_where_it_was(tmp_path: Path) -> None:
    fits: list[int] = []

    class Mortal:
        def fit(self, public: Any, labels: Any) -> Any:
            fits.append(1)
            if len(fits) == 2:
                raise Killed
            return tt.SpreadingStudent("kernel").fit(public, labels)

    with pytest.raises(Killed):
        walk(tmp_path / "run", Mortal)
    before = tally(tmp_path / "run")
    assert before["Threshold"] == 100  # two rounds of fifty
    outcome = walk(tmp_path / "run", Mortal, resume=True)
    after = tally(tmp_path / "run")
    assert before["Threshold"] < after["Threshold"] <= 150
    assert after["NoisyMax"] == outcome.guarantee["labels"]["released"]  # nothing was paid for and not had
    assert verify(outcome.folder).recomputed_epsilon <= 8.0 * 1.005


# ── what becomes of a question ────────────────────────────────────────────────────────────────────────────────────────


def test_a_sure_student_that_is_right_is_confirmed_for_the_price_of_a_test(tmp_path: Path) -> None:
    student = Opinion(lambda inputs: share_of(truth(inputs), 0.95))
    outcome = tiny_run(tmp_path / "run", aggregation=CLEAR, budget=RICH, student=lambda: copy(student))
    counts = outcome.guarantee["labels"]
    assert counts["reinforced"] >= 18  # of the 20 questions after the first round
    assert counts["released"] + counts["reinforced"] <= QUESTIONS
    assert tally(tmp_path / "run") == {"Threshold": QUESTIONS, "NoisyMax": counts["released"]}
    pool, _ = clouds(60, 1)
    assert np.array_equal(outcome.labels[outcome.reinforced], truth(pool)[outcome.reinforced])


def test_an_unsure_student_gets_no_label_of_its_own(tmp_path: Path) -> None:
    student = Opinion(lambda inputs: share_of(truth(inputs), 0.85))  # right, but below `sure`
    outcome = tiny_run(tmp_path / "run", aggregation=CLEAR, budget=RICH, student=lambda: copy(student))
    assert outcome.guarantee["labels"]["reinforced"] == 0
    assert not outcome.reinforced.any()
    assert outcome.guarantee["labels"]["released"] <= 12  # the first round, and hardly anything after it


def test_a_student_that_is_sure_and_wrong_is_corrected(tmp_path: Path) -> None:
    student = Opinion(lambda inputs: share_of((truth(inputs) + 1) % CLASSES, 1.0))
    outcome = tiny_run(tmp_path / "run", aggregation=CLEAR, budget=RICH, student=lambda: copy(student))
    assert outcome.guarantee["labels"]["released"] >= 25
    pool, _ = clouds(60, 1)
    given = outcome.labels >= 0
    assert np.mean(outcome.labels[given] == truth(pool)[given]) > 0.85


def test_the_first_round_expects_every_class_alike_and_needs_no_student(tmp_path: Path) -> None:
    student = Opinion(lambda inputs: share_of(truth(inputs), 0.95))
    outcome = tiny_run(tmp_path / "run", aggregation=CLEAR, budget=RICH, student=lambda: copy(student), test=None)
    assert len(student.fits) == 3  # after the first round, after the second, and in the end
    assert student.fits == sorted(student.fits)
    assert np.allclose(np.load(outcome.folder.rounds / "1.npz")["shares"], 1 / CLASSES)
    assert outcome.folder.rounds.parent == outcome.folder.release  # public: it follows from what was released


# ── paying once ───────────────────────────────────────────────────────────────────────────────────────────────────────


def killed_after_two_rounds(out: Path) -> None:
    student = Opinion(moody, lives=1)
    with pytest.raises(Killed):
        tiny_run(out, aggregation=SHY, student=lambda: copy(student))
    assert tally(out)["Threshold"] == 20
    assert {path.name for path in RunFolder(out).rounds.iterdir()} == {"1.npz", "2.npz"}


def test_a_resumed_run_takes_up_the_expectations_it_had(tmp_path: Path) -> None:
    killed_after_two_rounds(tmp_path / "run")
    second = (RunFolder(tmp_path / "run").rounds / "2.npz").read_bytes()
    tiny_run(tmp_path / "run", aggregation=SHY, student=lambda: Opinion(moody), resume=True)
    assert tally(tmp_path / "run")["Threshold"] == QUESTIONS  # each question paid for once
    assert (RunFolder(tmp_path / "run").rounds / "2.npz").read_bytes() == second


def test_a_twin_that_forgets_its_rounds_pays_twice(tmp_path: Path) -> None:
    killed_after_two_rounds(tmp_path / "run")
    shutil.rmtree(RunFolder(tmp_path / "run").rounds)
    tiny_run(tmp_path / "run", aggregation=SHY, student=lambda: Opinion(moody), resume=True)
    assert tally(tmp_path / "run")["Threshold"] > QUESTIONS


@pytest.mark.parametrize("lives", [0, 4, 13, 25])
def test_kills_inside_a_round_waste_what_was_drawn_and_no_more(lives: int, tmp_path: Path, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        kill_after(patch, lives)
        with pytest.raises(Killed):
            tiny_run(tmp_path / "run", aggregation=SHY, student=lambda: Opinion(moody))
    outcome = tiny_run(tmp_path / "run", aggregation=SHY, student=lambda: Opinion(moody), resume=True)
    assert tally(tmp_path / "run")["Threshold"] == QUESTIONS + 1  # blocks of one: the kill wasted one
    assert outcome.guarantee["data_independent_epsilon"] <= 8 * (1 + 1e-9)
    assert verify(outcome.folder).events == sum(tally(tmp_path / "run").values())


def test_rounds_of_another_plan_are_refused(tmp_path: Path) -> None:
    killed_after_two_rounds(tmp_path / "run")
    more = Aggregation("interactive-gnmax", threshold=1.0, rounds=6)
    with pytest.raises(DataError, match="`rounds` must be those of this plan and pool"):
        tiny_run(tmp_path / "run", aggregation=more, student=lambda: Opinion(moody), resume=True)


def test_rounds_of_another_run_are_not_taken_up(tmp_path: Path) -> None:
    killed_after_two_rounds(tmp_path / "run")
    other = RunFolder(tmp_path / "other").create()
    shutil.copytree(RunFolder(tmp_path / "run").rounds, other.rounds)
    first = (other.rounds / "1.npz").read_bytes()
    tiny_run(tmp_path / "other", aggregation=SHY, student=lambda: Opinion(moody), purpose="another")
    assert (other.rounds / "1.npz").read_bytes() != first
    assert tally(tmp_path / "other")["Threshold"] == QUESTIONS


def test_a_spoiled_round_is_refused(tmp_path: Path) -> None:
    killed_after_two_rounds(tmp_path / "run")
    (RunFolder(tmp_path / "run").rounds / "2.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"`rounds` must be a file that is whole and readable\. Got .* from 2\.npz instead"):
        tiny_run(tmp_path / "run", aggregation=SHY, student=lambda: Opinion(moody), resume=True)


def test_a_budget_that_is_gone_ends_the_rounds(tmp_path: Path) -> None:
    eager = Aggregation("interactive-gnmax", threshold=0.01, answers=5)  # nearly everything passes: the budget ends early
    student = Opinion(lambda inputs: np.full((len(inputs), CLASSES), 1 / CLASSES))
    outcome = tiny_run(tmp_path / "run", aggregation=eager, student=lambda: copy(student), queries=60, test=None)
    assert len(list(outcome.folder.rounds.iterdir())) == 1
    assert len(student.fits) == 2  # once more, to see whether the next round was paid for in an earlier life; then no more
    again = tiny_run(tmp_path / "run", aggregation=eager, student=lambda: copy(student), queries=60, test=None, resume=True)
    assert promised(again) == promised(outcome)


# ── rounds for other methods, and what is refused ─────────────────────────────────────────────────────────────────────


def test_plain_gnmax_may_choose_its_questions_in_rounds_at_the_same_price(tmp_path: Path) -> None:
    plain = tiny_run(tmp_path / "plain")
    rounds = tiny_run(tmp_path / "rounds", aggregation=Aggregation("gnmax", rounds=3), questions=Uncertain(components=2))
    assert rounds.guarantee["events"] == plain.guarantee["events"]
    assert rounds.guarantee["epsilon"] == plain.guarantee["epsilon"]
    assert rounds.guarantee["adaptive"] is True  # what is asked depends on answers: the budget is quoted, here the same
    assert (rounds.labels >= 0).sum() == QUESTIONS
    assert not plain.folder.rounds.exists()


class Sly:
    """Asks about twins of answered records, which are free, if the first answer is class 0, and about new ones otherwise."""

    def __call__(self, public: tt.Public, count: int) -> np.ndarray:
        return np.arange(count)

    def again(self, public: tt.Public, count: int, *, shares: np.ndarray, asked: np.ndarray) -> np.ndarray:
        pick = np.arange(30, 50) if shares[0].argmax() == 0 else np.arange(10, 30)
        return pick[~asked[pick]][:count]


def test_what_is_quoted_does_not_depend_on_the_answers_even_where_the_price_does(tmp_path: Path) -> None:
    fresh = clouds(30, 1)[0]
    pool = tt.Public.of(np.concatenate([fresh, fresh[:10], fresh[:10]]))
    how = Aggregation("gnmax", rounds=3, sigma=1.0)
    quoted, charged = set(), set()
    for turn in (0, 1):
        inputs, targets = clouds(120, 0)
        outcome = tt.transfer(
            tt.Private.of(inputs, (targets + turn) % CLASSES),
            pool,
            teachers=MeanTeachers(),
            student=lambda: tt.SupervisedStudent("forest"),
            codec=tt.Votes(CLASSES),
            budget=RICH,
            shards=10,
            queries=30,
            aggregation=how,
            questions=Sly(),
            out=tmp_path / str(turn),
        )
        quoted.add(outcome.guarantee["epsilon"])
        charged.add(outcome.guarantee["data_independent_epsilon"])
    assert len(charged) == 2  # the trap is real
    assert quoted == {RICH.epsilon}


def test_rounds_that_were_lost_do_not_take_paid_labels_with_them(tmp_path: Path) -> None:
    how = Aggregation("gnmax", rounds=3)
    before = tiny_run(tmp_path / "run", aggregation=how)
    shutil.rmtree(RunFolder(tmp_path / "run").rounds)
    after = tiny_run(tmp_path / "run", aggregation=how, resume=True)
    assert np.array_equal(after.labels, before.labels)
    assert (after.labels >= 0).sum() == QUESTIONS


class Insistent:
    """Asks in later rounds about the records it was made with."""

    def __init__(self, later: np.ndarray) -> None:
        self.later = later

    def __call__(self, public: tt.Public, count: int) -> np.ndarray:
        return np.arange(count)

    def again(self, public: tt.Public, count: int, *, shares: np.ndarray, asked: np.ndarray) -> np.ndarray:
        return self.later


@pytest.mark.parametrize("how", [SHY, Aggregation("gnmax", rounds=3)], ids=["interactive", "gnmax"])
def test_later_rounds_ask_about_as_many_new_records_as_planned(how: Aggregation, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="`questions` must choose records that were not asked before"):
        tiny_run(tmp_path / "same", aggregation=how, questions=Insistent(np.arange(10)))
    # A number of questions that follows the answers would make the charged sum a function of private data.
    with pytest.raises(RecipeError, match=r"`questions` must choose 10 records, whatever was answered\. Got 4"):
        tiny_run(tmp_path / "few", aggregation=how, questions=Insistent(np.arange(20, 24)))


def test_shares_come_from_whatever_a_student_has() -> None:
    inputs = np.zeros((2, 3))

    class Named:
        def predict(self, inputs: Any) -> np.ndarray:
            return np.asarray([1, 0])

    class Wrapped:
        model = Opinion(lambda inputs: np.full((len(inputs), 2), 0.5))

    assert class_shares(Named(), inputs, 3).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert class_shares(Wrapped(), inputs, 3).tolist() == [[0.5, 0.5, 0], [0.5, 0.5, 0]]  # a class that nobody named yet
    assert class_shares(Opinion(lambda inputs: np.full((2, 3), 1 + 1e-7)), inputs, 3).max() == 1.0
    for bad in (np.full((2, 4), 0.25), np.full((1, 3), 0.3), np.full((2, 3), np.nan), np.zeros(2)):
        with pytest.raises(DataError, match="`probabilities` must give finite shares"):
            class_shares(Opinion(lambda inputs, bad=bad: bad), inputs, 3)
