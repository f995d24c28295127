"""Students say how sure they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tutelage as tt
from tutelage.data.digits import digits


@pytest.fixture(scope="module")
def pool() -> tt.Public:
    return digits()[1]


def some_labels(pool: tt.Public, classes: int = 10) -> np.ndarray:
    assert pool.targets is not None
    labels = np.where(np.arange(len(pool)) < 150, pool.targets, -1)
    return np.where(labels < classes, labels, -1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tt.SupervisedStudent("kernel"),
        lambda: tt.SupervisedStudent("forest"),
        lambda: tt.SupervisedStudent("linear"),
        lambda: tt.SpreadingStudent("kernel"),
    ],
    ids=["one-hot", "forest", "linear", "spreading"],
)
def test_shares_add_up_and_name_the_prediction(make: Any, pool: tt.Public) -> None:
    student = make().fit(pool.unlabelled(), some_labels(pool))
    shares = student.probabilities(pool.inputs)
    assert shares.shape == (len(pool), 10)
    assert np.allclose(shares.sum(axis=1), 1)
    assert ((shares >= 0) & (shares <= 1)).all()
    assert np.mean(shares.argmax(axis=1) == student.predict(pool.inputs)) > 0.95


def test_columns_are_classes_even_where_some_were_never_named(pool: tt.Public) -> None:
    labels = some_labels(pool)
    labels[(labels != 2) & (labels != 5)] = -1
    for student in (tt.SupervisedStudent("forest"), tt.SupervisedStudent("kernel"), tt.SpreadingStudent("kernel")):
        shares = student.fit(pool.unlabelled(), labels).probabilities(pool.inputs)
        assert shares.shape[1] == 6
        assert set(np.flatnonzero(shares.any(axis=0))) <= {2, 5}


@pytest.mark.parametrize("make", [tt.SupervisedStudent, tt.SpreadingStudent])
def test_a_student_that_heard_one_class_is_sure_of_it(make: Any, pool: tt.Public) -> None:
    labels = np.full(len(pool), -1)
    labels[:3] = 4
    shares = make("kernel").fit(pool.unlabelled(), labels).probabilities(pool.inputs)
    assert shares.shape == (len(pool), 5)
    assert (shares[:, 4] == 1).all()


def test_corners_that_no_label_reaches_fall_back_on_the_classifier() -> None:
    near = np.random.default_rng(0).normal(size=(20, 2))
    pool = tt.Public.of(np.concatenate([near + np.asarray([away, 0]) for away in (0, 50, 500)]))
    labels = np.full(60, -1)
    labels[:5], labels[20:25] = 0, 1
    student = tt.SpreadingStudent("neighbours", neighbours=3).fit(pool, labels)
    shares = student.probabilities(pool.inputs)
    assert np.isfinite(shares).all()
    assert np.allclose(shares.sum(axis=1), 1)
