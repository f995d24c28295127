"""Benchmarks that no run of the tests would miss: rows of several runs become one result, and volumes go through the door."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.util
import json
import runpy
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.dataset import Public
from tutelage.data.volumes import Volumes
from tutelage.privacy.sealed import Sealed
from tutelage.recipes.recipe import parse

pytest.importorskip("torch")


PLACE = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path for path in PLACE.glob("*.py") if path.name != "result.py")


def listed(folder: Path) -> dict[Path, tuple[int, int]]:
    """Say of every file of a folder how long it is and when it was written."""
    told = ((path, path.stat()) for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts)
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in told}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_benchmark_can_be_asked_what_it_does(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if path.name == "gradients.py":
        pytest.importorskip("opacus")
    result = imported("result", monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(path), "--help"])
    monkeypatch.setattr(result, "write", lambda *_, **__: pytest.fail("it ran"))
    before = listed(PLACE)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    assert "usage: " in capsys.readouterr().out
    assert listed(PLACE) == before
    assert not list(tmp_path.iterdir())


@pytest.fixture
def scenes(monkeypatch: pytest.MonkeyPatch) -> Any:
    return imported("scenes", monkeypatch)


@pytest.fixture
def hippocampus(monkeypatch: pytest.MonkeyPatch) -> Any:
    return imported("hippocampus", monkeypatch)


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(PLACE))
    return importlib.import_module(name)


def student(teachers: int, seed: int, dice: float, **told: Any) -> dict[str, Any]:
    key = {"network": "silhouettes", "teachers": teachers, "epsilon": 2.0, "questions": 16, "seed": seed, "by_rule": True}
    return {"part": "students", **key, "right_answers": 0.5, "student": {"dice": dice, "dice_of_dogs": 0.1}, **told}


def packaged(name: str) -> str:
    return resources.files("tutelage.recipes").joinpath(f"segmentation/{name}.toml").read_text(encoding="utf-8")


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
    path = PLACE / "results" / "scenes.json"
    assert scenes.merged(scenes.lines(path)) == json.loads(path.read_text(encoding="utf-8"))["figures"]


def test_the_committed_table_of_hippocampi_is_what_its_rows_make(hippocampus: Any) -> None:
    path = PLACE / "results" / "hippocampus.json"
    figures, rows = json.loads(path.read_text(encoding="utf-8"))["figures"], hippocampus.kept(path)
    assert hippocampus.merged(rows) == rows  # none stands twice
    assert hippocampus.table(rows) == figures["table"]


class Stopped(Exception):
    """A run was killed."""


@pytest.fixture
def told(hippocampus: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[tuple[Any, ...]]]:
    """Run hippocampus.py with teachers that take no training, and give split and Dice of the rows that it leaves."""
    monkeypatch.setattr(hippocampus, "read", lambda _: None)
    monkeypatch.setattr(hippocampus.result, "write", lambda *_: None)
    path = tmp_path / "rows.jsonl"

    def run(*words: str, dice: float, until: int = 9, refused: bool = False) -> list[tuple[Any, ...]]:
        def split_study(_: Any, split: int, __: Any) -> int:
            if refused:
                raise Stopped
            return split

        def study_rows(split: int, how: argparse.Namespace) -> None:
            if split >= until:
                raise Stopped
            hippocampus.Book(how.rows, split, 0.0).row(what="teacher", dice=dice)

        monkeypatch.setattr(hippocampus, "split_study", split_study)
        monkeypatch.setattr(hippocampus, "study_rows", study_rows)
        monkeypatch.setattr("sys.argv", ["hippocampus.py", "--rows", str(path), *words])
        with pytest.raises(Stopped) if refused or until < 3 else contextlib.nullcontext():
            hippocampus.main()
        return [(row["split"], row["dice"]) for row in hippocampus.merged(hippocampus.kept(path))]

    return run


def test_a_run_that_goes_on_keeps_the_rows_that_it_had(told: Callable[..., Any], tmp_path: Path) -> None:
    keep = ("--keep", str(tmp_path / "teachers"))
    assert told(*keep, dice=0.1, until=2) == [(0, 0.1), (1, 0.1)]
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"split": 2, "di')  # killed while it wrote
    assert told(*keep, dice=0.2, until=0) == [(0, 0.1), (1, 0.1)]
    assert told(*keep, "--threads", "1", dice=0.2, until=1) == [(0, 0.2), (1, 0.1)]
    assert told(*keep, dice=0.3) == [(0, 0.3), (1, 0.3), (2, 0.3)]
    assert told(*keep, "--student-steps", "7", dice=0.4, until=1) == [(0, 0.4)]  # another run's rows are not mixed with these


def test_rows_stay_until_there_are_teachers(told: Callable[..., Any], tmp_path: Path) -> None:
    before = told(dice=0.1)
    assert told("--keep", str(tmp_path / "of another training"), dice=0.2, refused=True) == before
    assert told(dice=0.2, until=1) == [(0, 0.2)]


def test_the_figures_of_the_frontiers_are_drawn_from_the_committed_results(monkeypatch: pytest.MonkeyPatch) -> None:
    frontiers = imported("parts.frontiers", monkeypatch)
    curves = frontiers.hippocampi(frontiers.read("hippocampus"))
    ours, label = (next(y for name, (_, y) in curves.items() if name.startswith(start)) for start in ("ours", "control"))
    assert all(one > other for one, other in zip(ours, label, strict=True))
    assert len(curves) == len(frontiers.SHOWN) + len(frontiers.LEVELS)
    many = frontiers.scenes(frontiers.read("scenes"))
    assert [len(x) for x, _ in many.values()] == [4] * 5


@pytest.mark.parametrize(
    ("epsilon", "teachers", "questions"), [(2.0, 1000, 2048), (2.0, 10, 16), (1.0, 1000, 512), (float("inf"), 9, 4096)]
)
def test_the_rule_looks_at_no_scene(scenes: Any, epsilon: float, teachers: int, questions: int) -> None:
    assert scenes.asked(epsilon, teachers, 4096) == questions


@pytest.mark.parametrize("name", ["dct", "wavelet", "pca", "regions"])
def test_volumes_still_go_through_the_door(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PLACE))
    spec = importlib.util.spec_from_file_location("benchmark_of_codecs", PLACE / "codecs.py")  # Python has a module of that name
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


def test_teachers_choose_the_wavelets_that_are_let_out(hippocampus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_heads_are_drawn_as_brats_lays_them_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nibabel")
    brats = imported("brats", monkeypatch)
    brats.drawn(tmp_path, 2, (48, 40, 24), 1)
    volumes = Volumes.brats(tmp_path, size=(48, 40, 24))
    images, masks = volumes.public().inputs, volumes.public().targets
    assert images.shape == (2, 4, 48, 40, 24)
    assert masks is not None
    assert 0 < masks.mean() < 1
    recipe = parse(brats.lesser(packaged("brats"), 44, 0.25))
    assert (recipe.teachers.shards, recipe.teachers.steps, recipe.aggregation.queries) == (24, 150, 12)
