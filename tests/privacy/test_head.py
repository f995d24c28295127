"""A ledger that was lost, cut short or replaced by an older one is refused: the head file beside it, and the caller, know."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.privacy.test_ledger import BUDGET, EVENT

from tutelage.privacy import ledger
from tutelage.privacy.errors import LedgerError
from tutelage.privacy.head import HeadFile
from tutelage.privacy.ledger import Ledger

LOST = "lost or replaced"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "book.sqlite"


def spend(path: Path) -> tuple[int, str]:
    """Charge and release something; give the head."""
    with Ledger(path, BUDGET) as book:
        book.charge(EVENT, count=2)
        book.keep(["a", "b"], np.array([1, 2]))
        return book.length, book.head


def copies(source: Path, target: Path, *, without: tuple[str, ...] = ()) -> Path:
    """Copy all files of a ledger but some."""
    target.mkdir()
    for file in source.parent.glob(f"{source.name}*"):
        if not file.name.endswith(without):
            shutil.copy(file, target)
    return target / source.name


KILLED = """
import os, signal, sys
import numpy as np
from tutelage.privacy.events import NoisyMax
from tutelage.privacy.ledger import Budget, Ledger

ledger = Ledger(sys.argv[1], Budget(2.0, 1e-5))
ledger._checkpoint = lambda: None  # as if the process died before the log was copied
for index in range(5):
    ledger.charge(NoisyMax("gaussian", 40.0))
    ledger.keep([f"question {index}"], np.array([index]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(path: Path) -> Path:
    """A ledger of eleven rows whose process was killed: all but the first lie in the write-ahead log."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert path.with_name("book.sqlite-wal").stat().st_size > 20_000
    return path


# ── what the head file holds ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_head_is_on_disk_after_every_transaction(path: Path) -> None:
    with Ledger(path, BUDGET) as book:
        steps: list[Callable[[], object]] = [
            lambda: None,
            lambda: book.charge(EVENT),
            lambda: book.keep(["q"], np.array([1])),
            lambda: book.note(x=1),
            lambda: book.begin("run", plan="plan"),
        ]
        for step in steps:
            step()
            assert HeadFile(path).read()[-1] == (book.length, book.head)
        assert HeadFile(path).read() == [(row.seq, row.hash) for row in book.entries()]


def test_a_line_that_a_crash_cut_short_is_left_out(path: Path) -> None:
    length, head = spend(path)
    for torn in (b"\n3", b"\n4 ab", b"\n17 " + b"0" * 63, b"\0" * 70):
        with (path.parent / "book.sqlite.head").open("ab") as file:
            file.write(torn)
        with Ledger(path, BUDGET) as book:
            assert (book.length, book.head) == (length, head)
            book.note(x=1)
            length, head = book.length, book.head
    assert [length for length, _ in HeadFile(path).read()] == list(range(1, 8))


@pytest.mark.parametrize("content", [b"epsilon = 8\n" * 400, os.urandom(4096), b""])
def test_a_head_file_that_is_none_is_refused(path: Path, content: bytes) -> None:
    spend(path)
    path.with_name("book.sqlite.head").write_bytes(content)
    with pytest.raises(LedgerError, match=r"book\.sqlite\.head` must"):
        Ledger(path, BUDGET)


def test_a_linked_head_file_is_refused(path: Path) -> None:
    spend(path)
    head = path.with_name("book.sqlite.head")
    head.rename(path.with_name("elsewhere"))
    head.symlink_to(path.with_name("elsewhere"))
    with pytest.raises(LedgerError):
        Ledger(path, BUDGET)


# ── lost, older, shorter ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lost_ledger_is_not_begun_anew(path: Path) -> None:
    spend(path)
    path.unlink()
    for budget in (BUDGET, None):
        with pytest.raises(LedgerError, match=LOST):
            Ledger(path, budget)
    assert not path.exists()
    path.touch()  # an empty one is no better
    for budget in (BUDGET, None):
        with pytest.raises(LedgerError, match=LOST):
            Ledger(path, budget)
    assert path.read_bytes() == b""


def test_a_ledger_whose_files_are_all_gone_is_missed_by_a_caller_who_knows_a_head(path: Path) -> None:
    known = spend(path)
    for file in path.parent.iterdir():
        file.unlink()
    for budget in (BUDGET, None):
        with pytest.raises(LedgerError, match=LOST):
            Ledger(path, budget, heads=[known])
    assert list(path.parent.iterdir()) == []
    Ledger(path, BUDGET).close()  # the broken twin: without the head nothing is missed, and the whole budget is there again
    with pytest.raises(LedgerError, match=LOST):
        Ledger(path, BUDGET, heads=[known])


def test_an_older_ledger_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spend(path)
    backup = copies(path, tmp_path / "backup")
    with Ledger(path) as book:
        book.charge(EVENT, count=5)
        known = [(book.length - 1, book.entries()[-2].hash), (book.length, book.head)]
    for file in path.parent.iterdir():
        if not file.name.endswith(".head"):
            file.unlink()
    shutil.copy(backup, path)
    with pytest.raises(LedgerError, match=LOST):
        Ledger(path, BUDGET)
    shutil.copy(f"{backup}.head", f"{path}.head")  # with the older head beside it, only who knows the newer one can tell
    with pytest.raises(LedgerError, match=LOST):
        Ledger(path, BUDGET, heads=known)
    with Ledger(path, BUDGET, heads=known[:1]) as older:  # the broken twin's view: five charges are forgotten
        assert dict(older.totals()) == {EVENT: 2}


def test_two_futures_of_one_ledger_are_told_apart(path: Path, tmp_path: Path) -> None:
    spend(path)
    fork = copies(path, tmp_path / "fork")
    heads = []
    for place in (path, fork):
        with Ledger(place) as book:
            book.note(x=str(place))
            heads.append((book.length, book.head))
    Ledger(path, heads=heads[:1]).close()
    with pytest.raises(LedgerError, match=LOST):
        Ledger(path, heads=heads)


@pytest.mark.parametrize("head", [(0, "0" * 64), (-1, "x"), (4, "x"), (10**9, "x"), ("1", "x"), (None, None), (1.5, "x")])
def test_a_head_that_no_ledger_has_is_refused(path: Path, head: tuple[int, str]) -> None:
    spend(path)
    with pytest.raises(LedgerError):
        Ledger(path, heads=[head])


def accepted(place: Path) -> int | None:
    """Open a ledger; give how many charges it remembers, or None where it is refused."""
    try:
        with Ledger(place, BUDGET) as book:
            return sum(count for _, count in book.totals())
    except LedgerError:
        return None


def test_the_main_file_without_its_log_is_refused(killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert accepted(copies(killed, tmp_path / "bare", without=("-wal", "-shm", ".head"))) is None
    assert accepted(copies(killed, tmp_path / "headed", without=("-wal", "-shm"))) is None
    assert accepted(copies(killed, tmp_path / "whole", without=("-shm",))) == 5
    with monkeypatch.context() as patch:  # the broken twin: it opens as a whole ledger that has spent nothing
        patch.setattr(ledger, "check_heads", lambda entries, heads: None)
        assert accepted(copies(killed, tmp_path / "twin", without=("-wal", "-shm"))) == 0


def test_a_shorter_log_is_refused(killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = killed.with_name("book.sqlite-wal").stat().st_size
    found: dict[str, list[int | None]] = {"ours": [], "twin": []}
    for who in found:
        for cut, length in enumerate(range(0, whole, whole // 20)):
            shorter = copies(killed, tmp_path / f"{who}{cut}", without=("-shm",))
            os.truncate(f"{shorter}-wal", length)
            found[who].append(accepted(shorter))
        monkeypatch.setattr(ledger, "check_heads", lambda entries, heads: None)
    assert set(found["ours"]) == {None}
    assert None not in found["twin"]  # the old rule took every one of them,
    assert {0, 1, 2, 3, 4} <= set(found["twin"])  # and forgot up to five charges


def test_a_killed_ledger_goes_on_and_its_log_is_copied(killed: Path, tmp_path: Path) -> None:
    with Ledger(killed, BUDGET) as book:
        assert dict(book.totals()) == {EVENT: 5}
        assert accepted(copies(killed, tmp_path / "copy", without=("-wal", "-shm"))) == 5


def test_what_was_kept_lies_in_the_main_file(path: Path, tmp_path: Path) -> None:
    with Ledger(path, BUDGET) as book:
        book.charge(EVENT, count=3)
        book.keep(["a"], np.array([1]))
        assert accepted(copies(path, tmp_path / "copy", without=("-wal", "-shm"))) == 3


# ── crashes between the database and its head ─────────────────────────────────────────────────────────────────────────


def fail(self: HeadFile, length: int, head: str) -> None:
    raise OSError("no space left on device")


def test_a_crash_before_the_head_hands_nothing_over_and_the_next_process_makes_up_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(path, BUDGET) as book, Ledger(path) as other:
        with monkeypatch.context() as patch:
            patch.setattr(HeadFile, "append", fail)
            with pytest.raises(LedgerError, match=r"no space left.*nothing was released"):
                book.keep(["a"], np.array([1]))
            for process in (book, other):  # the row is there, and its answer is not handed over without the head
                with pytest.raises(LedgerError, match="no space left"):
                    process.recall(["a"])
        assert [length for length, _ in HeadFile(path).read()] == [1]
        assert int(other.recall(["a"])["a"]) == 1
        assert [length for length, _ in HeadFile(path).read()] == [1, 2]
        with monkeypatch.context() as patch:
            patch.setattr(HeadFile, "append", fail)
            with pytest.raises(LedgerError):
                book.note(x=1)
    Ledger(path).close()
    assert [length for length, _ in HeadFile(path).read()] == [1, 2, 3]


def test_a_crash_while_a_ledger_is_created_is_made_up_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(HeadFile, "append", fail)
        with pytest.raises(LedgerError):
            Ledger(path, BUDGET)
    assert path.exists()
    assert HeadFile(path).read() == []
    with Ledger(path, BUDGET) as book:  # it has spent nothing, and nobody could: it was not finished
        assert HeadFile(path).read() == [(1, book.head)]
        book.charge(EVENT)
    path.with_name("book.sqlite.head").unlink()
    with pytest.raises(LedgerError, match="must lie beside the book"):
        Ledger(path, BUDGET)
