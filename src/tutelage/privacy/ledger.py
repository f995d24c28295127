"""The ledger: a budget, and a write-ahead record of everything that was released.

A charge is committed and synced to disk before a private value is read; what was released is committed before it is handed
over. So a crash can waste budget and never hide a release, and asking the same question again costs nothing. Rows are
append-only and chained by SHA-256; several processes may share one book (SQLite, WAL, synchronous=FULL, BEGIN IMMEDIATE).

A ledger belongs to a data set: several runs may share it, and every row names its run. When a row was written stays in the
private database: a time would tell how long teachers trained on private records, so it is neither hashed nor exported.

Adaptive use (stopping when the budget is gone, Confident-GNMax, a student that chooses its questions) rests on the
privacy filter in accounting.admits, with its theorems.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy import accounting
from tutelage.privacy.budget import Budget, read_budget
from tutelage.privacy.entries import (
    GENESIS,
    Entry,
    answers_digest,
    begun,
    canonical,
    charges,
    check_chain,
    check_heads,
    digest,
    nonce,
    quotable,
    read_lines,
    starts,
)
from tutelage.privacy.errors import BudgetExceeded, LedgerError, RecipeError
from tutelage.privacy.events import Event, NonPrivate, Reserved, Sampled, from_record, to_record
from tutelage.privacy.files import parse_json, write_whole
from tutelage.privacy.head import HeadFile
from tutelage.privacy.place import Place, patiently
from tutelage.privacy.sealed import _KEY, Sealed
from tutelage.privacy.units import Adjacency

__all__ = ["SCHEMA", "Budget", "Entry", "Ledger", "charges", "check_chain", "check_heads", "quotable", "read_lines", "starts"]

SCHEMA = 2
_APPLICATION = 0x54555445  # "TUTE" in the file's header: another program's database is refused
_COUNT = 2**53  # a larger count is no whole number to the accountant
_TABLES = """
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE answers (question TEXT PRIMARY KEY, seq INTEGER NOT NULL, payload BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE totals (
    run TEXT NOT NULL, event TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (run, event)) STRICT, WITHOUT ROWID;
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the book is append-only'); END;
CREATE TRIGGER entries_remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the book is append-only'); END;
CREATE TRIGGER answers_stay BEFORE UPDATE ON answers BEGIN SELECT RAISE(ABORT, 'the book is append-only'); END;
CREATE TRIGGER answers_remain BEFORE DELETE ON answers BEGIN SELECT RAISE(ABORT, 'the book is append-only'); END;
"""


@final
class Ledger:
    """Keep one budget's book in one file. Open it with `Ledger(path, budget)`; an existing book must hold the same budget.

    `heads` are rows, as (number, hash), that the caller knows of: a book without them was lost or replaced, and is refused. The
    head file beside the book (tutelage.privacy.head) is asked in any case.
    """

    def __init__(
        self, path: str | os.PathLike[str], budget: Budget | None = None, *, heads: Iterable[tuple[int, str]] = ()
    ) -> None:
        self.path = Path(path)
        self.run = ""  # what `begin` is given
        with self._guarded():
            self._place = Place(path)
            self._head = HeadFile(self._place.path)
            self.budget = patiently(lambda: self._open(budget, list(heads)))
        if budget is not None and budget != self.budget:
            self.close()
            raise LedgerError("`budget` must be the one the book was opened with. Got another instead.")

    # ── what callers do ───────────────────────────────────────────────────────────────────────────────────────────────

    def charge(self, event: Event, *, count: int = 1, reservation: str | None = None) -> None:
        """Write down what is about to happen, or refuse. On return the row is on disk, with the name of a `reservation`."""
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 0 <= count <= _COUNT:
            raise RecipeError(f"`count` must be a whole number ≥ 0, at most 2^53. Got {count!r} instead.")
        if count == 0:
            return
        self._check_sampler(event)
        with self._writing():
            pairs = [*self._totals(), (event, int(count))]
            if not isinstance(event, NonPrivate):
                self._check_alone(pairs)
            if not isinstance(event, NonPrivate) and not accounting.admits(pairs, self.budget.epsilon, self.budget.delta):
                raise BudgetExceeded(
                    f"`count` of {type(event).__name__} must fit the budget of ε = {self.budget.epsilon:g} at "
                    f"δ = {self.budget.delta:g}. Got {count} more where {self._room(event)} fit; nothing was read for it."
                )
            self._append("charge", {"event": to_record(event), "count": int(count), "nonce": nonce(), "run": self.run})
            self._db.execute(
                "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT (run, event) DO UPDATE SET count = count + excluded.count",
                (self.run, canonical(to_record(event)), int(count)),
            )
            if reservation is not None:
                self._append("note", {"reservation": reservation, "begun": 0, "run": self.run})

    def begun(self, reservation: str) -> int | None:
        """Count the rounds of a reservation that may have been used. None where there is no such reservation of this run."""
        return begun(self.entries(), self.run, reservation)

    def advance(self, reservation: str, *, rounds: int, ahead: int) -> tuple[int, int]:
        """Count the next rounds of a reservation as used, before anybody uses them. Give the first of them and the end."""
        with self._writing():  # read and written in one transaction: nobody else is given the same rounds
            first = begun(self._entries(), self.run, reservation)
            if first is None or first >= rounds:
                raise BudgetExceeded(f"`rounds` must be among the {rounds} that were reserved. Got more instead.")
            self._append("note", {"reservation": reservation, "begun": min(first + ahead, rounds), "run": self.run})
        return first, min(first + ahead, rounds)

    def begin(self, run: str, *, plan: str) -> None:
        """Write down that a run starts with a plan: hashes, both public. Rows written from here on name the run.

        A run that goes on as it started last writes nothing: how often private training was broken off would show.
        """
        for name, value in (("run", run), ("plan", plan)):
            if not (isinstance(value, str) and value.strip()):
                raise RecipeError(f"`{name}` must be a text that is not empty. Got {value!r} instead.")
        with self._guarded():
            again = starts(self._entries())[-1:] == [(run, plan)]
        if not again:
            with self._writing():
                self._append("start", {"run": run, "plan": plan})
        self.run = run

    def starts(self) -> list[tuple[str, str]]:
        """Give the run and the plan of every start, in order."""
        return starts(self.entries())

    def own(self) -> bool:
        """Tell whether the cost so far may be quoted for this run, and not only the budget: see `quotable`."""
        return quotable(self.entries(), self.run)

    def keep(self, questions: Sequence[str], answers: npt.NDArray[Any]) -> None:
        """Write down what is about to be handed over: one answer per question, before anyone sees it."""
        if len(questions) != len(answers):
            raise RecipeError(f"`answers` must be one per question. Got {len(answers)} for {len(questions)} instead.")
        if not questions:
            return
        array = np.asarray(answers)
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        if array.dtype.kind not in "biuf":
            raise RecipeError(f"`answers` must be numbers. Got {array.dtype} instead.")
        payloads = dict(zip(questions, (row.tobytes() for row in array), strict=True))
        with self._writing():
            # Another process may have answered the same question meanwhile: what was released first stays the answer.
            fresh = {question: payload for question, payload in payloads.items() if self._kept(question) is None}
            body = {
                "count": len(fresh),
                "dtype": array.dtype.str,
                "shape": list(array.shape[1:]),
                "sha256": answers_digest(fresh.items()),
                "run": self.run,
            }
            seq = self._append("release", body)
            self._db.executemany("INSERT INTO answers VALUES (?, ?, ?)", [(key, seq, value) for key, value in fresh.items()])
        with self._guarded():
            self._checkpoint()  # so that the database alone is nearly whole when the process is killed

    def recall(self, questions: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Give the answers that were released before: they cost nothing again."""
        with self._guarded():
            kept = {question: row for question in questions if (row := self._kept(question)) is not None}
            if max((seq for seq, _ in kept.values()), default=0) > self._head.length:  # written by a process that has died since
                self._head.append(*self._last())
            bodies = {
                seq: json.loads(self._db.execute("SELECT body FROM entries WHERE seq = ?", (seq,)).fetchone()[0])
                for seq in {row[0] for row in kept.values()}
            }
        return {
            question: np.frombuffer(payload, dtype=bodies[seq]["dtype"]).reshape(bodies[seq]["shape"])
            for question, (seq, payload) in kept.items()
        }

    def note(self, **facts: str | int | float | None) -> None:
        """Write down a public fact of the run (what was tuned on what, a hash); it costs nothing."""
        for name, fact in facts.items():
            if name == "run":
                raise RecipeError("`run` must not be a note's: it is what `begin` was given. Got one instead.")
            if not (fact is None or isinstance(fact, (str, int)) or (isinstance(fact, float) and math.isfinite(fact))):
                raise RecipeError(f"`{name}` of a note must be text, a finite number or None. Got {fact!r} instead.")
        with self._writing():
            self._append("note", {**facts, "run": self.run})

    def reveal(self, sealed: Sealed, *, reason: str) -> npt.NDArray[Any]:
        """Look at a sealed value. Allowed, and written down first as what it is: ε = ∞ from here on."""
        if not reason.strip():
            raise RecipeError("`reason` must say why a private value is looked at. Got an empty one instead.")
        self.charge(NonPrivate(reason))
        return sealed._open(_KEY)

    def spent(self) -> accounting.Cost:
        """Price everything in the book, independently of the data."""
        with self._guarded():
            return accounting.cost(self._totals(), self.budget.delta)

    def totals(self, *, run: str | None = None) -> list[tuple[Event, int]]:
        """Give every kind of event in the book, or of one run in it, with how often it happened."""
        with self._guarded():
            return self._totals(run)

    def affordable(self, *events: Event) -> int:
        """Tell how many more times the budget holds all of these together."""
        with self._guarded():
            return self._room(*events)

    def entries(self) -> list[Entry]:
        """Read all rows."""
        with self._guarded():
            return self._entries()

    @property
    def length(self) -> int:
        """Count the rows."""
        with self._guarded():
            return self._last()[0]

    @property
    def head(self) -> str:
        """Give the newest row's hash. Keep it: later it shows whether rows are missing."""
        with self._guarded():
            return self._last()[1]

    def export(self, path: Path) -> None:
        """Write the book as JSON lines, chain included, whole or not at all; it holds no private value."""
        lines = "".join(json.dumps(asdict(entry), sort_keys=True, ensure_ascii=False) + "\n" for entry in self.entries())
        with self._guarded():
            write_whole(path, lines)

    def check_place(self) -> None:
        """Refuse to publish when a file of the ledger was deleted, moved, replaced or overwritten, or has a second name.

        Every transaction looks at the files too. This opens them anew, as the next run will.
        """
        with self._guarded():
            last = self._last()
            Ledger(self._place.path, heads=[last]).close()
            self._place.check()

    def close(self) -> None:
        """Let go of the files."""
        self._db.close()
        self._head.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── what happens inside ───────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, budget: Budget | None, heads: list[tuple[int, str]]) -> Budget:
        """Open or create the database, and check it against all that is known of it. Another process may do the same."""
        known = [*heads, *self._head.read()]  # before the database: a head is written after its row, so the row must be there
        existed = self._place.found()
        if not existed and (known or budget is None):
            check_heads([], known)
            raise LedgerError(f"`path` must be an existing ledger where no budget is given. Got {self.path.name} instead.")
        self._db = sqlite3.connect(self._place.path, timeout=0.1, isolation_level=None)
        try:
            if not existed:  # SQLite gives the files beside a database the database's own mode
                self._place.path.chmod(0o600)
            self._place.remember()
            self._db.execute("PRAGMA synchronous=FULL")
            if self._blank():
                check_heads([], known)
                if budget is not None:
                    with self._transaction():
                        if self._blank():  # still: another process may have been first
                            self._create(budget)
            self._check_header()
            self._finish_creation()
            known += self._head.read()
            with self._transaction("DEFERRED"):  # one snapshot: others may write meanwhile
                found = self._verify(known)
                last = self._last()
            self._place.remember(self._place.beside("-wal"), self._place.beside("-shm"))
            if os.path.getsize(self._place.beside("-wal")):  # what a kill left
                self._checkpoint()
            if last[0] > self._head.length:
                self._head.append(*last)
            self._place.remember(self._head.path)
        except (KeyError, TypeError, ValueError, RecursionError):  # a row without its fields, or not even JSON
            self.close()
            raise LedgerError("the book's rows must be those this version writes. Got others instead.") from None
        except BaseException:
            self.close()
            raise
        return found

    def _finish_creation(self) -> None:
        """Write the first head, then turn to WAL mode. So a database in WAL mode without a head file has lost it."""
        if self._mode() != "wal":
            with self._transaction():  # nobody changes the mode meanwhile
                if self._mode() != "wal" and not self._head.read() and self._last()[0] == 1:
                    self._head.append(*self._last())
            mode = self._db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise LedgerError(f"`book` must lie on a disk that a write-ahead log works on. Got mode {mode!r} instead.")
        if not self._head.read():
            raise LedgerError(
                f"`{self._head.path.name}` must lie beside the book. Got a book without it instead: "
                "restore it with all files whose names begin with its own."
            )

    def _mode(self) -> str:
        return str(self._db.execute("PRAGMA journal_mode").fetchone()[0])

    def _checkpoint(self) -> None:
        """Copy the write-ahead log into the database, as far as other connections allow."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn every failure of the disk or the database into one error, and look first whether the files are in place."""
        try:
            if hasattr(self, "_place"):
                self._place.check()
            yield
        except (sqlite3.Error, OSError) as error:
            reason = " ".join(str(error).split())[:200]
        else:
            return
        raise LedgerError(
            f"`book` must be this version's ledger on a disk that can be written. Got «{reason}» from {self.path.name} instead; "
            "nothing was released."
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Commit a transaction, and then what the head file knows of it."""
        with self._guarded():
            with self._transaction():
                yield
            self._head.append(*self._appended)
            self._place.check()  # nothing is handed over when the file went away meanwhile

    @contextmanager
    def _transaction(self, mode: str = "IMMEDIATE") -> Iterator[None]:
        try:
            patiently(lambda: self._db.execute(f"BEGIN {mode}"))  # inside: an interrupt may come when the lock was just taken
            self._place.check()
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _blank(self) -> bool:
        return bool(self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0)

    def _create(self, budget: Budget) -> None:
        for statement in _TABLES.strip().split(";\n"):
            self._db.execute(statement)
        self._db.execute(f"PRAGMA application_id={_APPLICATION}")
        self._db.execute(f"PRAGMA user_version={SCHEMA}")
        self._append("open", {"schema": SCHEMA, "ledger": nonce(), **budget.record()})

    def _check_sampler(self, event: Event) -> None:
        """Refuse a sampled event whose amplification is proved for the other kind of neighbours."""
        if isinstance(event, Reserved):
            event = event.event
        if isinstance(event, Sampled):
            proved = Adjacency.ADD_REMOVE if event.sampler == "poisson" else Adjacency.REPLACE_ONE
            if self.budget.adjacency != proved:
                raise RecipeError(f"`sampler` must be proved for {self.budget.adjacency} books. Got {event.sampler!r} instead.")

    def _check_alone(self, pairs: list[tuple[Event, int]]) -> None:
        """Refuse a second run, or a second plan, where sampled events are: no theorem covers what is chosen after answers."""
        if any(isinstance(event, (Sampled, Reserved)) for event, _ in pairs):
            runs = {run for (run,) in self._db.execute("SELECT DISTINCT run FROM totals")} | {self.run}
            plans = {plan for run, plan in starts(self._entries()) if run == self.run}
            if len(runs) > 1 or len(plans) > 1:
                raise RecipeError(
                    "`event` must be charged by one run with one plan where sampled events are in the book: no filter covers "
                    "them. Got another run or plan instead; nothing was read. Take a book of its own for them."
                )

    def _kept(self, question: str) -> tuple[int, bytes] | None:
        row = self._db.execute("SELECT seq, payload FROM answers WHERE question = ?", (question,)).fetchone()
        return None if row is None else (row[0], row[1])

    def _last(self) -> tuple[int, str]:
        seq, head = self._db.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone() or (0, GENESIS)
        return int(seq), str(head)

    def _append(self, kind: str, body: dict[str, Any]) -> int:
        length, previous = self._last()
        try:
            parse_json(text := canonical(body))  # what is written can be read again, in an export too
        except ValueError:
            raise RecipeError("`book` must be given text and finite numbers of 64 bits. Got others instead.") from None
        seq, at = length + 1, datetime.now(UTC).isoformat(timespec="milliseconds")
        head = digest(seq, kind, text, previous)
        self._db.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", (seq, at, kind, text, previous, head))
        self._appended = seq, head
        return seq

    def _entries(self) -> list[Entry]:
        rows = self._db.execute("SELECT seq, kind, body, previous, hash FROM entries ORDER BY seq").fetchall()
        return [Entry(seq, kind, json.loads(body), previous, head) for seq, kind, body, previous, head in rows]

    def _totals(self, run: str | None = None) -> list[tuple[Event, int]]:
        wanted = "SELECT event, sum(count) FROM totals WHERE ?1 IS NULL OR run = ?1 GROUP BY event ORDER BY event"
        rows = self._db.execute(wanted, (run,))
        return [(from_record(json.loads(event)), count) for event, count in rows]

    def _room(self, *events: Event) -> int:
        spent = self._totals()

        def fits(count: int) -> bool:
            more = [(event, count) for event in events]
            return accounting.admits([*spent, *more], self.budget.epsilon, self.budget.delta)

        if not fits(1):
            return 0
        high = 1
        while fits(high * 2) and high < 1 << 40:
            high *= 2
        low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _check_header(self) -> None:
        """Leave another program's file untouched."""
        if self._db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise LedgerError(f"`book` must be a Tutelage ledger. Got another program's file, {self.path.name}, instead.")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == 1:
            raise LedgerError(
                f"`book` must have schema {SCHEMA}. Got schema 1 instead: its releases' guarantee did not hold, because one "
                "unit could move many teachers (shards followed the order of rows). Take a new book and run again."
            )
        if version != SCHEMA:
            raise LedgerError(f"`book` must have schema {SCHEMA}. Got schema {version} instead.")

    def _verify(self, known: list[tuple[int, str]]) -> Budget:
        """Check on opening that the book is whole and consistent."""
        if self._db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise LedgerError("the book's pages must be undamaged. Got damaged ones instead.")
        rows = self._entries()
        check_heads(rows, known)
        check_chain(rows)
        issued = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
        if issued is None or issued[0] != len(rows):
            raise LedgerError("the book must hold every row it ever issued. Got a truncated one instead.")
        tally: dict[tuple[str, str], int] = {}
        for row in rows:
            for event, count in charges([row]):
                key = str(row.body["run"]), canonical(to_record(event))
                tally[key] = tally.get(key, 0) + count
        if tally != {(run, event): count for run, event, count in self._db.execute("SELECT run, event, count FROM totals")}:
            raise LedgerError("the book's totals must add up to its rows. Got others instead.")
        self._verify_answers(rows)
        if len(str(rows[0].body["ledger"])) != 32:
            raise LedgerError("the book must have a name of its own in its first row. Got one without it instead.")
        return read_budget(rows[0].body)

    def _verify_answers(self, rows: Sequence[Entry]) -> None:
        """Hash what was released again, one release at a time: all answers together may be larger than memory."""
        kept: dict[int, list[str]] = {}
        for seq, question in self._db.execute("SELECT seq, question FROM answers"):
            kept.setdefault(seq, []).append(question)
        for entry in rows:
            if entry.kind == "release" and self._released_digest(kept.pop(entry.seq, [])) != entry.body["sha256"]:
                raise LedgerError(f"the answers kept must be those that row {entry.seq} released. Got others instead.")
        if kept:
            raise LedgerError("every answer kept must belong to a row of the book. Got strays instead.")

    def _released_digest(self, questions: Sequence[str]) -> str:
        payload = "SELECT payload FROM answers WHERE question = ?"
        return answers_digest([(question, self._db.execute(payload, (question,)).fetchone()[0]) for question in questions])
