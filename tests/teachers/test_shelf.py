"""Finished scikit-learn teachers are kept and taken up again: never of other settings, and never of other records."""

from __future__ import annotations

import contextlib
import json
import stat
from pathlib import Path

import numpy as np
import pytest

from tutelage.data.dataset import Private
from tutelage.data.digits import digits
from tutelage.privacy.errors import DataError, RecipeError, Unsealed
from tutelage.teachers import estimators
from tutelage.teachers import shelf as shelves
from tutelage.teachers.estimators import EstimatorTeachers


@pytest.fixture(scope="module")
def private() -> Private:
    return digits()[0][:120]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "EVERY", 0.0)  # a file for every teacher


def taught(monkeypatch: pytest.MonkeyPatch, *, fail_at: int | None = None) -> list[int]:
    """Count the teachers that are fitted, and stop at one of them as a kill would."""
    fitted: list[int] = []
    fit = EstimatorTeachers._taught

    def counted(self: EstimatorTeachers, teacher: int, *part: np.ndarray) -> object:
        if len(fitted) == fail_at:
            raise KeyboardInterrupt
        fitted.append(teacher)
        return fit(self, teacher, *part)

    monkeypatch.setattr(EstimatorTeachers, "_taught", counted)
    return fitted


def votes(teachers: EstimatorTeachers, private: Private) -> np.ndarray:
    return np.stack([model.predict(estimators.flat(private.inputs)) for model in teachers._models])


@pytest.mark.usefixtures("eager")
def test_a_fit_that_was_killed_goes_on(private: Private, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards, folder = private.split(5), tmp_path / "private" / "teachers"
    whole = EstimatorTeachers("kernel", seed=3).fit(private, shards)
    with monkeypatch.context() as patch:
        taught(patch, fail_at=3)
        with pytest.raises(KeyboardInterrupt):
            EstimatorTeachers("kernel", seed=3, checkpoint=folder).fit(private, shards)
    assert len(list(folder.glob("models-*.skops"))) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    (folder / ".models-000009-000009.skops.7").write_bytes(b"half of a file")
    fitted, told = taught(monkeypatch), []
    resumed = EstimatorTeachers("kernel", seed=3).fit(
        private, shards, checkpoint=folder, progress=lambda done, total: told.append((done, total))
    )
    assert len(fitted) == 2
    assert told[-1] == (5, 5)
    assert not list(folder.glob(".*"))
    assert np.array_equal(votes(resumed, private), votes(whole, private))
    again = EstimatorTeachers("kernel", seed=3).fit(private, shards, checkpoint=folder)
    assert len(fitted) == 2
    assert np.array_equal(votes(again, private), votes(whole, private))


def test_few_files_are_written(private: Private, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "EVERY", 3600.0)
    EstimatorTeachers("neighbours").fit(private, private.split(5), checkpoint=tmp_path / "private")
    assert [path.name for path in (tmp_path / "private").iterdir()] == ["models-000000-000004.skops"]


def test_a_shard_of_one_class_is_kept_too(private: Private, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Private.of(private.inputs, np.full(len(private), 7))
    EstimatorTeachers("forest").fit(one, one.split(2), checkpoint=tmp_path / "private")
    fitted = taught(monkeypatch)
    again = EstimatorTeachers("forest").fit(one, one.split(2), checkpoint=tmp_path / "private")
    assert (again._models, fitted) == ([7, 7], [])


@pytest.mark.parametrize("change", ["kind", "seed", "shards"])
def test_teachers_of_other_settings_are_refused(private: Private, tmp_path: Path, change: str) -> None:
    EstimatorTeachers("neighbours", seed=1).fit(private, private.split(3), checkpoint=tmp_path / "private")
    teachers = EstimatorTeachers("linear" if change == "kind" else "neighbours", seed=2 if change == "seed" else 1)
    with pytest.raises(RecipeError, match="`checkpoint` must hold teachers of these same settings"):
        teachers.fit(private, private.split(4 if change == "shards" else 3), checkpoint=tmp_path / "private")
    assert [path.name for path in (tmp_path / "private").iterdir()] == ["models-000000-000002.skops"]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("change", ["records", "labels", "fewer"])
@pytest.mark.parametrize("killed", [False, True])
def test_other_records_train_again_without_a_word(
    private: Private, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, killed: bool
) -> None:
    """Before, a resumed run was refused if one unit's record had changed: its exit code was an answer."""
    folder = tmp_path / "private"
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        taught(patch, fail_at=2 if killed else None)
        EstimatorTeachers("neighbours", seed=1).fit(private, private.split(3), checkpoint=folder)
    (folder / "failed.json").write_text("{}")
    inputs, targets = private.inputs.copy(), private.targets.copy()
    inputs[0] += change == "records"
    targets[0] = (targets[0] + (change == "labels")) % 10
    other = Private.of(inputs, targets, units=private.units)[change == "fewer" :]
    fitted = taught(monkeypatch)
    again = EstimatorTeachers("neighbours", seed=1).fit(other, other.split(3), checkpoint=folder)
    assert fitted == [0, 1, 2]
    assert np.array_equal(
        votes(again, private), votes(EstimatorTeachers("neighbours", seed=1).fit(other, other.split(3)), private)
    )
    note = folder / "restarted.json"
    assert json.loads(note.read_text()) == {"restarts": 1}
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert not (folder / "failed.json").exists()
    EstimatorTeachers("neighbours", seed=1).fit(private, private.split(3), checkpoint=folder)
    assert json.loads(note.read_text()) == {"restarts": 2}


def test_a_damaged_file_and_a_folder_outside_are_refused(private: Private, tmp_path: Path) -> None:
    with pytest.raises(Unsealed, match="`checkpoint` must lie in a folder named 'private'"):
        EstimatorTeachers("neighbours").fit(private, private.split(2), checkpoint=tmp_path / "release")
    assert not (tmp_path / "release").exists()
    EstimatorTeachers("neighbours").fit(private, private.split(2), checkpoint=tmp_path / "private")
    [path] = (tmp_path / "private").iterdir()
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError):
        EstimatorTeachers("neighbours").fit(private, private.split(2), checkpoint=tmp_path / "private")
