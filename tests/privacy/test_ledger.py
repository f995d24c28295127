"""The book: written before anything is read, shared by processes, and refused as soon as a byte of it is not its own."""

import contextlib
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.privacy import accounting, ledger
from tutelage.privacy.entries import canonical, digest
from tutelage.privacy.errors import BudgetExceeded, LedgerError, RecipeError
from tutelage.privacy.events import Gaussian, Laplace, NoisyMax, NonPrivate, Sampled, SmoothRelease, SparseVector, Threshold
from tutelage.privacy.ledger import Budget, Entry, Ledger, charges, check_chain, read_lines
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Adjacency, Unit

BUDGET = Budget(2.0, 1e-5)
EVENT = NoisyMax("gaussian", 40.0)
CRASHES = Path(__file__).with_name("crashes.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "book.sqlite"


@pytest.fixture
def book(path: Path) -> Iterator[Ledger]:
    with Ledger(path, BUDGET) as opened:
        yield opened


@pytest.fixture
def filled(path: Path) -> Path:
    """A closed book of six rows: open, charge, release, charge, release, note."""
    with Ledger(path, BUDGET) as opened:
        opened.charge(EVENT, count=3)
        opened.keep(["a", "b", "c"], np.array([1, 2, 3]))
        opened.charge(Threshold(40.0), count=2)
        opened.keep(["d", "e"], np.array([[0.5, 1.0], [2.0, 4.0]]))
        opened.note(tuned_on="public")
    return path


def budget_for(event: Any, count: float) -> Budget:
    """A budget that holds `count` times this Gaussian event, and not more."""
    return Budget(float(accounting.mu_epsilon(accounting.event_mu(event) * math.sqrt(count), 1e-5)), 1e-5)


# ── charging ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_book_holds_its_budget_and_nothing_else(book: Ledger) -> None:
    assert (book.budget, book.run, book.length, book.totals()) == (BUDGET, "", 1, [])
    assert book.spent().epsilon == 0.0
    assert len(book.entries()[0].body["ledger"]) == 32
    assert book.entries()[0].body == {**OPENING, "ledger": book.entries()[0].body["ledger"]}


def test_a_charge_is_on_disk_when_it_returns(book: Ledger, path: Path) -> None:
    book.charge(EVENT, count=7)
    with contextlib.closing(sqlite3.connect(path)) as other:  # another process would see the same
        assert other.execute("SELECT kind FROM entries WHERE seq = 2").fetchone() == ("charge",)
        assert other.execute("SELECT count FROM totals").fetchone() == (7,)


def test_every_write_is_synced(book: Ledger) -> None:
    assert book._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert book._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_charges_add_up_to_the_accountants_price(book: Ledger) -> None:
    book.charge(EVENT, count=7)
    book.charge(Threshold(30.0), count=4)
    book.charge(EVENT, count=np.int64(3))
    assert dict(book.totals()) == {EVENT: 10, Threshold(30.0): 4}
    assert book.spent() == accounting.cost([(EVENT, 10), (Threshold(30.0), 4)], 1e-5)
    assert charges(book.entries()) == [(EVENT, 7), (Threshold(30.0), 4), (EVENT, 3)]


def test_what_does_not_fit_leaves_no_row(book: Ledger, path: Path) -> None:
    room = book.affordable(EVENT)
    book.charge(EVENT, count=room - 1)
    before, head = book.entries(), book.head
    with pytest.raises(BudgetExceeded, match=r"ε = 2 at δ = 1e-05\. Got 2 more where 1 fit; nothing was read"):
        book.charge(EVENT, count=2)
    assert (book.entries(), book.head) == (before, head)
    book.charge(EVENT)
    with pytest.raises(BudgetExceeded, match="where 0 fit"):
        book.charge(EVENT)
    assert dict(book.totals())[EVENT] == room
    with Ledger(path) as again:
        assert dict(again.totals())[EVENT] == room


@pytest.mark.parametrize("count", [-1, 1.0, "3", None, True, float("nan"), 2**53 + 1, 10**400])
def test_a_count_is_a_whole_number(book: Ledger, count: Any) -> None:
    with pytest.raises(RecipeError, match=r"`count` must be a whole number ≥ 0, at most 2\^53\. Got"):
        book.charge(EVENT, count=count)
    assert book.length == 1


def test_charging_nothing_writes_nothing(book: Ledger) -> None:
    book.charge(EVENT, count=0)
    assert book.length == 1


@pytest.mark.parametrize(
    "events",
    [
        (EVENT,),
        (Threshold(40.0), EVENT),
        (Laplace(1.0, 20.0),),
        (NoisyMax("laplace", 20.0), Threshold(20.0)),
        (Gaussian(1.0, 5.0), SmoothRelease(0.001, 8.0)),
        (SparseVector(0.05, 0.1, 3),),
        (Gaussian(1.0, 0.01),),
    ],
)
def test_affordable_is_what_counting_up_gives(book: Ledger, events: tuple[Any, ...]) -> None:
    book.charge(Gaussian(1.0, 10.0), count=5)
    start = [(Gaussian(1.0, 10.0), 5)]
    count = 0
    while accounting.admits([*start, *((event, count + 1) for event in events)], BUDGET.epsilon, BUDGET.delta):
        count += 1
    assert book.affordable(*events) == count
    for event in events:
        book.charge(event, count=count)
    assert book.affordable(*events) == 0


def test_affordable_ends_where_noise_makes_a_question_nearly_free(book: Ledger) -> None:
    assert 1 << 40 <= book.affordable(Gaussian(1e-9, 1e9)) < 1 << 42


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_looking_costs_infinity_and_ends_the_book(book: Ledger, path: Path) -> None:
    book.charge(EVENT)
    assert book.reveal(Sealed([3, 1]), reason="a bug hunt").tolist() == [3, 1]
    assert book.spent().epsilon == math.inf
    assert "no guarantee" in book.spent().method
    assert book.affordable(EVENT) == 0
    with pytest.raises(BudgetExceeded):
        book.charge(EVENT)
    with Ledger(path) as again:
        assert again.spent().epsilon == math.inf
        assert NonPrivate("a bug hunt") in dict(again.totals())


def test_looking_is_written_down_before_it_happens(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(Sealed, "_open", lambda self, key: seen.append(book.length))
    book.reveal(Sealed([3]), reason="order")
    assert seen == [2]


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_looking_needs_a_reason(book: Ledger, reason: str) -> None:
    with pytest.raises(RecipeError, match="`reason` must say why"):
        book.reveal(Sealed([3]), reason=reason)
    assert book.spent().epsilon == 0.0


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "answers",
    [
        np.array([4, -1, 2]),
        np.array([[0.25, np.nan], [np.inf, -0.0], [1e300, 5e-324]]),
        np.array([True, False, True]),
        np.arange(24, dtype=np.float32).reshape(3, 2, 4),
        np.arange(12, dtype=np.int64).reshape(3, 4)[:, ::2],
        [7, 8, 9],
        np.array([4, -1, 2], dtype=">i8"),
        np.array([0.25, np.nan, 1e300], dtype=">f8"),
        np.array([[1, 2], [3, 4], [5, 600]], dtype=">u4"),
    ],
)
def test_answers_come_back_as_they_were(book: Ledger, path: Path, answers: Any) -> None:
    book.keep(["x", "y", "z"], answers)
    for where in (book, Ledger(path)):
        known = where.recall(["z", "y", "nobody asked", "x"])
        assert set(known) == {"x", "y", "z"}
        for question, answer in zip("xyz", np.asarray(answers), strict=True):
            assert known[question].dtype == np.asarray(answers).dtype.newbyteorder("<")
            assert np.array_equal(known[question], answer, equal_nan=np.asarray(answers).dtype.kind == "f")
    where.close()


def test_the_first_answer_stays(book: Ledger, path: Path) -> None:
    with Ledger(path) as other:  # another process answers in between
        assert book.recall(["q"]) == {}
        other.keep(["q"], np.array([1]))
        book.keep(["q", "r"], np.array([2, 3]))
        assert {name: int(answer) for name, answer in book.recall(["q", "r"]).items()} == {"q": 1, "r": 3}
        assert book.entries()[-1].body["count"] == 1
    with Ledger(path) as again:
        assert int(again.recall(["q"])["q"]) == 1


def test_answers_are_one_per_question(book: Ledger) -> None:
    with pytest.raises(RecipeError, match="Got 2 for 3 instead"):
        book.keep(["a", "b", "c"], np.array([1, 2]))
    book.keep([], np.array([]))
    assert book.length == 1


@pytest.mark.parametrize("answers", [np.array(["a"]), np.array([{}]), np.array([1j])])
def test_answers_are_numbers(book: Ledger, answers: np.ndarray) -> None:
    with pytest.raises(RecipeError, match="`answers` must be numbers"):
        book.keep(["q"], answers)
    assert book.length == 1


def test_notes_are_free_and_chained(book: Ledger, path: Path) -> None:
    book.note(tuned_on="public", epochs=40, rate=0.5, missing=None)
    assert book.spent().epsilon == 0.0
    with Ledger(path) as again:
        assert again.entries()[1].body == {"tuned_on": "public", "epochs": 40, "rate": 0.5, "missing": None, "run": ""}


@pytest.mark.parametrize("facts", [{"x": 2**63}, {"x": -(2**63) - 1}, {"x": 10**400}, {"x": "\ud800"}, {"\udfff": 1}])
def test_what_could_not_be_read_again_is_not_written(book: Ledger, tmp_path: Path, facts: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="must be given text and finite numbers of 64 bits"):
        book.note(**facts)
    with pytest.raises(RecipeError, match="`run` must not be a note's"):
        book.note(run="x")
    book.note(x=-(2**63))
    book.export(tmp_path / "book.jsonl")
    assert read_lines(tmp_path / "book.jsonl") == book.entries()


@pytest.mark.parametrize("fact", [math.nan, math.inf, [1], np.array([1]), b"x"])
def test_a_note_holds_plain_facts(book: Ledger, fact: Any) -> None:
    with pytest.raises(RecipeError, match="`fact` of a note must be"):
        book.note(fact=fact)
    assert book.length == 1


# ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_opening_again_changes_nothing(filled: Path) -> None:
    with Ledger(filled) as opened:
        head, rows = opened.head, opened.entries()
    for _ in range(3):
        with Ledger(filled, BUDGET) as again:
            assert (again.head, again.entries(), again.length) == (head, rows, 6)


@pytest.mark.parametrize(
    "budget",
    [
        Budget(2.5, 1e-5),
        Budget(2.0, 1e-6),
        Budget(2.0, 1e-5, Unit("patient")),
        Budget(2.0, 1e-5, Unit("record", 2)),
        Budget(2.0, 1e-5, adjacency=Adjacency.ADD_REMOVE),
    ],
)
def test_another_budget_is_refused(filled: Path, budget: Budget) -> None:
    with pytest.raises(LedgerError, match="`budget` must be the one the book was opened with"):
        Ledger(filled, budget)
    Ledger(filled, BUDGET).close()


def test_the_unit_comes_back(path: Path) -> None:
    budget = Budget(1.0, 1e-6, Unit("institution", 3), Adjacency.ADD_REMOVE)
    Ledger(path, budget).close()
    with Ledger(path) as again:
        assert again.budget == budget


def test_a_budget_takes_words() -> None:
    words: Any = ("patient", "add-remove")
    assert Budget(1.0, 1e-6, *words) == Budget(1.0, 1e-6, Unit("patient"), Adjacency.ADD_REMOVE)
    with pytest.raises(RecipeError, match="`adjacency` must be 'replace-one' or 'add-remove'"):
        Budget(1.0, 1e-6, adjacency="nearby")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (math.inf, 1e-5), (math.nan, 1e-5), (1, 0), (1, 1), (1, -0.1)]
)
def test_a_budget_is_a_budget(epsilon: float, delta: float) -> None:
    with pytest.raises(RecipeError, match=r"`epsilon`|`delta`"):
        Budget(epsilon, delta)


def test_a_missing_book_needs_a_budget(path: Path) -> None:
    with pytest.raises(LedgerError, match="`path` must be an existing ledger where no budget is given"):
        Ledger(path)
    assert not path.exists()


def test_an_empty_file_is_a_book_not_yet_begun(path: Path) -> None:
    path.touch()  # what a kill leaves behind between creating the file and its first page
    with pytest.raises(LedgerError, match="`book` must be a Tutelage ledger"):
        Ledger(path)
    assert path.read_bytes() == b""
    with Ledger(path, BUDGET) as opened:
        opened.charge(EVENT)


FOREIGN: dict[str, Callable[[Path], None]] = {}


def foreign(make: Callable[[Path], None]) -> Callable[[Path], None]:
    FOREIGN[make.__name__] = make
    return make


@foreign
def another_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE patients (name TEXT)")
        db.execute("INSERT INTO patients VALUES ('Ada')")
        db.commit()


@foreign
def another_database_in_wal_mode(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE entries (seq INTEGER)")
        db.commit()


@foreign
def a_database_of_the_same_tables(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(ledger._TABLES)


@foreign
def a_text_file(path: Path) -> None:
    path.write_text("epsilon = 8\n" * 400)


@foreign
def noise(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


@foreign
def two_bytes(path: Path) -> None:
    path.write_bytes(b"SQ")


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("budget", [BUDGET, None])
def test_a_foreign_file_is_refused_and_stays_as_it_is(path: Path, make: Callable[[Path], None], budget: Budget | None) -> None:
    make(path)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="`book` must be"):
        Ledger(path, budget)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("version", "reason"), [(3, r"\."), (1, ": its releases' guarantee did not hold, because one unit could move many teachers")]
)
def test_another_version_is_refused_and_stays_as_it_is(filled: Path, version: int, reason: str) -> None:
    with contextlib.closing(sqlite3.connect(filled)) as db:
        db.execute(f"PRAGMA user_version={version}")
    before = filled.read_bytes()
    with pytest.raises(LedgerError, match=rf"`book` must have schema 2\. Got schema {version} instead{reason}"):
        Ledger(filled, BUDGET)
    assert filled.read_bytes() == before


# ── damage and tampering ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_page_is_refused(path: Path) -> None:
    with Ledger(path, BUDGET) as opened:
        for index in range(60):
            opened.keep([f"question {index}"], np.arange(40.0)[None])
    healthy, refused = bytearray(path.read_bytes()), 0
    pages = range(0, len(healthy), 4096)
    for page in pages:
        damaged = bytearray(healthy)
        damaged[page : page + 4096] = b"\x5a" * 4096
        path.write_bytes(damaged)
        with pytest.raises(LedgerError):
            Ledger(path)
        refused += 1
    assert refused == len(pages) > 5


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.9])
def test_a_truncated_file_is_refused(filled: Path, keep: float) -> None:
    whole = filled.read_bytes()
    filled.write_bytes(whole[: max(100, int(len(whole) * keep))])
    with pytest.raises(LedgerError):
        Ledger(filled)


def forged_body(**changes: Any) -> str:
    event = {"kind": "NoisyMax", "noise": "gaussian", "scale": 40.0, "votes": 1}
    return json.dumps({"event": event, "count": 3, "run": "", **changes})


TAMPERINGS = {
    "a cheaper charge": f"UPDATE entries SET body = '{forged_body(count=1)}' WHERE seq = 2",
    "another run": f"UPDATE entries SET body = '{forged_body(run='b')}' WHERE seq = 2",
    "another kind": "UPDATE entries SET kind = 'note' WHERE seq = 2",
    "another hash": "UPDATE entries SET hash = 'x' WHERE seq = 3",
    "another predecessor": "UPDATE entries SET previous = 'x' WHERE seq = 3",
    "a larger budget": "UPDATE entries SET body = replace(body, '2.0', '9.0') WHERE seq = 1",
    "no JSON": "UPDATE entries SET body = '{' WHERE seq = 2",
    "no object": "UPDATE entries SET body = '[]' WHERE seq = 2",
    "not a number": "UPDATE entries SET body = '{\"count\":NaN}' WHERE seq = 2",
    "no text": "UPDATE entries SET body = CAST(x'ff' AS TEXT) WHERE seq = 2",
    "two rows swapped": "UPDATE entries SET seq = CASE seq WHEN 2 THEN -4 WHEN 4 THEN -2 END WHERE seq IN (2, 4);"
    "UPDATE entries SET seq = -seq WHERE seq < 0",
    "the tail cut": "DELETE FROM entries WHERE seq = 6",
    "the tail cut with its charge": "DELETE FROM entries WHERE seq >= 4; DELETE FROM answers WHERE seq >= 4;"
    "DELETE FROM totals WHERE event LIKE '%Threshold%'",
    "the middle cut": "DELETE FROM entries WHERE seq = 3",
    "the head cut": "DELETE FROM entries WHERE seq = 1",
    "everything cut": "DELETE FROM entries; DELETE FROM answers; DELETE FROM totals",
    "a row invented": "INSERT INTO entries SELECT 7, at, kind, body, hash, 'y' FROM entries WHERE seq = 6",
    "totals lowered": "UPDATE totals SET count = 1 WHERE event LIKE '%NoisyMax%'",
    "totals raised": "UPDATE totals SET count = 9 WHERE event LIKE '%NoisyMax%'",
    "totals emptied": "DELETE FROM totals",
    "totals invented": "INSERT INTO totals VALUES ('', '{}', 1)",
    "totals of another run": "UPDATE totals SET run = 'b'",
    "an answer changed": "UPDATE answers SET payload = x'0900000000000000' WHERE question = 'a'",
    "an answer removed": "DELETE FROM answers WHERE question = 'a'",
    "all answers removed": "DELETE FROM answers",
    "an answer renamed": "UPDATE answers SET question = 'z' WHERE question = 'a'",
    "two answers swapped": "UPDATE answers SET question = CASE question WHEN 'a' THEN '_b' ELSE '_a' END"
    " WHERE question IN ('a', 'b');"
    "UPDATE answers SET question = substr(question, 2) WHERE question LIKE '\\__' ESCAPE '\\'",
    "an answer invented": "INSERT INTO answers VALUES ('z', 3, x'00')",
    "an answer without a row": "INSERT INTO answers VALUES ('z', 99, x'00')",
    "a table dropped": "DROP TABLE answers",
    "the sequence forgotten": "DELETE FROM sqlite_sequence",
}


@pytest.mark.parametrize("statements", TAMPERINGS.values(), ids=TAMPERINGS)
def test_a_book_that_was_tampered_with_is_refused(filled: Path, statements: str) -> None:
    with contextlib.closing(sqlite3.connect(filled)) as db:
        for trigger in ("entries_stay", "entries_remain", "answers_stay", "answers_remain"):
            db.execute(f"DROP TRIGGER {trigger}")
        db.commit()
    Ledger(filled).close()  # without its triggers it is still whole
    before = filled.read_bytes()
    with contextlib.closing(sqlite3.connect(filled)) as db:
        db.executescript(statements)
        db.commit()
    assert filled.read_bytes() != before
    with pytest.raises(LedgerError):
        Ledger(filled)


OPENING = {
    "schema": 2,
    "ledger": "0" * 32,
    "epsilon": 2.0,
    "delta": 1e-5,
    "unit": "record",
    "unit_teachers": 1,
    "adjacency": "replace-one",
}


def rechained(rows: list[Entry]) -> list[Entry]:
    """What somebody does who knows the code: compute every hash again."""
    previous, result = "0" * 64, []
    for position, row in enumerate(rows, start=1):
        body = row.body
        head = digest(position, row.kind, canonical(body), previous)
        result.append(Entry(position, row.kind, body, previous, head))
        previous = head
    return result


@pytest.mark.parametrize(
    ("seq", "body"),
    [
        (1, {}),
        (1, {**OPENING, "epsilon": "much"}),
        (1, {**OPENING, "unit": "cat"}),
        (1, {name: value for name, value in OPENING.items() if name != "ledger"}),
        (1, {**OPENING, "adjacency": "nearby"}),
        (1, {name: value for name, value in OPENING.items() if name != "delta"}),
        (2, {"event": {"kind": "Free"}, "count": 3}),
        (2, {"event": "free", "count": 3}),
        (2, {"event": {"kind": "Threshold", "sigma": -1.0, "votes": 1}, "count": 3}),
        (2, {**json.loads(forged_body()), "count": -3}),
        (2, {**json.loads(forged_body()), "count": 2.5}),
        (2, {}),
        (2, {name: value for name, value in json.loads(forged_body()).items() if name != "run"}),
        (2, {**json.loads(forged_body()), "run": "never started"}),
        (3, {}),
    ],
)
def test_rows_that_no_version_writes_are_refused_even_with_their_hashes(filled: Path, seq: int, body: dict[str, Any]) -> None:
    with Ledger(filled) as opened:
        rows = opened.entries()
    rows[seq - 1] = Entry(seq, rows[seq - 1].kind, body, "", "")
    with contextlib.closing(sqlite3.connect(filled)) as db:
        db.execute("DROP TRIGGER entries_stay")
        for row in rechained(rows):
            change = (json.dumps(row.body), row.previous, row.hash, row.seq)
            db.execute("UPDATE entries SET body = ?, previous = ?, hash = ? WHERE seq = ?", change)
        db.commit()
    with pytest.raises(LedgerError):
        Ledger(filled)


@pytest.mark.parametrize(
    "statement", ["UPDATE entries SET kind = 'x'", "DELETE FROM entries", "UPDATE answers SET seq = 1", "DELETE FROM answers"]
)
def test_sqlite_itself_refuses_to_change_rows(filled: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(filled)) as db, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(statement)


# ── exports ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def exported(filled: Path, tmp_path: Path) -> Path:
    with Ledger(filled) as opened:
        opened.export(tmp_path / "book.jsonl")
    return tmp_path / "book.jsonl"


def test_an_export_is_the_book(filled: Path, exported: Path) -> None:
    rows = read_lines(exported)
    with Ledger(filled) as opened:
        assert rows == opened.entries()
        check_chain(rows, head=opened.head)
        assert charges(rows) == [(EVENT, 3), (Threshold(40.0), 2)]


@pytest.mark.parametrize("word", ["a\u2028b", "a\x85b", "a\nb", "a\r\nb", "Größe ε", "\x00"])
def test_an_export_survives_any_text(path: Path, tmp_path: Path, word: str) -> None:
    with Ledger(path, BUDGET) as opened:
        opened.note(word=word)
        opened.export(tmp_path / "x.jsonl")
        rows = read_lines(tmp_path / "x.jsonl")
        check_chain(rows, head=opened.head)
    assert rows[1].body["word"] == word


def slowly(path: Path, pause: float) -> bytes:
    """Do the same on a ledger of one's own, at some speed; give what is exported, with every hash in it."""
    with Ledger(path, BUDGET) as opened:
        for step in (
            lambda: opened.begin("run", plan="plan"),
            lambda: opened.charge(EVENT, count=2),
            lambda: opened.keep(["a", "b"], np.array([1, 2])),
            lambda: opened.note(tuned_on="public"),
        ):
            time.sleep(pause)
            step()
        opened.export(path.with_suffix(".jsonl"))
    return path.with_suffix(".jsonl").read_bytes() + opened_head(path)


def opened_head(path: Path) -> bytes:
    return path.with_name(path.name + ".head").read_bytes()


def test_nothing_that_leaves_depends_on_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One patient with 1 or 1,501 records was told from the times of two rows in 5 of 5 releases."""
    monkeypatch.setattr(ledger, "nonce", lambda: "0" * 32)
    assert slowly(tmp_path / "fast.sqlite", 0) == slowly(tmp_path / "slow.sqlite", 0.02)
    times = []
    for name in ("fast", "slow"):
        with contextlib.closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as db:
            times.append([at for (at,) in db.execute("SELECT at FROM entries ORDER BY seq")])
            db.execute("DROP TRIGGER entries_stay")
            db.execute("UPDATE entries SET at = ''")  # a time is no part of a row: it may be forgotten
            db.commit()
        Ledger(tmp_path / f"{name}.sqlite").close()
    assert times[0] != times[1]  # they are known in private/, and there alone

    def timed(self: Ledger) -> list[Entry]:  # the broken twin: what schema 1 exported
        rows = self._db.execute("SELECT seq, kind, json_set(body, '$.at', at), previous, hash FROM entries").fetchall()
        return [Entry(seq, kind, json.loads(body), previous, head) for seq, kind, body, previous, head in rows]

    monkeypatch.setattr(Ledger, "entries", timed)
    assert slowly(tmp_path / "fast2.sqlite", 0) != slowly(tmp_path / "slow2.sqlite", 0.02)


def test_an_export_is_written_whole_or_not_at_all(filled: Path, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """14 of 300 kills left an empty book.jsonl. The kills themselves are in test_files.py."""
    before = exported.read_bytes()
    with Ledger(filled) as opened:
        opened.note(more=1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda descriptor: 1 / 0)  # stopped in the middle
            with pytest.raises(ZeroDivisionError):
                opened.export(exported)
        assert exported.read_bytes() == before
        opened.export(exported)
        with pytest.raises(LedgerError, match="on a disk that can be written"):
            opened.export(exported.parent / "no" / "where")
    assert len(read_lines(exported)) == 7
    assert not list(exported.parent.glob(".*"))


CHANGES: dict[str, Callable[[list[str]], list[str]]] = {
    "changed": lambda lines: [*lines[:1], lines[1].replace('"count": 3', '"count": 1'), *lines[2:]],
    "reordered": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "middle removed": lambda lines: [*lines[:2], *lines[3:]],
    "head removed": lambda lines: lines[1:],
    "repeated": lambda lines: [*lines, lines[-1]],
    "empty": lambda lines: [],
    "wrong type": lambda lines: [
        lines[0].replace('"seq": 1', '"seq": "1"'),
        *lines[1:],
    ],
    "half a line": lambda lines: [*lines[:-1], lines[-1][: len(lines[-1]) // 2]],
    "blank line": lambda lines: [*lines, ""],
    "no JSON": lambda lines: ["book"],
    "a number": lambda lines: ["7"],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_export_that_was_tampered_with_is_refused(exported: Path, change: Callable[[list[str]], list[str]]) -> None:
    lines = exported.read_text().splitlines()
    changed = change(lines)
    assert changed != lines
    exported.write_text("".join(line + "\n" for line in changed))
    with pytest.raises(LedgerError):
        check_chain(read_lines(exported))


@pytest.mark.parametrize(("field", "value"), [("kind", None), ("body", math.nan), ("body", []), ("seq", "1"), ("hash", 0)])
def test_a_row_of_the_wrong_types_is_a_break(exported: Path, field: str, value: Any) -> None:
    rows = read_lines(exported)
    rows[2] = Entry(**{**vars(rows[2]), field: value})
    with pytest.raises(LedgerError, match="Got a break at row 3"):
        check_chain(rows)


def test_rows_that_no_version_writes_are_not_charges(exported: Path) -> None:
    rows = read_lines(exported)
    rows[1] = Entry(2, "charge", {"event": {}, "count": 0}, rows[1].previous, "")
    with pytest.raises(LedgerError, match="a charge must hold an event and a count ≥ 1"):
        charges(rows)
    with pytest.raises(LedgerError, match="must begin with its opening row"):
        check_chain(rechained(rows[1:]))
    rows[2] = Entry(3, rows[2].kind, [], rows[2].previous, "")  # type: ignore[arg-type]
    with pytest.raises(LedgerError, match="Got a break at row 3"):
        check_chain(rechained(rows))


def test_a_tail_that_was_cut_off_is_told_by_the_head_kept_elsewhere(filled: Path, exported: Path) -> None:
    with Ledger(filled) as opened:
        head = opened.head
    rows = read_lines(exported)
    check_chain(rows[:4])  # whole in itself
    with pytest.raises(LedgerError, match="must end with the row whose hash was kept"):
        check_chain(rows[:4], head=head)


def test_a_missing_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="`book` must be a file that is whole and readable"):
        read_lines(tmp_path / "nowhere.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(LedgerError, match="`book` must be a file that is whole and readable"):
        read_lines(tmp_path / "binary.jsonl")


# ── a disk that does not take it ──────────────────────────────────────────────────────────────────────────────────────


def test_a_path_that_cannot_hold_a_book_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "no" / "where", tmp_path / "file" / "book"):
        with pytest.raises(LedgerError, match=r"on a disk that can be written.*nothing was released"):
            Ledger(path, BUDGET)


def test_a_book_that_may_only_be_read_is_refused_before_anything_is_read(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    uri = f"file:{filled}?mode=ro"
    monkeypatch.setattr(ledger.sqlite3, "connect", lambda path, **options: connect(uri, uri=True, **options))
    with Ledger(filled) as opened:
        for write in (
            lambda: opened.charge(EVENT),
            lambda: opened.keep(["q"], np.array([1])),
            lambda: opened.note(x=1),
            lambda: opened.reveal(Sealed([1]), reason="x"),
        ):
            with pytest.raises(LedgerError, match=r"readonly database.*nothing was released"):
                write()
        assert opened.length == 6


FULL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np
from tutelage.privacy.errors import LedgerError
from tutelage.privacy.events import NoisyMax
from tutelage.privacy.ledger import Budget, Ledger

path, step, released = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))  # not even one page; dies with this process
try:
    with Ledger(path, Budget(2.0, 1e-5)) as ledger:
        if step == "charge":
            ledger.charge(NoisyMax("gaussian", 40.0))
        ledger.keep(["q"], np.array([1]))
    Path(released).touch()
except LedgerError as error:
    print(error)
"""


@pytest.mark.parametrize("step", ["charge", "keep", "open"])
def test_a_full_disk_releases_nothing(path: Path, tmp_path: Path, step: str) -> None:
    if step != "open":
        Ledger(path, BUDGET).close()
    command = [sys.executable, "-c", FULL_DISK, str(path), step, str(tmp_path / "released")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("`book` must be this version's ledger on a disk that can be written")
    assert done.stdout.endswith("nothing was released.\n")
    assert not (tmp_path / "released").exists()
    with Ledger(path, BUDGET) as again:  # the disk has room again: nothing half-written is in the way
        assert (again.length, again.totals(), again.recall(["q"])) == (1, [], {})
        again.charge(EVENT)


def test_a_busy_book_is_an_error_and_not_a_release(book: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutelage.privacy.place._PATIENCE", 0.02)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="database is locked"):
            book.charge(EVENT)
        other.execute("ROLLBACK")
    book.charge(EVENT)
    assert book.length == 2


def test_an_error_in_the_middle_rolls_back(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "_append", lambda kind, body: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        book.charge(EVENT)
    monkeypatch.undo()
    book.charge(EVENT)
    assert (book.length, dict(book.totals())[EVENT]) == (2, 1)


def test_what_sqlite_rolled_back_itself_is_not_rolled_back_twice(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(kind: str, body: dict[str, Any]) -> int:
        book._db.execute("ROLLBACK")  # as SQLite does on some full disks
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(book, "_append", full)
        with pytest.raises(LedgerError, match="disk I/O error"):
            book.charge(EVENT)
    book.charge(EVENT)
    assert book.length == 2


# ── several at once ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_connections_share_one_budget(path: Path) -> None:
    budget = budget_for(EVENT, 3.5)
    with Ledger(path, budget) as one, Ledger(path, budget) as two:
        one.charge(EVENT)
        two.charge(EVENT)
        one.charge(EVENT)
        for refused in (one, two):
            with pytest.raises(BudgetExceeded):
                refused.charge(EVENT)
            assert dict(refused.totals()) == {EVENT: 3}
        check_chain(two.entries(), head=one.head)


def test_a_book_begun_by_another_process_in_the_same_moment_is_joined(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blank, asked = Ledger._blank, []

    def late(self: Ledger) -> bool:
        asked.append(blank(self))
        if len(asked) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(Ledger, "_blank", blank)
                Ledger(path, BUDGET).close()
        return asked[-1]

    monkeypatch.setattr(Ledger, "_blank", late)
    with Ledger(path, BUDGET) as second:
        assert (asked, second.length) == ([True, False], 1)


def test_opening_while_others_write_raises_no_false_alarm(path: Path) -> None:
    with Ledger(path, Budget(50.0, 1e-5)):
        stop, charged = threading.Event(), []

        def write() -> None:
            with Ledger(path) as writer:
                while not stop.is_set():
                    writer.charge(Gaussian(1.0, 400.0))
                    writer.keep([f"q{len(charged)}"], np.array([1]))
                    charged.append(1)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(60):
                Ledger(path).close()
        finally:
            stop.set()
            thread.join()
    assert charged


# ── several runs on one ledger ────────────────────────────────────────────────────────────────────────────────────────


def test_several_runs_share_one_budget(path: Path) -> None:
    budget = budget_for(EVENT, 5.5)
    with Ledger(path, budget) as one:
        one.begin("first", plan="p")
        one.charge(EVENT, count=3)
        assert one.own()
        with Ledger(path, budget) as two:  # another recipe, at the same time
            two.begin("second", plan="q")
            assert not two.own()  # what is charged already is not its own
            assert one.own()
            two.charge(EVENT)
            assert not two.own()
            assert not one.own()  # from the second run on everybody quotes the budget
            with pytest.raises(BudgetExceeded, match="Got 2 more where 1 fit; nothing was read"):
                two.charge(EVENT, count=2)
            one.charge(EVENT)
            with pytest.raises(BudgetExceeded):
                two.charge(EVENT)
            for book in (one, two):
                assert book.totals() == [(EVENT, 5)]
                assert (book.totals(run="first"), book.totals(run="second")) == ([(EVENT, 4)], [(EVENT, 1)])
                assert book.totals(run="third") == []
                assert book.spent() == accounting.cost([(EVENT, 5)], 1e-5)
                assert book.starts() == [("first", "p"), ("second", "q")]
    with Ledger(path) as third:
        with pytest.raises(BudgetExceeded):
            third.charge(EVENT)
        assert [row.body.get("run") for row in third.entries()] == [None, "first", "first", "second", "second", "first"]


@pytest.mark.parametrize("twin", [False, True])
def test_two_ledgers_are_never_equal(path: Path, monkeypatch: pytest.MonkeyPatch, twin: bool) -> None:
    """Equal runs with equal answers, and a copy of a ledger that goes on as the original does: whole releases hang on this."""
    if twin:  # the old behaviour: rows hold nothing that belongs to one ledger alone
        monkeypatch.setattr(ledger, "nonce", lambda: "0" * 32)
    heads = []
    for place in (path, path.with_name("other")):
        with Ledger(place, BUDGET) as book:
            book.begin("run", plan="plan")
            heads.append(book.head)
    for file in path.parent.glob("book.sqlite*"):
        shutil.copyfile(file, file.with_name(file.name.replace("book.sqlite", "copy")))
    for place in (path, path.with_name("copy")):
        with Ledger(place) as book:
            book.begin("run", plan="plan")
            book.charge(EVENT)
            book.keep(["q"], np.array([1]))
            heads.append(book.head)
    assert (heads[0] == heads[1]) is twin
    assert (heads[2] == heads[3]) is twin


def test_a_run_that_goes_on_as_it_started_writes_no_row(path: Path) -> None:
    """A row for every start would tell how often the training of private teachers was broken off."""
    with Ledger(path, BUDGET) as book:
        for run, plan in (("a", "p"), ("a", "p"), ("a", "q"), ("a", "q"), ("a", "p"), ("b", "p"), ("a", "p"), ("a", "p")):
            book.begin(run, plan=plan)
            assert book.run == run
        assert book.starts() == [("a", "p"), ("a", "q"), ("a", "p"), ("b", "p"), ("a", "p")]


def test_a_run_that_starts_again_with_another_plan_quotes_the_budget(path: Path) -> None:
    for plans, own in ((["p"], True), (["p", "p"], True), (["p", "q"], False), (["p", "q", "p"], False)):
        here = path.with_name("-".join(plans))
        for plan in plans:
            with Ledger(here, BUDGET) as book:
                book.begin("run", plan=plan)
                book.charge(EVENT)
                quoted = book.own()
        assert quoted is own
        book.close()


@pytest.mark.parametrize("sampled_first", [True, False])
def test_sampled_events_are_one_runs_with_one_plan(path: Path, sampled_first: bool) -> None:
    sampled, plain = Sampled(Gaussian(1.0, 4.0), 0.01, "fixed", 10, 1000), Gaussian(1.0, 40.0)
    first, second = (sampled, plain) if sampled_first else (plain, sampled)
    with Ledger(path, BUDGET) as book:
        book.begin("one", plan="p")
        book.charge(first)
        book.charge(second)  # within a run both are fine: its list is fixed
    for run, plan in (("two", "p"), ("one", "q")):
        with Ledger(path) as book:
            book.begin(run, plan=plan)
            for event in (sampled, plain):
                with pytest.raises(RecipeError, match="must be charged by one run with one plan where sampled events are"):
                    book.charge(event)
            assert dict(book.totals()) == {sampled: 1, plain: 1}
    with Ledger(path) as book:
        book.reveal(Sealed([1]), reason="a look is written down in any case")


@pytest.mark.parametrize(
    ("pairs", "exceeded"),
    [
        ([(EVENT, 10)], False),
        ([(EVENT, 10**6)], True),
        ([(NoisyMax("laplace", 20.0), 10**6)], True),
        ([(Laplace(1.0, 1e-9), 1)], True),
        ([(Sampled(Gaussian(1.0, 4.0), 0.01), 3), (Laplace(1.0, 1e-9), 1)], True),
        ([(Sampled(Gaussian(1.0, 4.0), 0.01), 3)], False),
        ([(NonPrivate("a look"), 1), (Laplace(1.0, 1e-9), 1)], False),
    ],
)
def test_a_claim_that_no_ledger_can_hold_is_told_without_a_grid(
    pairs: list[Any], exceeded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "_loss_distribution", lambda *_: pytest.fail("it was priced on a grid"))
    assert BUDGET.exceeded(pairs) is exceeded


def test_what_is_charged_without_a_start_is_nobodys_own(path: Path) -> None:
    with Ledger(path, BUDGET) as book:
        book.charge(EVENT)
        assert not book.own()  # no plan says what it was for
        book.begin("run", plan="p")
        book.charge(EVENT)
        assert not book.own()
        assert (book.totals(run=""), book.totals(run="run")) == ([(EVENT, 1)], [(EVENT, 1)])


@pytest.mark.parametrize("named", [{"run": ""}, {"run": "  "}, {"run": None}, {"plan": ""}, {"plan": 3}])
def test_a_start_has_a_run_and_a_plan(book: Ledger, named: dict[str, Any]) -> None:
    given = {"run": "run", "plan": "plan", **named}
    with pytest.raises(RecipeError, match="must be a text that is not empty"):
        book.begin(given["run"], plan=given["plan"])
    assert (book.run, book.length) == ("", 1)


def test_a_row_of_a_run_that_never_started_is_refused(path: Path, tmp_path: Path) -> None:
    with Ledger(path, BUDGET) as book:
        book.begin("run", plan="p")
        book.charge(EVENT)
        rows = book.entries()
    without = rechained([rows[0], rows[2]])
    with pytest.raises(LedgerError, match="every row must belong to a run started before it"):
        check_chain(without)
    check_chain(rows)


def test_eight_processes_create_one_ledger(tmp_path: Path) -> None:
    result = crashes("create", "--folder", str(tmp_path), "--processes", "8", "--rounds", "6")
    assert (result["failed"], result["wrong"]) == (0, 0)


@pytest.mark.slow
def test_eight_processes_create_two_hundred_ledgers(tmp_path: Path) -> None:
    """The old rule failed in 9 of 200."""
    result = crashes("create", "--folder", str(tmp_path), "--processes", "8", "--rounds", "200")
    assert (result["failed"], result["wrong"]) == (0, 0)


def started(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(CRASHES), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, complaint = process.communicate()
    assert process.returncode == 0, complaint
    return dict(json.loads(said))


def crashes(*arguments: str) -> dict[str, Any]:
    return finished(started(*arguments))


def test_sixteen_processes_race_for_the_last_question(tmp_path: Path) -> None:
    for attempt in range(3):
        result = crashes("race", "--folder", str(tmp_path / str(attempt)), "--processes", "16")
        assert (result["granted"], result["refused"], result["in_book"], result["left"], result["failed"]) == (1, 15, 1, 0, 0)


def test_sixteen_processes_share_room_for_a_hundred(tmp_path: Path) -> None:
    result = crashes("race", "--folder", str(tmp_path), "--processes", "16", "--room", "100", "--tries", "10")
    assert (result["granted"], result["refused"], result["in_book"], result["left"], result["failed"]) == (100, 60, 100, 0, 0)


@pytest.mark.parametrize("count", [500, pytest.param(3000, marks=pytest.mark.slow)])
def test_kills_hide_nothing(count: int, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    half = str(count // 2)
    halves = [started("kills", "--folder", str(tmp_path / seed), "--count", half, "--seed", seed) for seed in ("1", "2")]
    results = [finished(half) for half in halves]
    total = {name: sum(result[name] for result in results) for name in results[0] if name != "faults"}
    for name, figure in total.items():
        record_property(name, figure)
    print(total)
    assert total["kills"] >= count
    assert total["during_work"] >= count // 10  # the moments were not all before the first question
    assert total["wasted_questions"] > 0  # a crash wastes budget …
    assert [result["faults"] for result in results] == [{}, {}]  # … and never hides a release
    assert total["finished"] == total["books"]


@pytest.mark.parametrize(
    ("door", "fault"),
    [("late-charge", "teachers voted on an uncharged question"), ("late-keep", "released, and not in the book")],
)
def test_broken_twins_are_caught_by_the_same_kills(tmp_path: Path, door: str, fault: str) -> None:
    result = crashes("kills", "--folder", str(tmp_path), "--count", "500", "--door", door, "--until", fault)
    assert result["faults"][fault] >= 1


def test_sampled_events_must_be_proved_for_the_books_neighbours(tmp_path: Path) -> None:
    poisson = Sampled(Gaussian(1.0, 4.0), 0.01)
    fixed = Sampled(Gaussian(1.0, 4.0), 0.01, "fixed", 10, 1000)
    with Ledger(tmp_path / "replace", Budget(8.0, 1e-5)) as ledger:
        ledger.charge(fixed)
        with pytest.raises(RecipeError, match=r"`sampler` must be proved for replace-one books\. Got 'poisson'"):
            ledger.charge(poisson)
        assert ledger.totals() == [(fixed, 1)]
    with Ledger(tmp_path / "come-and-go", Budget(8.0, 1e-5, adjacency=Adjacency.ADD_REMOVE)) as ledger:
        ledger.charge(poisson)
        with pytest.raises(RecipeError, match=r"`sampler` must be proved for add-remove books\. Got 'fixed'"):
            ledger.charge(fixed)
    with Ledger(tmp_path / "come-and-go") as again:
        assert again.budget.adjacency is Adjacency.ADD_REMOVE
