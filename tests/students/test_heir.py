"""An heir: which names it is told, what it may learn from, and that it becomes better than the one who named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.data.dataset import Private, Public
from tutelage.estimators import load
from tutelage.features.naming import named
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.privacy.errors import DataError, RecipeError, Unsealed
from tutelage.privacy.sealed import Sealed
from tutelage.students.heir import Heir
from tutelage.students.linear import LinearModel, LinearStudent
from tutelage.students.supervised import SupervisedStudent

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(400, 4)).astype(np.float32)
LABELS = (INPUTS[:, 0] > INPUTS[:, 1]).astype(np.int64)
POOL = Public.of(INPUTS, LABELS)
SIGHT = Sight.learn(POOL, Seeing(axes=8, bins=4))
LINEAR = LinearStudent(SIGHT, classes=2, rounds=40)
WEIGHTS = LINEAR.fit(POOL, LABELS).weights


class Told:
    """Remembers what it was given, and learns as any other."""

    def __init__(self) -> None:
        self.public: Any = None
        self.labels: Any = None

    def fit(self, public: Public, labels: np.ndarray) -> SupervisedStudent:
        self.public, self.labels = public, labels
        return SupervisedStudent("linear").fit(public, labels)


def test_the_most_sure_are_named_and_the_rest_is_left_open() -> None:
    shares = np.asarray([[0.5, 0.4, 0.1], [0.1, 0.8, 0.1], [0.45, 0.1, 0.45], [0.0, 0.05, 0.95]])
    assert named(shares, sure=0.5).tolist() == [-1, 1, -1, 2]  # by the lead over the second, 0.1, 0.7, 0 and 0.9
    assert named(shares, sure=0.75).tolist() == [0, 1, -1, 2]
    assert named(shares, sure=1.0).tolist() == [0, 1, 0, 2]
    assert (named(shares, sure=1e-9) >= 0).sum() == 1  # an heir that is told nothing cannot learn
    assert (named(RNG.dirichlet(np.ones(10), size=1000)) >= 0).sum() == 900


def test_an_heir_learns_the_names_and_not_the_targets(tmp_path: Path) -> None:
    told = Told()
    model = Heir(LINEAR, lambda: told, sure=0.8).fit(Public.of(INPUTS, 1 - LABELS), WEIGHTS)  # targets that would mislead
    assert told.public.targets is None
    assert np.array_equal(told.labels, model.names)
    assert np.mean(told.labels >= 0) == pytest.approx(0.8)
    kept = told.labels >= 0
    assert np.array_equal(told.labels[kept], model.linear.predict(INPUTS)[kept])
    fresh = RNG.normal(size=(500, 4)).astype(np.float32)
    truth = fresh[:, 0] > fresh[:, 1]
    assert np.mean(model.predict(fresh) == truth) > max(0.95, np.mean(model.linear.predict(fresh) == truth))
    written = model.save(tmp_path / "student")
    assert written.name == "student.skops"  # the heir's own ending
    assert np.array_equal(load(written).predict(fresh), model.predict(fresh))
    back = LinearModel.load(model.linear.save(tmp_path / "linear"))
    assert np.array_equal(back.predict(fresh), model.linear.predict(fresh))


@pytest.mark.parametrize("odd", [LABELS, LABELS.astype(float), np.zeros((3, 2))])
def test_an_heir_of_labels_cannot_be_had(odd: Any) -> None:
    told = Told()
    with pytest.raises(DataError, match=r"`public` and `answers` must be a public pool and released weights \(9, 2\)"):
        Heir(LINEAR, lambda: told).fit(POOL, odd)
    assert told.public is None  # not even begun


def test_an_heir_of_private_records_or_of_sealed_weights_cannot_be_had() -> None:
    told = Told()
    with pytest.raises(Unsealed):
        Heir(LINEAR, lambda: told).fit(POOL, Sealed(WEIGHTS))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="Got Private and shape"):
        Heir(LINEAR, lambda: told).fit(Private.of(INPUTS, LABELS), WEIGHTS)  # type: ignore[arg-type]
    assert told.public is None


def test_the_controls_are_the_linear_students() -> None:
    told = Told()
    made = Heir(LINEAR, lambda: told).fit_all(POOL, LABELS, clips=(None, 0.1))
    alone = LINEAR.fit_all(POOL, LABELS, clips=(None, 0.1))
    assert all(np.array_equal(mine.weights, theirs.weights) for mine, theirs in zip(made, alone, strict=True))
    assert told.public is None  # no heir learned from what may be private
    Heir(LINEAR, lambda: told).taught(POOL, LABELS)
    assert told.public.targets is None
    assert np.array_equal(told.labels, LABELS)


@pytest.mark.parametrize("sure", [0.0, -0.1, 1.1, float("nan"), "most"])
def test_what_is_no_share_is_refused(sure: Any) -> None:
    with pytest.raises(RecipeError, match=r"`sure` must be in \(0, 1\]"):
        Heir(LINEAR, Told, sure=sure)
