"""Teachers that are their records: what they ask for, and that one record speaks through one of them alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tutelage.data.dataset import Private, Public
from tutelage.features.correction import shares
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.privacy.errors import DataError
from tutelage.privacy.sealed import Sealed
from tutelage.teachers.records import RecordTeachers

RNG = np.random.default_rng(0)
POOL, INPUTS, TARGETS = RNG.normal(size=(80, 4)), RNG.normal(size=(12, 4)), RNG.integers(0, 3, 12)
SIGHT = Sight.learn(Public.of(POOL), Seeing(axes=4, bins=3))
GUESSES = RNG.normal(size=(2, SIGHT.width, 3))


def opened(votes: Sealed, folder: Path) -> np.ndarray:
    path = folder / "private" / "votes.npy"
    path.parent.mkdir(exist_ok=True)
    votes.store(path)
    return np.asarray(np.load(path))


def asked(private: Private, teachers: int, folder: Path) -> np.ndarray:
    return opened(RecordTeachers(SIGHT).fit(private, private.split(teachers)).vote(GUESSES), folder)


def test_every_record_asks_for_what_the_guess_misses(tmp_path: Path) -> None:
    private = Private.of(INPUTS, TARGETS)
    votes, order = asked(private, 12, tmp_path), np.concatenate(private.split(12).indices)
    seen = SIGHT(INPUTS)[order]
    assert votes.shape == (12, 2, SIGHT.width, 3)
    for number, guess in enumerate(GUESSES):
        missing = np.eye(3)[TARGETS[order]] - shares(seen, guess)
        assert np.allclose(votes[:, number], seen[:, :, None] * missing[:, None, :], atol=1e-5)


def test_a_patient_with_several_records_has_one_voice(tmp_path: Path) -> None:
    patients = Private.of(INPUTS, TARGETS, units=np.arange(12) // 3, unit="patient")
    records = asked(Private.of(INPUTS, TARGETS), 12, tmp_path)
    order = np.argsort(np.concatenate(Private.of(INPUTS, TARGETS).split(12).indices))
    alone, together = records[order], asked(patients, 4, tmp_path)
    for teacher, part in enumerate(patients.split(4).indices):
        expected = alone[part].mean(axis=0) if len(part) else 0.0
        assert np.allclose(together[teacher], expected, atol=1e-5)


def test_changing_one_record_moves_one_teacher(tmp_path: Path) -> None:
    other = INPUTS.copy()
    other[5] = 9.0
    moved = np.abs(asked(Private.of(INPUTS, TARGETS), 12, tmp_path) - asked(Private.of(other, TARGETS), 12, tmp_path))
    assert (moved.reshape(12, -1).max(axis=1) > 0).sum() == 1


def test_nobody_votes_before_there_are_records() -> None:
    with pytest.raises(DataError, match="`teachers` must be fitted"):
        RecordTeachers(SIGHT).vote(GUESSES)
