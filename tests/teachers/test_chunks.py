"""Finished teachers on disk: chunks while a fit lasts, one file at its end, and never the wrong ones."""

import contextlib
import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tutelage.teachers.chunks as chunks_module
import tutelage.teachers.ensemble as ensemble_module
from tutelage.privacy.errors import RecipeError, Unsealed
from tutelage.teachers.chunks import Chunks
from tutelage.teachers.engines import Plan
from tutelage.teachers.ensemble import Ensemble
from tutelage.teachers.fits import Fit

MINE = Fit("settings", "mine", ())


def fit(task, **changed) -> Ensemble:
    settings = {"training": task.training, "engine": "sequential", "device": "cpu", "seed": 1, "chunk": 2} | changed
    return Ensemble.fit(task.network, task.inputs, task.targets, task.shards, **settings)


def same(one: Ensemble, two: Ensemble) -> bool:
    return all(torch.equal(one.state[name], two.state[name]) for name in one.state)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Interrupted(Exception):
    """Stands for a power cut."""


def test_a_finished_fit_leaves_one_file_that_is_its_owner_s(task, tmp_path) -> None:
    folder = tmp_path / "private" / "teachers"
    trained = fit(task, checkpoint=folder)
    assert names(folder) == ["teachers.safetensors"]
    assert stat.S_IMODE((folder / "teachers.safetensors").stat().st_mode) == 0o600
    assert same(Ensemble.load(folder / "teachers.safetensors", device="cpu"), trained)
    again = fit(task, checkpoint=folder)
    assert again.plan is None  # nothing was left to do
    assert same(again, trained)
    with pytest.raises(RecipeError, match="of these same settings"):
        fit(task, checkpoint=folder, seed=2)
    assert names(folder) == ["teachers.safetensors"]


@pytest.mark.parametrize("killed", ["before the file", "between file and chunks"])
def test_a_kill_at_the_end_is_harmless(task, tmp_path, monkeypatch, killed: str) -> None:
    folder = tmp_path / "private"

    def cut(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(Chunks, "finish" if killed == "before the file" else "_clear", cut)
        with pytest.raises(Interrupted):
            fit(task, checkpoint=folder)
    left = [f"chunk-{k:06d}-{min(k + 1, 4):06d}.safetensors" for k in (0, 2, 4)]
    assert names(folder) == (left if killed == "before the file" else [*left, "teachers.safetensors"])
    (folder / ".teachers.safetensors.99999").write_bytes(b"half a file")
    again = fit(task, checkpoint=folder)
    assert again.plan is None
    assert names(folder) == ["teachers.safetensors"]
    assert same(again, fit(task))


def test_a_checkpoint_outside_private_is_refused_before_training(task, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ensemble_module, "run", lambda *_, **__: pytest.fail("it was trained"))
    with pytest.raises(Unsealed, match="`checkpoint` must lie in a folder named 'private'"):
        fit(task, checkpoint=tmp_path / "teachers")


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_stack_goes_on_in_its_middle(task, tmp_path, monkeypatch, optimizer: str) -> None:
    """A GPU trains all teachers in one chunk: what is kept while it lasts is all that a kill leaves."""
    folder, training = tmp_path / "private", replace(task.training, steps=70, optimizer=optimizer)
    monkeypatch.setattr(chunks_module, "EVERY", 0.0)
    monkeypatch.setattr(chunks_module, "SHARE", 0.0)
    settings = {"engine": "stacked", "chunk": 5, "training": training}

    def cut(done: int, total: int) -> None:
        if done > 0.6 * total:
            raise Interrupted

    with pytest.raises(Interrupted):
        fit(task, checkpoint=folder, progress=cut, **settings)
    assert names(folder) == ["unfinished.safetensors"]
    assert stat.S_IMODE((folder / "unfinished.safetensors").stat().st_mode) == 0o600
    seen: list[int] = []
    resumed = fit(task, checkpoint=folder, progress=lambda done, total: seen.append(done), **settings)
    assert seen[:3] == [0, 5 * 32, 5 * 48]  # it was saved at the beginning of the third block
    assert seen[-1] == 5 * 70
    assert same(resumed, fit(task, **settings))
    assert names(folder) == ["teachers.safetensors"]


def test_only_the_same_stack_goes_on(task, tmp_path) -> None:
    mine, other = Chunks(tmp_path / "private", MINE), Chunks(tmp_path / "private", Fit("settings", "other", ()))
    mine.keep([0, 1], torch.device("cpu"), {"step": torch.tensor(16)})
    assert mine.kept([0, 1], torch.device("cpu")) == {"step": torch.tensor(16)}
    assert mine.kept([1, 2], torch.device("cpu")) is None
    assert mine.kept([0, 1], torch.device("cuda")) is None
    assert other.kept([0, 1], torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("killed", "changed"),
    [(None, "record"), (None, "label"), (None, "shards"), ("between chunks", "record"), ("in a stack", "record")],
)
def test_other_records_train_again_without_a_word(task, tmp_path, monkeypatch, killed: str | None, changed: str) -> None:
    """Before, a resumed run was refused if one unit's record had changed: its exit code was an answer."""
    monkeypatch.setattr(chunks_module, "EVERY", 0.0)
    monkeypatch.setattr(chunks_module, "SHARE", 0.0)
    folder, given = tmp_path / "private", {"engine": "stacked", "training": replace(task.training, steps=70)}
    share = {None: 2.0, "between chunks": 0.6, "in a stack": 0.3}[killed]

    def cut(done: int, total: int) -> None:
        if done > share * total:
            raise Interrupted

    with contextlib.suppress(Interrupted):
        fit(task, checkpoint=folder, progress=cut, **given)
    found = {None: "teachers", "between chunks": "chunk-000000-000001", "in a stack": "unfinished"}[killed]
    assert f"{found}.safetensors" in names(folder)
    inputs, targets, shards = task.inputs.copy(), task.targets.copy(), list(task.shards)
    if changed == "record":
        inputs[0] += 0.01
    elif changed == "label":
        targets[0] = (targets[0] + 1) % 2
    else:
        shards[0] = shards[0][:-1]
    other = task._replace(inputs=inputs, targets=targets, shards=shards)
    seen: list[int] = []
    resumed = fit(other, checkpoint=folder, progress=lambda done, total: seen.append(done), **given)
    assert seen[0] == 0
    assert same(resumed, fit(other, **given))
    assert names(folder) == ["restarted.json", "teachers.safetensors"]
    assert json.loads((folder / "restarted.json").read_text()) == {"restarts": 1}
    assert stat.S_IMODE((folder / "restarted.json").stat().st_mode) == 0o600
    fit(task, checkpoint=folder, **given)
    assert json.loads((folder / "restarted.json").read_text()) == {"restarts": 2}


def test_a_discarded_checkpoint_s_plan_is_kept(tmp_path) -> None:
    """It is public. Another one would round the sums of all teachers in another way."""
    first, plan = Chunks(tmp_path / "private", MINE), Plan(engine="stacked", chunk=7, stacked=True)
    first.note("auto/None/cpu", plan)
    first.write([0, 1], {"weight": torch.zeros(2, 1)})
    again = Chunks(tmp_path / "private", Fit("settings", "other", ()))
    assert again.resume({"weight": torch.zeros(3, 1)}) == [0, 1, 2]
    assert again.planned("auto/None/cpu") == plan


def test_saves_are_rare(tmp_path, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(chunks_module.time, "monotonic", lambda: now[0])
    folder = Chunks(tmp_path / "private", MINE)
    assert not folder.due()
    now[0] = chunks_module.EVERY
    assert folder.due()
    folder.keep([0], torch.device("cpu"), {"step": torch.tensor(16)})
    assert not folder.due()


def test_a_resumed_fit_keeps_the_plan_of_its_first_start(task, tmp_path, monkeypatch) -> None:
    """Which teachers a kill leaves to be trained is a matter of time: it must not decide who is stacked with whom."""
    whole = fit(task, engine="stacked", chunk=2)
    first, second = Plan(engine="stacked", chunk=2, stacked=True), Plan(engine="sequential", chunk=1, stacked=False)
    plans = iter([first, second, first, second])
    monkeypatch.setattr(ensemble_module, "choose", lambda *_, **__: next(plans))

    def cut(done: int, total: int) -> None:
        if done > 2.5 * task.training.steps:
            raise Interrupted

    folder, given = tmp_path / "private", {"engine": "auto", "chunk": None}
    with pytest.raises(Interrupted):
        fit(task, checkpoint=folder, progress=cut, **given)
    resumed = fit(task, checkpoint=folder, **given)
    assert resumed.plan == first
    assert same(resumed, whole)
    other = tmp_path / "other" / "private"
    next(plans)
    with pytest.raises(Interrupted):
        fit(task, checkpoint=other, progress=cut, **given)
    assert fit(task, checkpoint=other, engine="sequential").plan == second  # another engine was asked for by name


def test_the_middle_of_a_stack_knows_its_plan_too(tmp_path) -> None:
    mine, plan = Chunks(tmp_path / "private", MINE), Plan(engine="stacked", chunk=7, stacked=True)
    mine.note("auto/None/cpu", plan)
    mine.keep([0, 1], torch.device("cpu"), {"step": torch.tensor(16)})
    again = Chunks(tmp_path / "private", MINE)
    assert again.planned("auto/None/cpu") is None
    assert again.resume({"weight": torch.zeros(3, 1)}) == [0, 1, 2]
    assert again.planned("auto/None/cpu") == plan
    assert again.planned("auto/None/cuda") is None
