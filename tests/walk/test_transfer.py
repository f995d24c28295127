"""The verb itself, on a walk that takes a fraction of a second."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.walk import tiny
from tests.walk.tiny import QUESTIONS, Killed, kill_after, promised, tiny_run

import tutelage as tt
from tutelage.planning import Aggregation, Sanitise
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.errors import LedgerError, RecipeError
from tutelage.privacy.ledger import Ledger, read_lines
from tutelage.privacy.sealed import quietly
from tutelage.privacy.units import Adjacency
from tutelage.runs import RunFolder
from tutelage.tasks.labels import reading as labels_reading
from tutelage.tasks.table import read_controls
from tutelage.verification import verify

CONTROLS = labels_reading.READING.sealed["controls"]

CONFIDENT = Aggregation("confident-gnmax", threshold=0.5, answers=10)
INTERACTIVE = Aggregation("interactive-gnmax", threshold=0.5, answers=10)
SANITISED = Aggregation("gnmax", sanitise=Sanitise(order=3.0, beta=0.02, sigma=20.0))


def rows(out: Path) -> list[str]:
    with Ledger(out / "private" / "book.sqlite") as book:
        return [row.kind for row in book.entries()]


# ── what is refused before anything is written ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("choices", "rule"),
    [
        (
            {"private_unit": "record", "budget": tt.Budget(8.0, 1e-5, tt.Unit("patient"))},
            "`unit` of the budget must be the data's",
        ),
        (
            {
                "private_unit": "institution",
                "budget": tt.Budget(8.0, 1e-5, tt.Unit("institution"), adjacency=Adjacency.ADD_REMOVE),
            },
            "`adjacency` must be 'replace-one': teachers are trained here",
        ),
        ({"queries": 61}, "`queries` must be between 1 and the public pool's 60 records. Got 61"),
        ({"queries": 0}, "`queries` must be between 1"),
        ({"shards": 121}, "`shards` must be at most the places on the roster, 120"),
        ({"aggregation": Aggregation("gnmax", sigma=1e-3)}, "`sigma` must let one answer fit ε = 8"),
        ({"aggregation": Aggregation("lnmax", gamma=100.0)}, "`gamma` must let one answer fit ε = 8"),
        ({"aggregation": Aggregation(sanitise=Sanitise(30.0, 0.001, 5.0))}, "`sanitise.order` must satisfy conditions C5 and C6"),
        ({"questions": lambda public, count: np.asarray([0, 0])}, "`questions` must choose 1 to 30 different records"),
        ({"questions": lambda public, count: np.asarray([60])}, "`questions` must choose"),
        ({"questions": lambda public, count: np.arange(31)}, "`questions` must choose"),
        ({"questions": lambda public, count: np.asarray([0.5])}, "`questions` must choose"),
    ],
)
def test_a_bad_plan_fails_before_anything_is_written(choices: dict[str, Any], rule: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=rule):
        tiny_run(tmp_path / "run", **choices)
    assert list(tmp_path.iterdir()) == []


def test_sanitising_needs_a_unit_behind_one_teacher(tmp_path: Path) -> None:
    budget = tt.Budget(8.0, 1e-5, tt.Unit("record", 2))
    with pytest.raises(RecipeError, match="`sanitise` must come with a unit behind one teacher"):
        tiny_run(tmp_path / "run", budget=budget, aggregation=SANITISED)


def test_a_path_under_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(RecipeError, match="`out` must be a folder that can be written"):
        tiny_run(tmp_path / "file" / "run")


def test_another_budget_on_the_same_book_is_refused(tmp_path: Path) -> None:
    tiny_run(tmp_path / "run")
    with pytest.raises(LedgerError, match="`budget` must be the one the book was opened with"):
        tiny_run(tmp_path / "run", budget=tt.Budget(9.0, 1e-5), resume=True)


# ── what is published ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_figures_from_private_data_stay_inside_unless_it_is_a_benchmark(tmp_path: Path) -> None:
    hidden = tiny_run(tmp_path / "hidden")
    shown = tiny_run(tmp_path / "shown", benchmark=True)
    assert set(read_controls(hidden.folder)) == set(CONTROLS)
    assert not set(CONTROLS) & set(json.loads(hidden.folder.scores.read_text(encoding="utf-8")))
    assert set(CONTROLS) <= set(json.loads(shown.folder.scores.read_text(encoding="utf-8")))
    assert hidden.guarantee["excepted"] == []
    assert "excepted" not in hidden.guarantee["statement"]
    assert "excepted" in shown.guarantee["statement"]


def test_controls_can_be_left_out(tmp_path: Path) -> None:
    outcome = tiny_run(tmp_path / "run", controls=False)
    assert read_controls(outcome.folder) == {}
    assert "control: same questions, true labels" in outcome.scores


def test_without_test_data_there_are_no_scores(tmp_path: Path) -> None:
    outcome = tiny_run(tmp_path / "run", test=None)
    assert outcome.scores == {}
    assert json.loads(outcome.folder.scores.read_text(encoding="utf-8")) == {}


def test_chosen_questions_are_the_ones_answered(tmp_path: Path) -> None:
    chosen = np.asarray([59, 3, 17, 20])
    outcome = tiny_run(tmp_path / "run", questions=lambda public, count: chosen)
    assert outcome.guarantee["events"][0]["count"] == len(chosen)
    assert np.flatnonzero(outcome.labels >= 0).tolist() == sorted(chosen.tolist())


def test_questions_are_chosen_without_targets(tmp_path: Path) -> None:
    seen = []

    def questions(public: tt.Public, count: int) -> np.ndarray:
        seen.append(public.targets)
        return np.arange(count)

    tiny_run(tmp_path / "run", questions=questions)
    assert seen == [None]


def test_an_older_private_folder_is_closed(tmp_path: Path) -> None:
    (tmp_path / "run" / "private").mkdir(parents=True, mode=0o755)
    outcome = tiny_run(tmp_path / "run")
    assert outcome.folder.private.stat().st_mode & 0o777 == 0o700


def test_a_larger_unit_pays_more(tmp_path: Path) -> None:
    budget = tt.Budget(8.0, 1e-5, tt.Unit("institution", 2))
    outcome = tiny_run(tmp_path / "run", private_unit="institution", budget=budget)
    (event,) = outcome.guarantee["events"]
    assert event["votes"] == 2
    assert not (outcome.folder.private / "data_dependent_epsilon.npy").exists()  # that bound is for one vote
    assert verify(outcome.folder).recomputed_epsilon <= 8.0 * 1.005


# ── budgets that run out ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_budget_for_fewer_questions_answers_fewer_and_resumes_to_the_same(tmp_path: Path) -> None:
    few = Aggregation("gnmax", sigma=Aggregation("gnmax").built(tt.Budget(8.0, 1e-5), 13, 10, OneHot(3))[0].sigma)  # type: ignore[attr-defined]
    first = tiny_run(tmp_path / "run", aggregation=few, queries=60)  # blocks of three: the budget ends inside one
    assert (first.labels >= 0).sum() == 13
    before = rows(tmp_path / "run")
    again = tiny_run(tmp_path / "run", aggregation=few, queries=60, resume=True)
    assert np.array_equal(again.labels, first.labels)
    assert rows(tmp_path / "run") == [*before, "note"]
    assert again.guarantee["epsilon"] == pytest.approx(8.0, rel=1e-9)


def test_a_confident_run_uses_its_budget_up_and_resumes_to_the_same(tmp_path: Path) -> None:
    eager = Aggregation("confident-gnmax", threshold=0.01, answers=5)  # nearly everything passes: the budget ends early
    first = tiny_run(tmp_path / "run", aggregation=eager, queries=60)
    answered = int((first.labels >= 0).sum())
    assert 4 <= answered < 20
    assert 7 < first.guarantee["data_independent_epsilon"] <= 8 * (1 + 1e-9)
    again = tiny_run(tmp_path / "run", aggregation=eager, queries=60, resume=True)
    assert np.array_equal(again.labels, first.labels)
    assert promised(again) == promised(first)


def test_a_run_in_which_nothing_passes_still_ends(tmp_path: Path) -> None:
    strict = Aggregation("confident-gnmax", threshold=1.0, sigma=1.0, test_ratio=100.0)
    outcome = tiny_run(tmp_path / "run", aggregation=strict, budget=tt.Budget(500.0, 1e-5), queries=1)
    for _ in range(20):  # a test with this much noise passes every second time
        if not (outcome.labels >= 0).any():
            break
        outcome = tiny_run(tmp_path / f"run{_}", aggregation=strict, budget=tt.Budget(500.0, 1e-5), queries=1)
    assert not (outcome.labels >= 0).any()
    assert "released labels" not in outcome.scores
    assert outcome.guarantee["epsilon"] == 500.0
    assert [event["kind"] for event in outcome.guarantee["events"]] == ["Threshold"]


# ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "how", [Aggregation("gnmax"), Aggregation("lnmax"), CONFIDENT, INTERACTIVE, SANITISED], ids=lambda how: how.method
)
def test_kills_waste_budget_and_never_hide_a_release(how: Aggregation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for lives in (3, 1, 0):
        with monkeypatch.context() as patch:
            kill_after(patch, lives)
            with pytest.raises(Killed):
                tiny_run(tmp_path / "run", aggregation=how, resume=True)
    with Ledger(tmp_path / "run" / "private" / "book.sqlite") as book:
        kept = sum(row.body["count"] for row in book.entries() if row.kind == "release")
    outcome = tiny_run(tmp_path / "run", aggregation=how, resume=True)
    assert kept == 4
    assert outcome.guarantee["data_independent_epsilon"] <= 8 * (1 + 1e-9)
    assert verify(outcome.folder).rows == len(rows(tmp_path / "run")) - 1  # the manifest's note is not exported
    if not how.adaptive:
        assert (outcome.labels >= 0).sum() == QUESTIONS - 3
    if how.sanitise is not None:
        assert outcome.guarantee["sanitised_epsilon"] is not None  # its room was kept


def test_a_budget_eaten_by_kills_still_ends_in_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        kill_after(patch, 0)
        for _ in range(2):
            with pytest.raises(Killed):
                tiny_run(tmp_path / "run", queries=2, resume=True)
    outcome = tiny_run(tmp_path / "run", queries=2, resume=True)
    assert not (outcome.labels >= 0).any()
    assert outcome.guarantee["epsilon"] == pytest.approx(8.0, rel=1e-9)  # paid for, and nothing bought


# ── the sanitised figure ──────────────────────────────────────────────────────────────────────────────────────────────


def test_sanitised_epsilon_is_charged_and_given_again(tmp_path: Path) -> None:
    first = tiny_run(tmp_path / "run", aggregation=SANITISED)
    figure = first.guarantee["sanitised_epsilon"]
    assert figure > 0
    assert {event["kind"] for event in first.guarantee["events"]} == {"NoisyMax", "SmoothRelease"}
    assert first.guarantee["mu_is_exact"] is False
    again = tiny_run(tmp_path / "run", aggregation=SANITISED, resume=True)
    assert promised(again) == promised(first)
    assert verify(first.folder).accountant == "dp-accounting, Rényi"


def test_a_look_takes_the_sanitised_figure_away(tmp_path: Path) -> None:
    outcome = tiny_run(tmp_path / "run", aggregation=SANITISED)
    with Ledger(outcome.folder.book) as book:
        book.reveal(tt.Sealed([1.0]), reason="curious")
    again = tiny_run(tmp_path / "run", aggregation=SANITISED, resume=True)
    assert again.guarantee["epsilon"] == "infinity"
    assert again.guarantee["sanitised_epsilon"] is None


@pytest.mark.parametrize("where", ["fit", "vote"])
def test_a_failing_teacher_says_no_private_value(where: str, tmp_path: Path) -> None:
    class Talkative:
        def fit(self, private: Any, shards: Any, *, progress: Any = None) -> Any:
            return self if where == "vote" else self.vote(private)

        def vote(self, inputs: Any) -> Any:
            raise ValueError("patient 4711 has a rare disease")

    with pytest.raises(tt.DataError) as caught:
        tiny_run(tmp_path / "run", teachers=Talkative())
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert rows(tmp_path / "run") == ["open", "start", "charge"][: 2 + (where == "vote")]


def test_folders_know_whether_a_book_is_there(tmp_path: Path) -> None:
    assert not RunFolder(tmp_path).holds_book
    assert tiny_run(tmp_path / "run").folder.holds_book


# ── one private record decides nothing ────────────────────────────────────────────────────────────────────────────────


class Delicate:
    """A student that cannot learn from 120 records with a label that one alone has, as boosted trees cannot from 10,000."""

    def fit(self, public: tt.Public, labels: Any) -> Any:
        known = np.asarray(labels)[np.asarray(labels) >= 0]
        if len(public) == 120 and (np.bincount(known) == 1).any():
            raise ValueError("patient 98765 stands alone")
        return tt.SupervisedStudent("kernel").fit(public, labels)


def test_a_control_that_fails_on_private_records_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin lets the failure out: with one lonely label there is no release, without it there is one."""

    def lonely(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = clouds(count, seed)
        if seed == 0:
            targets = np.where(targets == 2, 0, targets)
            targets[0] = 2
        return inputs, targets

    clouds = tiny.clouds
    monkeypatch.setattr(tiny, "clouds", lonely)
    settings: dict[str, Any] = {"student": Delicate, "teachers": First(), "codec": tt.Votes(3)}
    outcome = tiny_run(tmp_path / "run", **settings)
    assert verify(outcome.folder).rows > 1
    assert "98765" not in (tmp_path / "run" / "private" / "controls-failed.txt").read_text(encoding="utf-8")
    assert not any("failed" in path.name for path in outcome.folder.release.rglob("*"))

    def unguarded(learning: Any, controls: Any) -> None:
        quietly("controls", lambda: controls(learning), ours=tt.Error)

    monkeypatch.setattr(sys.modules["tutelage.transfer"], "_judge", unguarded)
    with pytest.raises(tt.DataError, match="`controls` must not fail"):
        tiny_run(tmp_path / "twin", **settings)


class First:
    """Teachers that all vote for one class after the other."""

    def fit(self, private: tt.Private, shards: tt.Shards, *, progress: Any = None) -> Any:
        self.count = len(shards)
        return self

    def vote(self, inputs: np.ndarray) -> tt.Sealed:
        return tt.Sealed(np.tile(np.arange(len(inputs)) % 2, (self.count, 1)))


class Shuffling(First):
    """Teachers that shuffle their records with the process's generator, as somebody's own might."""

    def fit(self, private: tt.Private, shards: tt.Shards, *, progress: Any = None) -> Any:
        for shard in shards.indices:
            np.random.permutation(len(shard))  # noqa: NPY002
        return super().fit(private, shards)


class Drawing:
    """A student that draws from the process's generator, as scikit-learn does without a seed."""

    def fit(self, public: tt.Public, labels: np.ndarray) -> Drawing:
        self.begin = float(np.random.random())  # noqa: NPY002
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.zeros(len(inputs), dtype=np.int64)

    def save(self, path: Path) -> Path:
        path.with_suffix(".npz").write_bytes(np.float64(self.begin).tobytes())
        return path


@pytest.mark.parametrize("twin", [False, True])
def test_how_many_records_a_unit_has_moves_no_student(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twin: bool) -> None:
    if twin:
        monkeypatch.setattr("tutelage.privacy.sealed.put_back", nullcontext)
    begun = []
    for records in (1, 40):
        inputs, targets = tiny.clouds(120, 0)
        units = [*range(120), *[7] * (records - 1)]
        private = tt.Private.of(
            np.concatenate([inputs, inputs[[7] * (records - 1)]]), np.concatenate([targets, targets[[7] * (records - 1)]]),
            units=np.asarray(units), roster=tt.Roster.places(120),
        )  # fmt: skip
        np.random.seed(0)  # noqa: NPY002
        pool, truth = tiny.clouds(60, 1)
        outcome = tt.transfer(
            private, tt.Public.of(pool, truth), teachers=Shuffling(), student=Drawing, codec=tt.Votes(3),
            budget=tt.Budget(8.0, 1e-5), shards=10, queries=30, out=tmp_path / f"{records}",
        )  # fmt: skip
        begun.append((outcome.folder.release / "student.npz").read_bytes())
    assert (begun[0] == begun[1]) is not twin


def test_another_division_is_not_given_the_answers_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        kill_after(patch, 5)
        with pytest.raises(Killed):
            tiny_run(tmp_path / "run", seed=0)
    outcome = tiny_run(tmp_path / "run", seed=1, resume=True)
    charged = {row.body["run"]: 0 for row in outcome_rows(outcome) if row.kind == "release"}
    assert charged
    released = sum(row.body["count"] for row in outcome_rows(outcome) if row.kind == "release")
    assert released > outcome.guarantee["labels"]["released"]  # those of the first division stay in the ledger, unused
    assert outcome.guarantee["quotes"] == "budget"


def outcome_rows(outcome: tt.Outcome) -> list[Any]:
    return read_lines(outcome.folder.exported_book)


def test_what_was_cleaned_is_counted_for_the_owner_alone(tmp_path: Path) -> None:
    inputs, targets = tiny.clouds(120, 0)
    inputs[5] = np.nan
    pool, truth = tiny.clouds(60, 1)
    outcome = tt.transfer(
        tt.Private.of(inputs, targets), tt.Public.of(pool, truth),
        teachers=First(), student=lambda: tt.SupervisedStudent("kernel"),
        codec=tt.Votes(3), budget=tt.Budget(8.0, 1e-5), shards=10, queries=30, out=tmp_path / "run",
    )  # fmt: skip
    told = json.loads(outcome.folder.inside_data.read_text(encoding="utf-8"))
    assert (told["records"], told["units"], sum(told["notes"].values())) == (120, 120, 2)
    assert outcome.folder.inside_data.stat().st_mode & 0o077 == 0
