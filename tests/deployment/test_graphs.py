"""Every student that a recipe can name, in ONNX: its answers on raw inputs, to 1e-4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.data.dataset import Public
from tutelage.data.schema import Category, Number, TableSchema
from tutelage.deployment import exporting, samples, students
from tutelage.estimators import ESTIMATORS, REGRESSORS
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.students.linear import LinearStudent
from tutelage.students.supervised import SupervisedStudent

SCHEMA = TableSchema((Number("a", -3, 3), Category("b", ("x", "y", "7")), Number("label", 0, 10)), "c", ("no", "yes", "perhaps"))


def pool(rows: int = 400) -> tuple[Public, np.ndarray]:
    rng = np.random.default_rng(0)
    cells = {
        "a": rng.normal(0, 2, rows).tolist(),
        "b": rng.choice(["x", "y", "7", "?"], rows).tolist(),
        "label": rng.uniform(0, 12, rows),
    }
    cells["label"] = cells["label"].tolist()  # type: ignore[union-attr]
    inputs = SCHEMA.encode(cells)
    labels = (inputs[:, 0] > 0.5).astype(int) + (inputs[:, 2] > 0)
    return Public.of(inputs), labels


def checked(student: Any, tmp_path: Path, schema: Any = SCHEMA, count: int = 3) -> float:
    """Write a student as a run does, read it back, and compare; give how far apart the two are."""
    student.save(tmp_path / "student")
    file = next(tmp_path.glob("student.*"))
    read = students._read(file, schema, "cpu")
    assert read.count == count
    model = tmp_path / "model.onnx"
    model.write_bytes(exporting.onnx_model(read).SerializeToString())
    records, apart = exporting._check(read, model, "onnx", samples.raw(read))
    assert records >= 8
    return apart


@pytest.mark.parametrize("kind", list(ESTIMATORS))
def test_classifiers(kind: str, tmp_path: Path) -> None:
    public, labels = pool()
    checked(SupervisedStudent(kind).fit(public, labels), tmp_path)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", list(REGRESSORS))
def test_regressions_of_shares(kind: str, classes: int, tmp_path: Path) -> None:
    public, labels = pool()
    shares = np.eye(classes)[labels.clip(max=classes - 1)] + np.random.default_rng(1).normal(0, 0.2, (len(labels), classes))
    names = ("no", "yes", "perhaps")[:classes]
    checked(SupervisedStudent(kind).fit(public, shares), tmp_path, TableSchema(SCHEMA.columns, "c", names), classes)


def test_a_constant(tmp_path: Path) -> None:
    public, labels = pool()
    checked(SupervisedStudent("forest").fit(public, np.where(labels == 1, 1, -1)), tmp_path)


def test_a_linear_student_of_a_table(tmp_path: Path) -> None:
    public, labels = pool()
    sight = Sight.learn(public, Seeing(axes=6))
    checked(LinearStudent(sight, classes=3).fit(public, labels), tmp_path)


def test_a_linear_student_of_images(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tutelage.data.schema import ImageSchema

    images = np.random.default_rng(0).random((80, 1, 12, 12)).astype(np.float32)
    labels = (images[:, 0, :6].mean(axis=(1, 2)) > 0.5).astype(int)
    public = Public.of(images)
    sight = Sight.learn(public, Seeing(axes=8, filters=12, grid=2), device="cpu")
    schema = ImageSchema(1, (12, 12), ("dark", "light"))
    assert checked(LinearStudent(sight, classes=2).fit(public, labels), tmp_path, schema, 2) > 0


def test_thresholds_are_rounded_towards_the_same_side() -> None:
    from tutelage.deployment.graphs import _below

    for value in (0.1, 1 / 3, 0.7, 1e-9, -0.1, -1 / 3):
        assert float(np.float32(_below(value))) <= value
        assert float(np.nextafter(np.float32(_below(value)), np.float32(np.inf))) > value
