"""Computed questions are kept before they are asked: another machine would compute others, and pay for them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.walk.tiny import QUESTIONS, Killed, kill_after, tiny_run
from tests.walk.tiny_masks import mask_run

import tutelage as tt
from tutelage.runs import RunFolder


class Restless:
    """Chooses other records in every life, as clusters do that are computed with other rounding."""

    lives = 0

    def __call__(self, public: tt.Public, count: int) -> np.ndarray:
        Restless.lives += 1
        return np.random.default_rng(Restless.lives).permutation(len(public))[:count]


def killed(walk: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Die after three answers, and give the questions that were kept."""
    with monkeypatch.context() as patched:
        kill_after(patched, 3)
        with pytest.raises(Killed):
            walk(place, questions=Restless())
    return np.asarray(np.load(RunFolder(place).rounds / "1.npz")["chosen"])


def resumed(walk: Any, place: Path) -> np.ndarray:
    """Go on, and give the records that were answered."""
    answers = walk(place, questions=Restless(), resume=True).answers
    return answers.chosen if hasattr(answers, "chosen") else np.flatnonzero(answers.values >= 0)


def told(what: list[str]) -> Any:
    return lambda title, done, total: what.append(title)


@pytest.mark.parametrize("walk", [tiny_run, mask_run])
def test_a_resumed_run_asks_what_it_asked_before(walk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = killed(walk, tmp_path / "run", monkeypatch)
    heard = resumed(walk, tmp_path / "run")
    assert set(heard.tolist()) < set(kept.tolist())  # all but the block that was paid for and never heard
    assert len(heard) > 0.8 * len(kept)


@pytest.mark.parametrize("walk", [tiny_run, mask_run])
def test_without_the_file_other_questions_are_asked(walk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = killed(walk, tmp_path / "run", monkeypatch)
    (RunFolder(tmp_path / "run").rounds / "1.npz").unlink()  # the broken twin
    heard = resumed(walk, tmp_path / "run")
    assert not set(heard.tolist()) <= set(kept.tolist())


@pytest.mark.parametrize("walk", [tiny_run, mask_run])
def test_the_first_records_of_a_pool_need_no_file(walk: Any, tmp_path: Path) -> None:
    walk(tmp_path / "run", test=None)
    assert not (tmp_path / "run/release/rounds").exists()


@pytest.mark.parametrize("walk", [tiny_run, mask_run])
def test_choosing_is_told(walk: Any, tmp_path: Path) -> None:
    said: list[str] = []
    walk(tmp_path / "run", questions=Restless(), progress=told(said), test=None)
    assert "choosing questions" in said
    assert said.index("choosing questions") < said.index("asking the teachers")


def test_kept_questions_of_another_plan_are_refused(tmp_path: Path) -> None:
    tiny_run(tmp_path / "run", questions=Restless())
    with pytest.raises(tt.Error, match="must be those of this plan"):
        tiny_run(tmp_path / "run", questions=Restless(), queries=QUESTIONS - 1, resume=True)
