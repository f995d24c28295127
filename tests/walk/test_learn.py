"""`learn`: a student and any oracle. In memory nothing stays; with a curator and a folder it is a release like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.students.blobs import blobs
from tests.walk.test_golden import Shape
from tests.walk.tiny import CLASSES, MeanTeachers, clouds, forged

import tutelage as tt
from tutelage.codecs.corrections import Corrections
from tutelage.codecs.dct import DCT
from tutelage.data.digits import digits
from tutelage.privacy.mechanisms import GNMax
from tutelage.privacy.queries import Query
from tutelage.students.linear import LinearModel, LinearStudent
from tutelage.tasks.states import task as states
from tutelage.tasks.table import read_controls
from tutelage.teachers.records import RecordTeachers
from tutelage.testing import MemoryOracle
from tutelage.verification import verify

POOL, TEST = tt.Public.of(*clouds(60, 1)), tt.Public.of(*clouds(60, 2))
CORNERS = np.asarray([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])


def nearest(query: Query) -> np.ndarray:
    """Label points by their corner: what perfect teachers would release."""
    return np.asarray(((query.rows[:, None] - CORNERS) ** 2).sum(axis=-1).argmin(axis=1))


def student() -> Any:
    return tt.SupervisedStudent("kernel")


def test_a_student_learns_in_memory_and_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    oracle = MemoryOracle(nearest, tt.Votes(CLASSES))
    outcome = tt.learn(oracle, POOL, student=student, queries=30, test=TEST)
    assert outcome.scores["private student"] > 0.9
    assert outcome.guarantee == {}
    assert sum(len(query) for query in oracle.queries) == 30
    assert not list(tmp_path.iterdir())


def test_without_a_ledger_a_run_stays_a_draft(tmp_path: Path) -> None:
    outcome = tt.learn(MemoryOracle(nearest, tt.Votes(CLASSES)), POOL, student=student, queries=30, out=tmp_path / "run")
    assert not (tmp_path / "run" / "release").exists()
    assert (tmp_path / "run" / "private" / "release" / "student.skops").is_file()
    assert not outcome.folder.finished


def test_an_oracle_that_ends_early_is_asked_no_more(tmp_path: Path) -> None:
    outcome = tt.learn(MemoryOracle(nearest, tt.Votes(CLASSES), room=12), POOL, student=student, queries=30)
    assert int((outcome.answers.values >= 0).sum()) == 12


def test_masks_are_learned_in_memory() -> None:
    (pool, truth), (rest, answers) = blobs(24, 1), blobs(9, 2)
    codec = DCT((16, 16), 60, 12.0)
    places = {image.tobytes(): mask for image, mask in zip(pool, truth, strict=True)}

    def exact(query: Query) -> np.ndarray:
        return codec.encode(np.stack([places[row.tobytes()] for row in query.rows])[None])[0]

    oracle = MemoryOracle(exact, codec, noise=1e-3)
    outcome = tt.learn(oracle, tt.Public.of(pool, truth), student=Shape, queries=20, test=tt.Public.of(rest, answers))
    assert outcome.scores["released masks"] > 0.95
    assert outcome.answers.noisy


def curator(ledger: tt.Ledger) -> tt.Curator:
    private = tt.Private.of(*clouds(120, 0))
    teachers = MeanTeachers().fit(private, private.split(10))
    return tt.Curator(teachers, tt.Votes(CLASSES), GNMax(CLASSES, 4.0, teachers=10), ledger)


def test_a_curator_s_run_is_released_and_verified(tmp_path: Path) -> None:
    with tt.Ledger(tmp_path / "patients.sqlite", tt.Budget(20.0, 1e-5)) as ledger:
        outcome = tt.learn(curator(ledger), POOL, student=student, queries=30, out=tmp_path / "run", test=TEST)
        again = tt.learn(curator(ledger), POOL, student=student, queries=30)
    assert verify(outcome.folder).recomputed_epsilon <= 20.0
    assert outcome.guarantee["ledger"] == "shared"
    assert outcome.guarantee["shards"] == "as the oracle was opened"
    assert np.array_equal(outcome.labels, again.labels)  # kept answers are given again
    assert read_controls(outcome.folder) == {}


def test_a_private_set_is_no_oracle() -> None:
    with pytest.raises(tt.RecipeError, match="`oracle` must answer queries"):
        tt.learn(tt.Private.of(*clouds(9, 0)), POOL, student=student, queries=3)  # type: ignore[arg-type]


# ── students that choose their own queries ────────────────────────────────────────────────────────────────────────────


class Waves:
    """Fixed public features: random cosines of a record."""

    width = 65

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.waves, self.phases = rng.normal(0, 0.5, (64, 64)), rng.uniform(0, 2 * np.pi, 64)

    def __call__(self, inputs: np.ndarray, *, progress: Any = None) -> np.ndarray:
        rows = np.asarray(inputs, dtype=np.float64).reshape(len(inputs), -1)
        seen = np.cos(rows @ self.waves + self.phases) * np.sqrt(2)
        return np.hstack([np.ones((len(rows), 1)), seen]) / np.sqrt(self.width)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"waves": self.waves, "phases": self.phases}


class Alone:
    """An iterative student of somebody else's: it has no `fit`, and saves plain arrays."""

    classes, rounds = 10, 10

    def __init__(self) -> None:
        self.inner = LinearStudent(Waves(), classes=10, rounds=self.rounds)  # type: ignore[arg-type]
        self.query, self.update = self.inner.query, self.inner.update
        self.state_dict, self.load_state_dict = self.inner.state_dict, self.inner.load_state_dict

    def result(self) -> Alone:
        self.model: LinearModel = self.inner.result()
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self.model.predict(inputs)

    def save(self, path: Path) -> Path:
        np.savez(path.with_suffix(".npz"), weights=self.model.weights)
        return path.with_suffix(".npz")


def test_a_student_without_a_public_pool_learns_from_private_digits(tmp_path: Path) -> None:
    private, _, test = digits(seed=0)
    outcome = tt.transfer(
        private, None, teachers=RecordTeachers(Waves()), student=Alone, codec=Corrections(Waves.width, 10, clip=0.5),  # type: ignore[arg-type]
        budget=tt.Budget(20.0, 1e-5), shards=len(private), queries=10, out=tmp_path / "run", test=test,
    )  # fmt: skip
    assert outcome.scores["private student"] > 0.8  # of ten classes; 0.92 and 0.94 in two runs
    assert outcome.guarantee["labels"]["released"] == 10
    assert outcome.guarantee["plan"]["pool"] is None
    assert verify(outcome.folder).recomputed_epsilon <= 20.0 * 1.005
    assert {"weights", "guess", "sum", "counts"} == set(np.load(outcome.folder.release / "weights.npz").files)


class Reserving(Alone):
    """The same student, whose rounds are charged before the first."""

    reserves = True


def reserving(out: Path, **choices: Any) -> tt.Outcome:
    private, _, test = digits(seed=0)
    return tt.transfer(
        private, None, teachers=RecordTeachers(Waves()), student=Reserving, codec=Corrections(Waves.width, 10, clip=0.5),  # type: ignore[arg-type]
        budget=tt.Budget(20.0, 1e-5), shards=len(private), queries=10, out=out, test=test, controls=False, **choices,
    )  # fmt: skip


def test_reserved_rounds_are_charged_once_and_go_on_from_a_kept_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_KEPT", 1)
    update, done = LinearStudent.update, []

    def killed(self: LinearStudent, answer: np.ndarray) -> None:
        done.append(1)
        if len(done) == 5:
            raise KeyboardInterrupt
        update(self, answer)

    monkeypatch.setattr(LinearStudent, "update", killed)
    with pytest.raises(KeyboardInterrupt):
        reserving(tmp_path / "run")
    outcome = reserving(tmp_path / "run", resume=True)
    assert len(done) == 5  # rounds are counted in blocks: the crash wasted the rest of this one
    assert outcome.guarantee["labels"]["released"] == 10
    assert [(event["kind"], event["count"]) for event in outcome.guarantee["events"]] == [("Gaussian", 10)]
    assert verify(outcome.folder).recomputed_epsilon <= 20.0 * 1.005
    boast = forged(outcome.folder.release, tmp_path / "boast", labels={"released": 11, "distinct": 11, "reinforced": 0})
    with pytest.raises(tt.LedgerError, match="`labels` must count no more answers than the book released"):
        verify(boast)


def test_reserved_rounds_reach_what_single_ones_reach(tmp_path: Path) -> None:
    assert reserving(tmp_path / "run").scores["private student"] > 0.8


def test_labels_need_a_pool(tmp_path: Path) -> None:
    with pytest.raises(tt.RecipeError, match="`public` must be a public pool here: this student does not choose"):
        tt.learn(MemoryOracle(nearest, tt.Votes(CLASSES)), None, student=student, queries=3, out=tmp_path / "run")


def test_a_student_of_other_rounds_costs_nothing(tmp_path: Path) -> None:
    private, _, _ = digits(seed=0)
    with pytest.raises(tt.RecipeError, match=r"`rounds` of the student must be `queries`, 7\. Got 10"):
        tt.transfer(
            private, None, teachers=RecordTeachers(Waves()), student=Alone, codec=Corrections(Waves.width, 10), shards=9,  # type: ignore[arg-type]
            budget=tt.Budget(8.0, 1e-5), queries=7, out=tmp_path / "run",
        )  # fmt: skip
    assert not list(tmp_path.iterdir())
