"""Boosted trees as the control of tables: sealed under private/, and only for tables large enough."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.walk.tiny import CLASSES, QUESTIONS, clouds, tiny_run

from tutelage.data.dataset import Private, Public
from tutelage.runs import RunFolder
from tutelage.tasks.labels import reading as labels_reading
from tutelage.tasks.labels.strong import FEWEST, strong
from tutelage.tasks.table import read_controls

STRONG = labels_reading.READING.sealed["strong"]


def made(tmp_path: Path, *, records: int = FEWEST, shape: tuple[int, ...] = (2,), classes: int = CLASSES) -> dict[str, float]:
    inputs, targets = clouds(records, 0)
    rest, answers = clouds(60, 2)
    folder = RunFolder(tmp_path / "run").create()
    private = Private.of(inputs.reshape(records, *shape), targets % classes)
    strong(private, Public.of(rest.reshape(60, *shape), answers % classes), folder)
    return read_controls(folder)


def test_tables_are_scored_and_sealed(tmp_path: Path) -> None:
    (figure,) = [made(tmp_path)[name] for name in STRONG]
    assert figure > 0.9
    path = tmp_path / "run" / "private" / "strong.npy"
    assert path.stat().st_mode & 0o077 == 0
    assert not list(RunFolder(tmp_path / "run").release.iterdir())


def test_images_small_tables_and_one_class_are_left_alone(tmp_path: Path) -> None:
    assert made(tmp_path, shape=(1, 2)) == made(tmp_path, records=FEWEST - 1) == made(tmp_path, classes=1) == {}


def test_a_run_on_a_table_has_it_and_shows_it_only_where_data_is_public(tmp_path: Path) -> None:
    import json

    import tutelage as tt

    inputs, targets = clouds(FEWEST, 0)
    for benchmark in (False, True):
        place, pool = tmp_path / f"run-{benchmark}", clouds(60, 1)
        tt.transfer(
            tt.Private.of(inputs, targets), tt.Public.of(*pool), teachers=tt.EstimatorTeachers("linear"),
            student=lambda: tt.SupervisedStudent("linear"), codec=tt.Votes(CLASSES), budget=tt.Budget(8.0, 1e-5), shards=10,
            queries=QUESTIONS, test=tt.Public.of(*clouds(60, 2)), out=place, benchmark=benchmark,
        )  # fmt: skip
        assert STRONG[0] in read_controls(RunFolder(place))
        assert (STRONG[0] in json.loads((place / "release" / "scores.json").read_text(encoding="utf-8"))) == benchmark
    assert np.load(tmp_path / "run-False" / "private" / "strong.npy").shape == (1,)
    assert not (tiny_run(tmp_path / "tiny").folder.sealed("strong")).exists()
