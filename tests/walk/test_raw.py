"""Whoever receives a model gives it what they have: raw bytes in the pool's shape, or it says what it wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import tutelage as tt
from tutelage.data.digits import digits
from tutelage.estimators import load

BUDGET = tt.Budget(epsilon=8, delta=1e-5)


def transferred(out: Path, kind: Any, **choices: Any) -> tt.Outcome:
    """Run the README's example with labels of this kind."""
    private, public, test = digits()
    parts = [tt.Public.of(part.inputs, np.asarray(part.targets).astype(kind)) for part in (public, test)]
    mine = tt.Private.of(private.inputs, private.targets.astype(kind))
    settings: dict[str, Any] = {
        "teachers": tt.EstimatorTeachers("kernel"), "student": tt.SpreadingStudent, "codec": tt.Votes(10), "budget": BUDGET,
        "shards": 100, "queries": 200, "controls": False, **choices,
    }  # fmt: skip
    return tt.transfer(mine, parts[0], test=parts[1], out=out, **settings)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int64])
def test_the_control_of_true_labels_holds_for_labels_of_any_kind(kind: type, tmp_path: Path) -> None:
    """With bytes as labels it was 0.368: -1 became 255, and every record without an answer was taught as one class."""
    outcome = transferred(tmp_path / "run", kind)
    assert outcome.scores["control: same questions, true labels"] == pytest.approx(0.945, abs=0.02)
    _, public, test = digits()
    answered = outcome.labels >= 0
    twin = np.where(answered, public.targets.astype(np.uint8), np.asarray(-1).astype(np.uint8))  # what it was
    spoiled = tt.SpreadingStudent().fit(public, twin.astype(np.int64))
    assert np.mean(spoiled.predict(test.inputs) == test.targets) < 0.5


def test_true_and_false_are_labels(tmp_path: Path) -> None:
    private, public, test = digits()
    parts = [tt.Public.of(part.inputs, np.asarray(part.targets) > 4) for part in (public, test)]
    mine = tt.Private.of(private.inputs, private.targets > 4)
    outcome = tt.transfer(
        mine, parts[0], test=parts[1], teachers=tt.EstimatorTeachers("kernel"), student=tt.SpreadingStudent, codec=tt.Votes(2),
        budget=BUDGET, shards=100, queries=200, out=tmp_path / "run",
    )  # fmt: skip
    assert outcome.scores["control: same questions, true labels"] > 0.8
    assert outcome.scores["control: public only, no answers (ε = 0)"] == max(
        np.mean(parts[1].targets), 1 - np.mean(parts[1].targets)
    )


@pytest.mark.parametrize("student", [tt.SpreadingStudent, lambda: tt.SupervisedStudent("kernel")])
def test_a_released_estimator_takes_raw_bytes(student: Any, tmp_path: Path) -> None:
    outcome = transferred(tmp_path / "run", np.int64, student=student)
    model = load(outcome.folder.release / "student.skops")
    _, _, test = digits()
    raw = np.rint(255 * test.inputs).astype(np.uint8)
    accuracy = {name: float(np.mean(model.predict(given) == test.targets)) for name, given in _forms(raw, test.inputs).items()}
    assert min(accuracy.values()) > max(accuracy.values()) - 0.01 > 0.65
    bare = model.model.predict(raw.reshape(len(raw), -1).astype(np.float64))  # the twin: the model without its declaration
    assert len(np.unique(bare)) < 4
    assert np.mean(bare == test.targets) < 0.3
    for wrong, rule in (
        (raw.astype(np.float32), "must be scaled as the pool was"),
        (raw.astype(np.int64), "must be float"),
        (load_digits().images, r"Got values in \[0, 16\]"),
        (raw[:, :7], "must be records of shape"),
    ):
        with pytest.raises(tt.DataError, match=rule):
            model.predict(wrong)
        with pytest.raises(tt.DataError, match=rule):
            outcome.model.predict(wrong)


def _forms(raw: np.ndarray, images: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "as the pool": images,
        "rows": images.reshape(len(images), -1),
        "bytes": raw,
        "rows of bytes": raw.reshape(len(raw), -1),
    }


def test_a_released_network_takes_raw_bytes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tutelage.nets.model import Model
    from tutelage.students.consistency import Consistency, ConsistencyStudent

    short = Consistency(steps=60, rounds=0)
    outcome = transferred(
        tmp_path / "run", np.uint8, student=lambda: ConsistencyStudent(settings=short, classes=10, device="cpu")
    )
    model = Model.load(outcome.folder.release / "student.safetensors", device="cpu")
    _, _, test = digits()
    raw = np.rint(255 * test.inputs).astype(np.uint8)
    assert np.mean(model.predict(raw) == model.predict(test.inputs)) > 0.99
    for wrong in (raw.astype(np.float32), raw[:, :7]):
        with pytest.raises(tt.DataError):
            model.predict(wrong)


def test_a_student_of_bytes_wants_bytes(tmp_path: Path) -> None:
    private, public, test = (part for part in digits())
    inputs = [np.rint(255 * part.inputs).astype(np.uint8) for part in (private, public, test)]
    outcome = tt.transfer(
        tt.Private.of(inputs[0], private.targets), tt.Public.of(inputs[1]), test=tt.Public.of(inputs[2], test.targets),
        teachers=tt.EstimatorTeachers("kernel"), student=tt.SupervisedStudent, codec=tt.Votes(10), budget=BUDGET, shards=100,
        queries=200, out=tmp_path / "run", controls=False,
    )  # fmt: skip
    model = load(outcome.folder.release / "student.skops")
    assert np.mean(model.predict(inputs[2]) == test.targets) == outcome.scores["private student"] > 0.65
    with pytest.raises(tt.DataError, match=r"must be uint8, as the model learned from\. Got float"):
        model.predict(test.inputs)
