"""Records as teachers, carried out whole on the embedded digits: what it reaches, what it costs, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.codecs.corrections import Corrections
from tutelage.data.dataset import Private, Public
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.planning import Aggregation
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.ledger import Budget
from tutelage.recipes import linear
from tutelage.recipes import run as runs
from tutelage.recipes.recipe import parse
from tutelage.report.page import report
from tutelage.runs import RunFolder
from tutelage.students.linear import LinearModel, LinearStudent
from tutelage.tasks.states import reading as states_reading
from tutelage.tasks.table import read_controls
from tutelage.teachers.records import RecordTeachers
from tutelage.transfer import transfer
from tutelage.verification import verify

CORRECTED = states_reading.READING.sealed["corrected"]

pytest.importorskip("torch")

RECIPE = """
name = "digits, corrected"
[data]
set = "digits"
[privacy]
epsilon = 8.0
delta = 1e-5
[teachers]
kind = "records"
shards = 1000
[aggregation]
method = "mean"
queries = 8
[student]
learner = "linear"
[student.linear]
axes = 20
filters = 16
patch = 3
grid = 2
clip = 0.5
"""


def test_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    answer = Curator.ask

    def killed(self: Curator, *given: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 4:
            raise KeyboardInterrupt
        return answer(self, *given, **more)

    recipe = parse(RECIPE)
    monkeypatch.setattr(Curator, "ask", killed)
    with pytest.raises(KeyboardInterrupt):
        runs.run(recipe, tmp_path / "run", device="cpu")
    outcome = runs.run(recipe, tmp_path / "run", device="cpu", resume=True)
    folder = RunFolder(tmp_path / "run")
    told = json.loads(folder.guarantee.read_text(encoding="utf-8"))
    assert [(event["kind"], event["count"]) for event in told["events"]] == [("Gaussian", 8)]
    assert told["epsilon"] <= 8.0 + 1e-9
    assert told["units"] == 1000
    assert outcome.scores["private student"] > 0.7  # of ten classes; without noise it is above 0.9
    assert read_controls(folder)[CORRECTED[1]] > outcome.scores["private student"] - 0.05
    _, _, test = runs.loaded(recipe, None)
    kept = LinearModel.load(folder.release / "student.npz", device="cpu")
    assert np.array_equal(kept.predict(test.inputs), outcome.model.predict(test.inputs))
    assert verify(folder.root).recomputed_epsilon <= 8.0 * 1.005
    page = report(folder).report.read_text(encoding="utf-8")
    assert "the same corrections, no noise" in page
    assert "All teachers corrected a public guess 8 times" in page
    assert "the noisy one that was released" not in page


def test_features_of_another_run_are_not_taken_up(tmp_path: Path) -> None:
    recipe = parse(RECIPE)
    many = recipe.model_copy(update={"teachers": recipe.teachers.model_copy(update={"shards": 1001})})  # unread: never checked
    with pytest.raises(RecipeError, match="`shards` must be at most the places on the roster"):
        runs.run(many, tmp_path / "run", device="cpu")  # after the pool was looked at
    other = parse(RECIPE).model_copy(update={"seed": 1})  # another division: the old pool is private now
    outcome = runs.run(other, tmp_path / "run", device="cpu")
    _, public, _ = runs.loaded(other, None)
    own = Sight.learn(public, linear.settings(other).seeing(), seed=1, device="cpu")
    assert np.array_equal(outcome.model.sight.basis, own.basis)
    assert len(list(RunFolder(tmp_path / "run").release.glob("*sight*"))) == 1  # what was learned of the old pool does not leave
    for file in RunFolder(tmp_path / "run").release.glob("sight-*.npz"):
        file.unlink()
    with pytest.raises(RecipeError, match="must hold answers about this pool, seed and these settings"):
        runs.run(other, tmp_path / "run", device="cpu", resume=True)


def test_targets_that_are_no_labels_are_refused_before_anything_is_paid(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=(40, 3))
    sight = Sight.learn(Public.of(inputs), Seeing(axes=3, bins=3))
    with pytest.raises((DataError, RecipeError), match=r"`targets` must be one number per record|`codec` must be"):
        transfer(
            Private.of(inputs, np.zeros((40, 2), dtype=int)),
            Public.of(inputs),
            teachers=RecordTeachers(sight),
            student=lambda: LinearStudent(sight, classes=2),
            codec=Corrections(sight.width, 2),
            budget=Budget(1.0, 1e-5),
            shards=40,
            queries=2,
            aggregation=Aggregation("mean"),
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('learner = "linear"\n[student.linear]', 'learner = "supervised"\n[other]', "other"),
        ('kind = "records"', 'kind = "forest"', "must come together"),
        ('method = "mean"', 'method = "gnmax"', "`aggregation.method` must be 'mean' for 'records'"),
        ("queries = 8", 'queries = 8\nquestions = "prototypes"', "`aggregation` must leave"),
        ("axes = 20", "axes = 0", "`student.linear.axes` must be a whole number ≥ 1"),
        ("clip = 0.5", "clip = -1.0", "`student.linear.norm` must be a finite number > 0"),
        ("clip = 0.5", "klip = 0.5", "klip"),
    ],
)
def test_what_does_not_fit_together_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse(RECIPE.replace(old, new))


def test_the_price_is_known_before_any_data() -> None:
    bound, known = runs.bound(parse(RECIPE))
    assert (bound.dimension, bound.diameter(), known) == (21 * 10, 1.0, True)
