"""What a start learned of a public pool and never asked about is gone when another begins."""

from __future__ import annotations

from pathlib import Path

from tests.walk.tiny import tiny_run

from tutelage.recipes.learned import begin_anew
from tutelage.runs import RunFolder


def strew(folder: RunFolder) -> list[str]:
    (folder.draft / "rounds").mkdir(exist_ok=True)
    for name in ("features-7c4345c31ab2.safetensors", "codec.safetensors", "rounds/1.npz"):
        (folder.draft / name).write_text("of a pool that held a private record by mistake")
    return sorted(path.name for path in folder.draft.iterdir())


def test_a_start_that_never_asked_leaves_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").create()
    strew(folder)
    begin_anew(folder)
    assert not list(folder.draft.iterdir())


def test_what_answers_are_about_stays(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run").folder
    folder.reopen()
    there = strew(folder)
    begin_anew(folder)
    assert sorted(path.name for path in folder.draft.iterdir()) == there


def test_a_lost_ledger_loses_nothing_else(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run").folder
    folder.reopen()
    there = strew(folder)
    for file in folder.private.glob("book.sqlite*"):
        file.unlink()
    begin_anew(folder)
    assert sorted(path.name for path in folder.draft.iterdir()) == there
