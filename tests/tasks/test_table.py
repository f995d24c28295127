"""A new task is one folder and one line: it runs, is released, verified, reported and printed without another edit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tasks.toy.task import Attributes

import tutelage as tt
from tutelage import outcomes
from tutelage.report.page import pages
from tutelage.tasks import table
from tutelage.tasks.scores import Score
from tutelage.verification import verify


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.TABLE, "toy", "tests.tasks.toy")  # the one line


def attributes(records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.random.default_rng(seed).normal(size=(records, 3))
    return inputs, (inputs > 0).astype(np.int64)


class Signs:
    """Teachers that answer yes above the mean of their shard."""

    def fit(self, private: tt.Private, shards: tt.Shards, *, progress: Any = None) -> Signs:
        self.levels = np.stack([private.inputs[part].mean(axis=0) for part in shards.indices])
        return self

    def vote(self, inputs: np.ndarray) -> tt.Sealed:
        return tt.Sealed((inputs[None] > self.levels[:, None]).astype(np.int64))


class Levels:
    """A student that finds the level of each attribute."""

    def fit(self, public: Any, values: np.ndarray) -> Levels:
        asked, yes = public.inputs[: len(values)], values > 0.5
        self.levels = np.stack([(asked[row, k].min() if (row := yes[:, k]).any() else 9.0) for k in range(values.shape[1])])
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return (inputs >= self.levels).astype(np.int64)

    def save(self, path: Path) -> Path:
        np.savez(path.with_suffix(".npz"), levels=self.levels)
        return path.with_suffix(".npz")


def run(out: Path, **choices: Any) -> tt.Outcome:
    return tt.transfer(
        tt.Private.of(*attributes(200, 0)), tt.Public.of(*attributes(40, 1)), test=tt.Public.of(*attributes(50, 2)),
        teachers=Signs(), student=Levels, codec=Attributes(3), budget=tt.Budget(50.0, 1e-5), shards=20, queries=30, out=out,
        aggregation=tt.Aggregation("mean"), **choices,
    )  # fmt: skip


def test_a_toy_task_takes_the_whole_walk(toy: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(tmp_path / "run", pages=pages)
    assert outcome.guarantee["task"] == "toy"
    assert outcome.scores[Score.STUDENT] > outcome.scores[Score.PUBLIC_ONLY]
    assert verify(outcome.folder).claimed_epsilon == pytest.approx(50.0)
    assert (outcome.folder.release / "attributes.npz").is_file()
    assert "private student's agreement" in outcome.folder.report.read_text(encoding="utf-8")
    assert set(table.read_controls(outcome.folder)) == {Score.ONE_TEACHER}
    assert Score.ONE_TEACHER not in json.loads(outcome.folder.scores.read_text(encoding="utf-8"))
    outcomes.show([("toy", outcome)])
    assert "private student" in capsys.readouterr().out


def test_controls_can_be_switched_off(toy: None, tmp_path: Path) -> None:
    assert table.read_controls(run(tmp_path / "run", controls=False).folder) == {}


def test_a_task_that_is_not_in_the_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tt.RecipeError, match=r"`task` must be one of 'labels', .* Got 'toy' instead"):
        run(tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_no_two_tasks_share_a_file_or_a_figure() -> None:
    files = [name for one in table.readings() for name in (one.answers, *one.files)]
    assert len(files) == len(set(files))
    keys = [value.value for value in Score]
    assert len(keys) == len(set(keys))
    assert table.sealed_scores() < set(keys)
