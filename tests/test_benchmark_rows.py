"""Benchmarks that no run of the tests would miss: rows of several runs become one result, and volumes go through the door."""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.dataset import Public
from tutelage.privacy.sealed import Sealed

pytest.importorskip("torch")


@pytest.fixture
def scenes(monkeypatch: pytest.MonkeyPatch) -> Any:
    return imported("scenes", monkeypatch)


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module(name)


def student(teachers: int, seed: int, dice: float, **told: Any) -> dict[str, Any]:
    key = {"network": "silhouettes", "teachers": teachers, "epsilon": 2.0, "questions": 16, "seed": seed, "by_rule": True}
    return {"part": "students", **key, "right_answers": 0.5, "student": {"dice": dice, "dice_of_dogs": 0.1}, **told}


def written(path: Path, *rows: dict[str, Any], torn: str = "") -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + torn, encoding="utf-8")
    return path


def test_rows_are_merged_and_the_later_takes_precedence(scenes: Any, tmp_path: Path) -> None:
    old = written(
        tmp_path / "old.jsonl",
        {"part": "run", "command": "first"},
        {"part": "seconds", "stage": "drawn", "seconds": 1.0},
        {"part": "teachers", "network": "silhouettes", "teachers": 64},
        student(64, 0, 0.5),
        student(64, 1, 0.7),
        {"part": "run", "command": "to be replaced whole"},
        {"part": "controls", "control": "nothing", "dice": 0.1},
    )
    new = written(
        tmp_path / "new.jsonl",
        {"part": "run", "command": "second"},
        student(64, 1, 0.8),
        student(256, 0, 0.9),
        {"part": "controls", "control": "nothing", "dice": 0.2},
        torn='{"part": "stud',
    )
    figures = scenes.merged(row for path in (old, new) for row in scenes.lines(path))
    assert [run["command"] for run in figures["runs"]] == ["first", "second"]
    assert figures["runs"][0]["seconds"] == {"drawn": 1.0}
    told = [(row["teachers"], row["seed"], row["student"]["dice"], row["run"]) for row in figures["students"]]
    assert told == [(64, 0, 0.5, 0), (64, 1, 0.8, 1), (256, 0, 0.9, 1)]
    assert [(row["dice"], row["run"]) for row in figures["controls"]] == [(0.2, 1)]
    assert [(row["teachers"], row["dice"], row["draws"]) for row in figures["table"]] == [(64, 0.65, 2), (256, 0.9, 1)]
    kept = tmp_path / "result.json"
    kept.write_text(json.dumps({"figures": figures}), encoding="utf-8")
    assert scenes.merged(scenes.lines(kept)) == figures  # a result can be added to


def test_the_committed_result_is_what_its_rows_make(scenes: Any) -> None:
    path = Path(scenes.__file__).parent / "results" / "scenes.json"
    assert scenes.merged(scenes.lines(path)) == json.loads(path.read_text(encoding="utf-8"))["figures"]


@pytest.mark.parametrize(
    ("epsilon", "teachers", "questions"), [(2.0, 1000, 2048), (2.0, 10, 16), (1.0, 1000, 512), (float("inf"), 9, 4096)]
)
def test_the_rule_looks_at_no_scene(scenes: Any, epsilon: float, teachers: int, questions: int) -> None:
    assert scenes.asked(epsilon, teachers, 4096) == questions


@pytest.mark.parametrize("name", ["dct", "wavelet", "pca", "regions"])
def test_volumes_still_go_through_the_door(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path(__file__).parents[1] / "benchmarks"
    monkeypatch.syspath_prepend(str(place))
    spec = importlib.util.spec_from_file_location("benchmark_of_codecs", place / "codecs.py")  # Python has a module of that name
    assert spec is not None
    assert spec.loader is not None
    codecs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(codecs)
    assert name in codecs.DOOR
    monkeypatch.setattr(codecs, "SHAPE", (48, 48, 32))
    found = codecs.door(name, volumes=2, teachers=2)
    assert found["volumes"] == 2
    assert found["mean_dice"] > 0.3


class Agreeing:
    """Thirty teachers who all are right."""

    def __init__(self, masks: np.ndarray) -> None:
        self.masks = masks

    def vote(self, _: Any) -> Sealed:
        return Sealed(np.broadcast_to(self.masks.astype(np.float32), (30, *self.masks.shape)))


def test_teachers_choose_the_wavelets_that_are_let_out(monkeypatch: pytest.MonkeyPatch) -> None:
    hippocampus = imported("hippocampus", monkeypatch)
    monkeypatch.setattr(hippocampus, "SIZE", (16, 16, 16))
    places, middles = np.indices((16, 16, 16)).T, ((7, 8, 7), (8, 7, 9), (9, 9, 8))
    masks = np.stack([np.linalg.norm(places - middle, axis=-1) < 6.3 for middle in middles]).astype(np.uint8)
    public = Public.of(np.random.default_rng(0).normal(size=(3, 1, 16, 16, 16)).astype(np.float32), masks)
    votes, how = hippocampus.Remembered.of(Agreeing(masks), public.inputs), argparse.Namespace(epsilons=[8.0], threads=1)
    few, every = (
        next(hippocampus.answered(name, lambda _: hippocampus.wavelets(4096), votes, public, [(8.0, 0)], 30, how))
        for name in (hippocampus.SELECTED, "wavelet")
    )
    codes = [hippocampus.wavelets(4096).forward(one.values.reshape(3, -1)) for one in (few, every)]
    chosen, all_of_them = (np.count_nonzero(np.abs(code) > 1e-3, axis=1) for code in codes)
    assert 0 < chosen.max() <= hippocampus.CHOSEN[8.0] < all_of_them.min()
    assert few.codes is None  # what was not chosen was not measured: no student may take it for zero
    assert every.codes is not None
    shown = Public.of(masks[:, None].astype(np.float32), masks)  # a region each
    votes = hippocampus.Remembered.of(Agreeing(masks), shown.inputs)
    made = functools.partial(RegionVotes, (16, 16, 16), 2, "superpixels", share=0.2)
    voted = next(hippocampus.answered("region votes", lambda _: made(), votes, shown, [(8.0, 0)], 30, how))
    assert voted.codes is None
    assert set(np.unique(voted.values)) <= {0, 1}
