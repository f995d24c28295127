"""One ledger is one file under one name, in its place: whoever is about to use another one is refused."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.privacy.test_ledger import BUDGET, EVENT, budget_for

from tutelage.privacy import ledger, place
from tutelage.privacy.errors import BudgetExceeded, LedgerError
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.sealed import Sealed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "book.sqlite"


# ── what happens to the files while they are in use ───────────────────────────────────────────────────────────────────


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for file in path.parent.glob("book*"):
        file.unlink()


def delete_the_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def move(path: Path) -> None:
    path.rename(path.with_name("moved"))


def move_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


def move_and_link_back(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


def replace_by_a_copy(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def replace_by_a_new_one(path: Path) -> None:
    Ledger(path.with_name("new"), BUDGET).close()
    path.with_name("new").replace(path)


def replace_by_an_empty_file(path: Path) -> None:
    path.unlink()
    path.touch()


def give_a_second_name(path: Path) -> None:
    os.link(path, path.with_name("second"))


def delete_the_log(path: Path) -> None:
    path.with_name("book.sqlite-wal").unlink()


def delete_the_index(path: Path) -> None:
    path.with_name("book.sqlite-shm").unlink()


def delete_the_head(path: Path) -> None:
    path.with_name("book.sqlite.head").unlink()


def replace_the_head(path: Path) -> None:
    shutil.copy(path.with_name("book.sqlite.head"), path.with_name("copy"))
    path.with_name("copy").replace(path.with_name("book.sqlite.head"))


WAYS = [
    delete, delete_all, delete_the_folder, move, move_the_folder, move_and_link_back, replace_by_a_copy, replace_by_a_new_one,
    replace_by_an_empty_file, give_a_second_name, delete_the_log, delete_the_index, delete_the_head, replace_the_head,
]  # fmt: skip
USES: dict[str, Callable[[Ledger], object]] = {
    "charge": lambda book: book.charge(EVENT),
    "keep": lambda book: book.keep(["q"], np.array([1])),
    "recall": lambda book: book.recall(["kept"]),
    "reveal": lambda book: book.reveal(Sealed([3]), reason="a look"),
    "note": lambda book: book.note(manifest="x"),
    "begin": lambda book: book.begin("run", plan="plan"),
    "spent": lambda book: book.spent(),
    "export": lambda book: book.export(book.path.parent.parent / "book.jsonl"),
    "publication": lambda book: book.check_place(),
}


@contextmanager
def in_use(path: Path) -> Iterator[Ledger]:
    """An open ledger that has charged and kept something."""
    with Ledger(path, BUDGET) as book:
        book.charge(EVENT)
        book.keep(["kept"], np.array([7]))
        yield book


@pytest.mark.parametrize("way", WAYS)
def test_what_happens_to_a_ledger_in_use_is_noticed_by_every_use(path: Path, way: Callable[[Path], None]) -> None:
    with in_use(path) as book:
        way(path)
        for name, use in USES.items():
            with pytest.raises(LedgerError, match=r"must stay where it is|must be a plain file with one name"):
                print(name, use(book))
    assert not (path.parent.parent / "book.jsonl").exists()


def test_without_the_comparison_it_goes_unnoticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: the old rule charged and released in all of these ways."""
    monkeypatch.setattr(place.Place, "check", lambda self: None)
    unnoticed = []
    for way in WAYS:
        folder = tmp_path / way.__name__ / "run"
        folder.mkdir(parents=True)
        with in_use(folder / "book.sqlite") as book, contextlib.suppress(LedgerError):
            way(folder / "book.sqlite")
            book.charge(EVENT)
            book.keep(["q"], np.array([1]))
            assert int(book.recall(["q"])["q"]) == 1
            unnoticed.append(way.__name__)
    assert unnoticed == [way.__name__ for way in WAYS]


def test_a_ledger_replaced_while_it_is_opened_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger(path, BUDGET).close()
    connect = sqlite3.connect

    def late(place: Path, **options: Any) -> sqlite3.Connection:
        opened = connect(place, **options)
        replace_by_a_copy(path)
        return opened

    with monkeypatch.context() as patch:
        patch.setattr(ledger.sqlite3, "connect", late)
        with pytest.raises(LedgerError, match="must stay where it is"):
            Ledger(path, BUDGET)
    Ledger(path, BUDGET).close()


def test_what_happens_between_the_check_and_the_commit_is_noticed_before_anything_is_handed_over(path: Path) -> None:
    with in_use(path) as book:
        append = book._append

        def late(kind: str, body: dict[str, Any]) -> int:
            move(path)
            return append(kind, body)

        book._append = late  # type: ignore[method-assign]
        with pytest.raises(LedgerError, match="must stay where it is"):
            book.charge(EVENT)


def test_a_ledger_overwritten_in_place_is_noticed_before_publication_or_by_the_next_run(path: Path) -> None:
    """Copying an older ledger over this one keeps device and inode: its rows tell."""
    with Ledger(path, BUDGET):
        pass
    older = path.read_bytes()
    with in_use(path) as book:
        with path.open("r+b") as file:
            file.write(older)
            file.truncate()
        with contextlib.suppress(LedgerError):
            book.charge(EVENT)
            book.check_place()
    with pytest.raises(LedgerError):
        Ledger(path, BUDGET)


def test_the_files_belong_to_their_owner_alone(path: Path) -> None:
    with in_use(path):
        modes = {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(["book.sqlite", "book.sqlite-wal", "book.sqlite-shm", "book.sqlite.head"], "0o600")


def test_a_ledger_in_its_place_may_be_published(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with in_use(Path("book.sqlite")) as book:
        monkeypatch.chdir("/")  # a relative path is looked up once
        book.check_place()
        book.charge(EVENT)
        book.check_place()


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [":memory:", "", "file::memory:", "file:book.sqlite?mode=memory"])
def test_a_ledger_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError, match="`path` must be a file's own path"):
        Ledger(name, BUDGET)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a\0b", "loop/book", "loop"])
def test_a_path_that_leads_nowhere_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(LedgerError, match="`book` must be") as caught:
        Ledger(f"{tmp_path}/{name}", BUDGET)
    assert "\n" not in str(caught.value)


def test_what_is_no_plain_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(LedgerError, match="`fifo` must be a plain file"):
        Ledger(tmp_path / "fifo", BUDGET)


def both_get_the_last_question(one: Path, two: Path) -> bool:
    """Open one ledger by two names, and let each charge what fits once."""
    granted = 0
    with contextlib.ExitStack() as stack:
        for name in (one, two):
            with contextlib.suppress(LedgerError, BudgetExceeded):
                stack.enter_context(Ledger(name)).charge(EVENT)
                granted += 1
    return granted == 2


@pytest.mark.parametrize("before", [True, False])
def test_two_hard_links_never_get_the_last_question_twice(tmp_path: Path, before: bool) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with Ledger(one, budget_for(EVENT, 1.5)) as book:
        os.link(one, two)
        with pytest.raises(LedgerError, match=r"with one name \(no hard link\)"):
            book.charge(EVENT)
        if before:
            two.unlink()
            book.charge(EVENT)
            os.link(one, two)
    for name in (one, two):
        with pytest.raises(LedgerError, match=r"with one name \(no hard link\)"):
            Ledger(name)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one", "one.head", "two"]  # nothing was begun beside it


LOOSE = """
import os, sys
from tutelage.privacy import place
from tutelage.privacy.events import NoisyMax
from tutelage.privacy.ledger import Ledger

place.Place._identity = lambda self, file: (os.stat(file).st_dev, os.stat(file).st_ino) if file.exists() else None
with Ledger(sys.argv[1]) as ledger:
    ledger.charge(NoisyMax("gaussian", 40.0))
    print("granted", flush=True)
    sys.stdin.read()  # go on holding it
"""


def test_the_old_rule_gave_it_twice(tmp_path: Path) -> None:
    """The broken twin: links are not counted; another process opens the second name, beside which lies a copy of the head."""
    one, two = tmp_path / "one", tmp_path / "two"
    Ledger(one, budget_for(EVENT, 1.5)).close()
    os.link(one, two)
    shutil.copy(f"{one}.head", f"{two}.head")
    first = subprocess.Popen([sys.executable, "-c", LOOSE, str(one)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "granted\n"
    second = subprocess.run([sys.executable, "-c", LOOSE, str(two)], input="", capture_output=True, text=True)
    assert first.communicate("")[0] == ""
    assert (first.returncode, second.stdout) == (0, "granted\n")


def test_a_symbolic_link_is_the_file_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    one, two = tmp_path / "far" / "one", tmp_path / "two"
    Ledger(one, budget_for(EVENT, 1.5)).close()
    two.symlink_to(one)
    assert not both_get_the_last_question(one, two)
    with Ledger(two) as book:
        assert book.path == two  # as it was given
        assert dict(book.totals()) == {EVENT: 1}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["far", "two"]


# ── interrupts ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def interrupt() -> Iterator[Callable[[float], None]]:
    """Raise KeyboardInterrupt after so many seconds, as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def is_free(path: Path) -> bool:
    """Tell whether another process could write now."""
    with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


def holding(path: Path, seconds: float) -> threading.Thread:
    """Hold the write lock in another thread for so long."""
    ready = threading.Event()

    def hold() -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            ready.set()
            time.sleep(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    return thread


@contextmanager
def begun_outside(self: Ledger, mode: str = "IMMEDIATE") -> Iterator[None]:
    """The broken twin: the old transaction."""
    self._db.execute("PRAGMA busy_timeout=60000")
    self._db.execute(f"BEGIN {mode}")
    try:
        yield
        self._db.execute("COMMIT")
    except BaseException:
        self._db.execute("ROLLBACK")
        raise


@pytest.mark.parametrize("twin", [False, True])
def test_an_interrupt_while_waiting_leaves_the_lock_free(
    path: Path, interrupt: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, twin: bool
) -> None:
    held = 0
    with Ledger(path, BUDGET) as book:
        if twin:
            monkeypatch.setattr(Ledger, "_transaction", begun_outside)
        for _ in range(4):
            thread, start = holding(path, 0.3), time.perf_counter()
            interrupt(0.1)
            with pytest.raises(KeyboardInterrupt):
                book.charge(EVENT)
            waited = time.perf_counter() - start
            thread.join()
            held += not is_free(path)
            if book._db.in_transaction:
                book._db.execute("ROLLBACK")
            assert twin or waited < 0.29  # Ctrl-C is not put off until the lock is free
        assert book.length == 1
    assert held == (4 if twin else 0)


INTERRUPTED = """
import random, signal, sys
from tests.privacy.test_place import BUDGET, EVENT, Ledger, Path, is_free

def stop(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, stop)
moments, charged, interrupted = random.Random(1), 0, 0
with Ledger(Path(sys.argv[1]), BUDGET) as book:
    for _ in range(150):
        try:
            signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.0001, 0.003))
            book.charge(EVENT)
            signal.setitimer(signal.ITIMER_REAL, 0)
            charged += 1
        except KeyboardInterrupt:
            interrupted += 1
        assert is_free(Path(sys.argv[1]))
    print(charged, interrupted, book.length - 1)
"""


def test_an_interrupt_at_any_moment_leaves_a_whole_ledger(path: Path) -> None:
    """In a process of its own: an interrupt may also hit whoever measures coverage here, who holds a lock of their own."""
    command = [sys.executable, "-c", INTERRUPTED, os.fspath(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    charged, interrupted, rows = map(int, done.stdout.split())
    assert interrupted > 10
    assert charged <= rows <= charged + interrupted
    with Ledger(path) as again:
        assert sum(count for _, count in again.totals()) == rows


def test_patience_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutelage.privacy.place._PATIENCE", 0.05)
    Ledger(path, BUDGET).close()
    with Ledger(path) as book:
        thread = holding(path, 0.5)
        with pytest.raises(LedgerError, match="database is locked"):
            book.charge(EVENT)
        thread.join()
        book.charge(EVENT)
