"""An heir carried out whole on the embedded digits: better than who taught it, at no price, and begun again after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.data.dataset import Public
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import corrected, learners
from tutelage.recipes import run as runs
from tutelage.recipes.linear import inherited
from tutelage.recipes.recipe import parse
from tutelage.report.page import report
from tutelage.runs import RunFolder
from tutelage.students.inherited import Inherited
from tutelage.students.linear import LinearModel
from tutelage.tasks.scores import Score
from tutelage.tasks.states import reading as states_reading
from tutelage.verification import verify

CORRECTED = states_reading.READING.sealed["corrected"]
INHERITED = states_reading.READING.sealed["heir"]

torch = pytest.importorskip("torch")

ALONE = """
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
axes = 6
filters = 16
patch = 3
grid = 2
clip = 0.5
"""
HEIR = (
    ALONE.replace('learner = "linear"', 'learner = "linear"\nheir = "consistency"\nkind = "convnet"\nwidths = [16, 32]')
    + """sure = 0.7
[student.consistency]
steps = 300
batch = 40
ratio = 2
rate = 4e-3
rounds = 4
views = 2
judged = 2
neighbours = 5
average = 0.97
flip_rate = 0.1
labelled = { rotation = 10.0, shift = 0.5, scale = 0.1 }
weak = { rotation = 5.0, shift = 0.25 }
strong = { rotation = 15.0, shift = 0.75, scale = 0.15, shear = 10.0 }
"""
)


class Killed(BaseException):
    """Stands for a kill while the heir learns."""


def book(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "release" / "book.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    from tutelage.students.consistency import ConsistencyStudent

    recipe, root = parse(HEIR), tmp_path / "run"

    def killed(self: Any, *given: Any, **more: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ConsistencyStudent, "fit", killed)
        with pytest.raises(Killed):
            runs.run(recipe, root, device="cpu")
    folder = RunFolder(root)
    assert not (folder.release / "student.safetensors").exists()
    said: list[str] = []
    outcome = runs.run(recipe, root, device="cpu", resume=True, progress=lambda what, done, total: said.append(what))
    # What it costs: the eight rounds and nothing else, before and after the kill.
    told = json.loads(folder.guarantee.read_text(encoding="utf-8"))
    assert [(event["kind"], event["count"]) for event in told["events"]] == [("Gaussian", 8)]
    assert [row["kind"] for row in book(root)].count("release") == 8
    assert verify(root).recomputed_epsilon <= 8.0 * 1.005
    # What it reaches: more than who taught it, and than the names it was told.
    assert isinstance(outcome.model, Inherited)
    scores = json.loads(folder.scores.read_text(encoding="utf-8"))
    assert scores["private student"] == outcome.scores["private student"] > 0.82
    assert scores["private student"] > scores[Score.LINEAR] + 0.04  # a linear model of six numbers: 0.78 beside 0.87
    assert 0.86 < scores["names that the heir was told"] < 0.95
    assert scores["control: the same heir, true labels of the pool"] > 0.95
    assert {*CORRECTED, *INHERITED} <= set(scores)
    assert said.count("training the student") > 2 < said.count("training the controls")  # each tells how far it is
    # What is published is what was scored; who taught it lies beside it.
    from tutelage.nets.model import Model

    _, _, test = runs.loaded(recipe, None)
    kept = Model.load(folder.release / "student.safetensors", device="cpu")
    assert np.mean(kept.predict(test.inputs) == test.targets) == scores["private student"]
    linear = LinearModel.load(folder.release / "linear.npz", device="cpu")
    assert np.mean(linear.predict(test.inputs) == test.targets) == scores[Score.LINEAR]
    assert np.array_equal(linear.weights, np.load(folder.release / "weights.npz")["weights"])
    page = report(folder).report.read_text(encoding="utf-8")
    assert Score.LINEAR in page
    assert "All teachers corrected a public guess 8 times" in page


def test_an_heir_costs_nothing(tmp_path: Path) -> None:
    heir = 'learner = "linear"\nheir = "supervised"\nkind = "neighbours"'
    for name, text in (("alone", ALONE), ("heir", ALONE.replace('learner = "linear"', heir))):
        runs.run(parse(text), tmp_path / name, device="cpu")
    alone, heir_too = (json.loads(RunFolder(tmp_path / n).guarantee.read_text(encoding="utf-8")) for n in ("alone", "heir"))
    told = ("ledger_head", "recipe_sha256", "run", "plan")  # rows name the recipe's hash, and the plan its student
    assert {key: value for key, value in alone.items() if key not in told} == {
        key: value for key, value in heir_too.items() if key not in told
    }
    charged = [[row["body"]["event"] for row in book(tmp_path / n) if row["kind"] == "charge"] for n in ("alone", "heir")]
    assert charged[0] == charged[1]
    assert (tmp_path / "heir" / "release" / "student.skops").exists()  # an estimator can be one too
    assert not (tmp_path / "alone" / "release" / "linear.npz").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('heir = "consistency"', 'heir = "consistent"', "`student.heir` must be 'supervised', 'spreading' or 'consistency'"),
        ('heir = "consistency"', 'heir = "linear"', "`student.heir` must be"),
        ('heir = "consistency"\n', "", "`student.consistency` must stay open for the learner 'linear'"),
        ('learner = "linear"', 'learner = "spreading"', "`student.heir` must come with the learner 'linear'"),
        ('kind = "convnet"', 'kind = "forest"', "`student.kind` must be one of 'convnet', 'residual'. Got 'forest'"),
        ("sure = 0.7", "sure = 0.0", r"`student.linear.sure` must be in \(0, 1\]. Got 0.0"),
        ("sure = 0.7", "sure = 1.5", r"`student.linear.sure` must be in \(0, 1\]. Got 1.5"),
    ],
)
def test_what_does_not_fit_together_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse(HEIR.replace(old, new))


def test_names_without_an_heir_and_heirs_of_others_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"`student.linear.sure` must come with a `student.heir`"):
        parse(ALONE + "sure = 0.8\n")
    other = ALONE[: ALONE.index("[student.linear]")].replace('"linear"', '"supervised"\nheir = "supervised"')
    with pytest.raises(RecipeError, match=r"`student.heir` must come with the learner 'linear', which names the pool for it"):
        parse(other.replace("records", "forest").replace('"mean"', '"gnmax"'))


def test_an_heir_doubts_what_it_is_told_unless_the_recipe_trusts_it() -> None:
    assert learners.settings(inherited(parse(HEIR))).doubt
    assert not learners.settings(inherited(parse(HEIR + "doubt = false\n"))).doubt
    plain = HEIR.split("[student.linear]")[0].replace('"linear"\nheir = ', "").replace("records", "forest")
    assert not learners.settings(inherited(parse(plain.replace('"mean"', '"gnmax"')))).doubt


def test_a_network_for_a_table_is_refused_before_it_is_looked_at(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").create()
    table = Public.of(np.zeros((30, 4)))
    with pytest.raises(RecipeError, match=r"`student.heir` must be one for tables"):
        corrected.learners(parse(HEIR), table, 10, folder, device="cpu", say=lambda what, done, total: None)
    assert not any(folder.release.iterdir())


def test_torch_and_settings_are_asked_for_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*given: Any) -> Any:
        pytest.fail("data was read")

    monkeypatch.setattr(runs, "gathered", read)
    with pytest.raises(RecipeError, match=r"`student.consistency.batch` must be a whole number ≥ 1"):
        runs.run(parse(HEIR.replace("batch = 40", "batch = 0")), tmp_path / "run", device="cpu")
    monkeypatch.setattr(learners, "has_torch", lambda: False)
    with pytest.raises(RecipeError, match="`recipe` must do without networks and filters where torch is not installed"):
        runs.run(parse(HEIR), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
