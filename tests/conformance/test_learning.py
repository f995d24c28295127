"""The suites of students and tasks over ours, and over broken twins, which they must refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.students.blobs import blobs
from tests.walk.test_golden import Shape
from tests.walk.tiny import CLASSES, clouds

import tutelage as tt
from tutelage.codecs.corrections import Corrections
from tutelage.codecs.dct import DCT
from tutelage.features.correction import correction
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.planning import Aggregation
from tutelage.privacy.queries import Query
from tutelage.students.heir import Heir
from tutelage.students.linear import LinearStudent
from tutelage.tasks.labels.task import Labelling
from tutelage.tasks.scores import Score
from tutelage.tasks.task import Plan
from tutelage.testing import MemoryOracle, check_iterative_student, check_student, check_task

INPUTS, TRUTH = clouds(60, 1)
POOL, TEST = tt.Public.of(INPUTS, TRUTH), tt.Public.of(*clouds(30, 2))
LABELS = np.where(np.arange(60) % 2, TRUTH, -1)
SIGHT = Sight.learn(POOL, Seeing(axes=4, bins=5), device="cpu")
CODEC = Corrections(SIGHT.width, CLASSES)


def kernel() -> Any:
    return tt.SupervisedStudent("kernel")


def linear() -> LinearStudent:
    return LinearStudent(SIGHT, classes=CLASSES, rounds=6)


def step(query: Query) -> np.ndarray:
    seen, guess = SIGHT(INPUTS), query.rows[0]
    return np.asarray(seen.T @ correction(seen, TRUTH, guess) / len(seen))


def labelled(query: Query) -> np.ndarray:
    return np.asarray([TRUTH[(row == INPUTS).all(axis=1)][0] for row in query.rows])


# ── students ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", [kernel, tt.SpreadingStudent, lambda: tt.SupervisedStudent("forest")])
def test_students(make: Any) -> None:
    check_student(make, POOL, LABELS, TEST.inputs)


@pytest.mark.parametrize("make", [linear, lambda: Heir(linear(), kernel)], ids=["linear", "heir"])
def test_iterative_students(make: Any) -> None:
    model = check_iterative_student(make, lambda query: CODEC.decode(step(query)[None], query.rows)[0], TEST.inputs)
    assert np.mean(model.predict(TEST.inputs) == TEST.targets) > 0.9


class Broken:
    """A student that is broken in one place."""

    def __init__(self, fault: str) -> None:
        self.fault, self.inner = fault, tt.SupervisedStudent("kernel")

    def fit(self, public: Any, labels: np.ndarray) -> Broken:
        if self.fault == "writes answers":
            labels[labels < 0] = 0
        if self.fault == "writes the pool":
            public.inputs[0] += 1
        if self.fault == "reads targets":
            labels = public.targets.copy()
        self.inner.fit(public, labels)
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self.inner.predict(inputs)[: -1 if self.fault == "loses one" else None]

    def save(self, path: Path) -> Path:
        if self.fault == "two files":
            path.with_suffix(".txt").write_text("more", encoding="utf-8")
        return self.inner.save(path.with_name("other") if self.fault == "another place" else path)


@pytest.mark.parametrize(
    "fault", ["writes answers", "writes the pool", "reads targets", "loses one", "two files", "another place"]
)
def test_the_student_suite_refuses(fault: str) -> None:
    with pytest.raises((AssertionError, AttributeError)):
        check_student(lambda: Broken(fault), tt.Public.of(INPUTS.copy(), TRUTH), LABELS.copy(), TEST.inputs)


class Forgetful:
    """An iterative student that is broken in one place."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self.inner = fault, linear()
        self.result = self.inner.result

    def query(self) -> Query | None:
        if self.fault == "moves by itself":
            self.inner._descent.guess = self.inner._descent.guess + 0.01
        if self.fault == "never ends" and self.inner.query() is None:
            return Query.state(weights=self.inner._descent.guess)
        return self.inner.query()

    def update(self, answer: np.ndarray) -> None:
        noise = np.random.default_rng().normal(size=answer.shape) if self.fault == "draws" else 0.0
        self.inner.update(answer + noise)

    def state_dict(self) -> dict[str, np.ndarray]:
        state = self.inner.state_dict()
        return {**state, "sum": 0 * state["sum"]} if self.fault == "forgets" else state

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self.inner.load_state_dict(state)


@pytest.mark.parametrize("fault", ["moves by itself", "never ends", "draws", "forgets"])
def test_the_iterative_suite_refuses(fault: str) -> None:
    check_iterative_student(Forgetful, step, TEST.inputs)
    with pytest.raises(AssertionError):
        check_iterative_student(lambda: Forgetful(fault), lambda query: 9 * step(query), TEST.inputs, most=20)


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["gnmax", "mean"])
def test_labels(method: str) -> None:
    plan = Plan(POOL, 30, tt.Votes(CLASSES), Aggregation(method))
    answer = labelled if method == "gnmax" else lambda query: np.eye(CLASSES)[labelled(query)]
    make = kernel if method == "gnmax" else lambda: tt.SupervisedStudent("linear")
    scores = check_task("labels", plan, MemoryOracle(answer, plan.codec), make, TEST)
    assert scores[Score.RELEASED_LABELS] == 1.0


def test_masks() -> None:
    (pool, truth), codec = blobs(24, 1), DCT((16, 16), 30, 12.0)
    plan = Plan(tt.Public.of(pool, truth), 20, codec, Aggregation("mean"))
    places = {image.tobytes(): mask for image, mask in zip(pool, truth, strict=True)}
    oracle = MemoryOracle(lambda query: codec.encode(np.stack([places[row.tobytes()] for row in query.rows])[None])[0], codec)
    assert Score.MEAN_SHAPE in check_task("masks", plan, oracle, Shape, tt.Public.of(*blobs(9, 2)))


def test_states() -> None:
    plan = Plan(POOL, 6, CODEC, Aggregation("mean"))
    oracle = MemoryOracle(lambda query: CODEC.encode(step(query)[None, None])[0], CODEC)
    assert check_task("corrections", plan, oracle, linear, TEST)[Score.STUDENT] > 0.9


def test_the_task_suite_refuses_a_file_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Labelling.publish

    def loose(self: Labelling, folder: Any, *rest: Any) -> None:
        real(self, folder, *rest)
        (folder.release / "votes.csv").write_text("1,2,3", encoding="utf-8")

    monkeypatch.setattr(Labelling, "publish", loose)
    plan = Plan(POOL, 30, tt.Votes(CLASSES), Aggregation())
    with pytest.raises(AssertionError, match="no file that its reading does not name"):
        check_task("labels", plan, MemoryOracle(labelled, plan.codec), kernel, TEST)
