"""One record cannot stop a run: a teacher that fails becomes a constant one, and only the owner of the data learns of it."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.codecs.regionvotes import RegionVotes
from tutelage.codecs.votes import Votes
from tutelage.data.dataset import Private
from tutelage.estimators import ESTIMATORS
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training
from tutelage.privacy.errors import DataError
from tutelage.privacy.sealed import _KEY
from tutelage.privacy.units import Shards
from tutelage.teachers import estimators as module
from tutelage.teachers.estimators import EstimatorTeachers
from tutelage.teachers.records import RecordTeachers
from tutelage.teachers.regions import RegionTeachers

RNG = np.random.default_rng(0)
INPUTS, TARGETS, ASKED = RNG.normal(size=(60, 5)), RNG.integers(0, 3, 60), RNG.normal(size=(9, 5))
PARTS = [np.arange(0, 20), np.arange(20, 40), np.arange(40, 60)]


def private(inputs: Any = INPUTS, targets: Any = TARGETS) -> Private:
    return Private(np.asarray(inputs), np.asarray(targets), np.arange(60), "record")


def shards(*parts: Any) -> Shards:
    return Shards.of(parts or PARTS, np.arange(60))


def votes(teachers: EstimatorTeachers, asked: Any = ASKED) -> np.ndarray:
    return np.asarray(teachers.vote(asked)._open(_KEY))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30, 1e300])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_record_that_is_no_number_stops_no_kind(kind: str, bad: float, capfd: pytest.CaptureFixture[str]) -> None:
    inputs = INPUTS.copy()
    inputs[25] = bad
    given, clean = (votes(EstimatorTeachers(kind, seed=1).fit(private(some), shards())) for some in (inputs, INPUTS))
    assert (given[[0, 2]] == clean[[0, 2]]).all()
    if abs(bad) != 1e30:  # what 32 bits do not hold is nothing; what they do hold is a record like any other
        blank = INPUTS.copy()
        blank[25] = 0
        assert (given == votes(EstimatorTeachers(kind, seed=1).fit(private(blank), shards()))).all()
    assert capfd.readouterr() == ("", "")


class Fails:
    """A model that fails where one of its records says so."""

    def __init__(self, when: str, error: type[BaseException] = ValueError) -> None:
        self.when, self.error, self.hit = when, error, False

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> Fails:
        self.hit = bool((inputs == 77).any())
        if self.when == "fit" and self.hit:
            raise self.error("a secret: 77")
        return self

    def predict(self, inputs: np.ndarray) -> Any:
        if self.when == "predict" and self.hit:
            raise self.error("a secret: 77")
        if self.when in ("fit", "predict") or not self.hit:
            return np.full(len(inputs), 2)
        return {"text": np.full(len(inputs), "77"), "shape": np.full((len(inputs), 2), 1), "float": np.full(len(inputs), 1e300),
                "negative": np.full(len(inputs), -1), "half": np.full(len(inputs), 0.5), "none": None}[self.when]  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("when", ["fit", "predict", "text", "shape", "float", "negative", "half", "none"])
def test_a_model_that_fails_or_says_no_class_is_constant(
    when: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "estimator", lambda kind, *, seed=0: Fails(when))
    monkeypatch.setattr(module.Shelf, "put", lambda *_: None)
    monkeypatch.setattr(module, "fingerprint", lambda *_: "fit")
    inputs = INPUTS.copy()
    inputs[25] = 77
    folder = tmp_path / "private" / "teachers"
    with caplog.at_level(logging.DEBUG):
        teachers = EstimatorTeachers("forest", checkpoint=folder).fit(private(inputs), shards())
        found = votes(teachers)
    assert found.tolist() == [[2] * 9, [0] * 9, [2] * 9]
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    if when in ("fit", "predict"):
        note = folder / "failed.json"
        assert json.loads(note.read_text()) == {"fingerprint": "fit", "failed": {"1": "ValueError"}}
        assert "secret" not in note.read_text()
        assert stat.S_IMODE(note.stat().st_mode) == 0o600
        again = EstimatorTeachers("forest", checkpoint=folder).fit(private(), shards())
        assert again._failed == {1: "ValueError"}  # a resumed run still knows
    assert (folder / "failed.json").exists() == (when in ("fit", "predict", "shape"))


@pytest.mark.parametrize("when", ["fit", "predict"])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_fails_on_this_machine_s_side_is_raised(
    when: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "estimator", lambda kind, *, seed=0: Fails(when, error))
    inputs = INPUTS.copy()
    inputs[25] = 77
    with pytest.raises(error):
        EstimatorTeachers("forest").fit(private(inputs), shards()).vote(ASKED)


def test_the_old_teachers_are_stopped_by_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: without cleaning, one record decides whether there is an answer, and its message may quote it."""
    monkeypatch.setattr(module, "numbers", np.asarray)
    monkeypatch.setattr(EstimatorTeachers, "_fails", lambda self, teacher, error: (_ for _ in ()).throw(error))
    inputs = INPUTS.copy()
    inputs[25] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        EstimatorTeachers("linear").fit(private(inputs), shards())


def test_an_empty_shard_and_odd_labels_give_a_teacher(tmp_path: Path) -> None:
    holes = shards(PARTS[0], [], PARTS[2])
    teachers = EstimatorTeachers("linear", seed=1).fit(private(), holes, checkpoint=tmp_path / "private")
    full = EstimatorTeachers("linear", seed=1).fit(private(), shards())
    assert (votes(teachers)[[0, 2]] == votes(full)[[0, 2]]).all()
    assert not votes(teachers)[1].any()
    assert not votes(EstimatorTeachers("linear").fit(private(), shards([]))).any()
    odd = TARGETS.astype(np.float64)
    odd[20:40] = np.nan
    odd[40:60] = np.where(np.arange(20) % 2, -3.0, 1e300)
    odd[0] = 99  # a class like any other here: how many there are is the codec's to know
    found = votes(EstimatorTeachers("neighbours").fit(private(targets=odd), shards()), INPUTS)
    assert not found[1:].any()
    assert found[0, 0] == 99
    assert Votes(3).encode(found)[0, 0].tolist() == [True, False, False]


def test_what_is_public_is_refused_loudly() -> None:
    with pytest.raises(DataError, match="`targets` must be numbers"):
        EstimatorTeachers("linear").fit(private(targets=TARGETS.astype(str)), shards())
    teachers = EstimatorTeachers("linear").fit(private(), shards())
    with pytest.raises(DataError, match="`inputs` must have 5 numbers each"):
        teachers.vote(ASKED[:, :4])
    with pytest.raises(DataError, match="`targets` must be numbers"):
        RecordTeachers(lambda rows: rows).fit(private(targets=TARGETS.astype(str)), shards())  # type: ignore[arg-type]


class Picky:
    """A cut that fails on some images, as the one by grey levels may."""

    def __init__(self, cut: RegionVotes) -> None:
        self.cut, self.shape, self.regions, self.share = cut, cut.shape, cut.regions, cut.share

    def seeing(self, inputs: Any) -> Any:
        if (np.asarray(inputs) == 77).any():
            raise ValueError("a secret")
        return self.cut.seeing(inputs)


def test_an_image_that_cannot_be_cut_is_a_blank_one() -> None:
    images = RNG.normal(size=(12, 1, 8, 8)).astype(np.float32).round()
    masks, odd, empty = (images[:, 0] > 0).astype(np.float32), images.copy(), images.copy()
    odd[5], odd[6], odd[7, 0, 3, 3] = 77, np.nan, np.inf
    empty[5:7], empty[7, 0, 3, 3] = 0, 0
    how: dict[str, Any] = {
        "side": 8,
        "training": Training(steps=2, batch=4, augmentation=None),
        "engine": "sequential",
        "device": "cpu",
    }
    factory = ConvNet(shape=(2, 8, 8), classes=2, widths=(4,), hidden=8, groups=2)
    cut, division = RegionVotes((8, 8), 4), Shards.of(np.split(np.arange(12), 3), np.arange(12))
    one, two = (
        RegionTeachers(some, factory, **how).fit(Private(inputs, masks, np.arange(12)), division)
        for some, inputs in ((Picky(cut), odd), (cut, empty))
    )
    for name, tensor in one.ensemble.state.items():
        assert (tensor == two.ensemble.state[name]).all()
