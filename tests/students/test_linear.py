"""The linear student: weights as they are, labels by the same steps, and a file that gives it back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tutelage.codecs.corrections import Corrections
from tutelage.data.dataset import Public
from tutelage.features.correction import correction
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.students.linear import LinearModel, LinearStudent, _cut

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(400, 4)).astype(np.float32)
LABELS = (INPUTS[:, 0] > INPUTS[:, 1]).astype(np.int64)
POOL = Public.of(INPUTS)
SIGHT = Sight.learn(POOL, Seeing(axes=8, bins=4))


def test_labels_are_learned_and_weights_are_taken(tmp_path: Path) -> None:
    student = LinearStudent(SIGHT, classes=2, rounds=40)
    model = student.fit(POOL, LABELS)
    fresh = RNG.normal(size=(200, 4)).astype(np.float32)
    assert np.mean(model.predict(fresh) == (fresh[:, 0] > fresh[:, 1])) > 0.9
    same = student.fit(POOL, model.weights)
    assert np.array_equal(same.probabilities(fresh), model.probabilities(fresh))
    back = LinearModel.load(model.save(tmp_path / "student"))
    assert np.array_equal(back.probabilities(fresh), model.probabilities(fresh))


def test_a_cut_correction_is_as_long_as_the_door_lets_through() -> None:
    codec, seen = Corrections(SIGHT.width, 2, clip=0.3), SIGHT(INPUTS)
    missing = correction(seen, LABELS, RNG.normal(size=(SIGHT.width, 2)) * 3)
    through = codec.bound.clip(codec.encode((seen[:, :, None] * missing[:, None])[:, None]))
    ours = seen[:, :, None] * (missing * _cut(seen, missing, 0.3))[:, None]
    assert np.allclose(codec.decode(through[:, 0], INPUTS), ours * codec.rate * codec.width, atol=1e-4)
    assert (np.linalg.norm(ours.reshape(400, -1), axis=1) < 0.2).any()  # short ones are left alone
    assert np.linalg.norm(ours.reshape(400, -1), axis=1).max() == pytest.approx(0.3, rel=1e-5)


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    student = LinearStudent(SIGHT, classes=2)
    for odd in (LABELS[:-1], LABELS.astype(float), np.zeros((3, 2))):
        with pytest.raises(DataError, match="`answers` must be weights"):
            student.fit(POOL, odd)
    np.savez(tmp_path / "other.npz", weights=np.zeros(2))
    with pytest.raises(DataError, match="`path` must name a file of kind"):
        LinearModel.load(tmp_path / "other.npz")
    with pytest.raises(RecipeError, match="`rate` must be"):
        Corrections(3, 2, rate=0.0)
    with pytest.raises(RecipeError, match="`classes` must be"):
        Corrections(3, 1)
