"""Rows of a ledger, as they are hashed and exported, and what can be read out of them without the database."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from tutelage.privacy.errors import LedgerError
from tutelage.privacy.events import Event, from_record
from tutelage.privacy.files import read_json_lines, reading

GENESIS = "0" * 64


@final
@dataclass(frozen=True)
class Entry:
    """One row of the book, as it is hashed and exported."""

    seq: int
    kind: str
    body: dict[str, Any]
    previous: str
    hash: str

    def digest(self) -> str:
        """Give the hash this row must have."""
        return digest(self.seq, self.kind, canonical(self.body), self.previous)


def nonce() -> str:
    """Give a name that nothing else has: it tells ledgers apart, and two charges that are otherwise equal.

    It is no noise, hides nothing, and follows from nothing private. Without it two ledgers on which equal runs were given equal
    answers would be equal to the last byte, and would pass as one.
    """
    return os.urandom(16).hex()


def canonical(body: dict[str, Any]) -> str:
    """Write a row's body in the one way that is hashed."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(seq: int, kind: str, body: str, previous: str) -> str:
    """Hash a row, and through `previous` all rows before it."""
    return hashlib.sha256("\n".join((str(seq), kind, body, previous)).encode()).hexdigest()


def answers_digest(answers: Iterable[tuple[str, bytes]]) -> str:
    """Hash what was released: every question's key with its answer."""
    found = hashlib.sha256()
    for question, payload in sorted(answers):
        found.update(f"{question} {len(payload)} ".encode())
        found.update(payload)
    return found.hexdigest()


def check_chain(entries: Sequence[Entry], *, head: str | None = None) -> None:
    """Refuse a book in which a row was changed, removed, added or moved, or belongs to a run that was not started before it.

    Rows cut off the end leave a shorter chain that is whole in itself: only a `head` kept elsewhere tells.
    """
    previous, begun = GENESIS, {""}  # what is charged without `begin` belongs to no run
    for position, entry in enumerate(entries, start=1):
        if not _follows(entry, position, previous):
            raise LedgerError(f"the book's rows must form one unbroken chain. Got a break at row {position} instead.")
        run = str(entry.body.get("run", ""))
        if entry.kind == "start":
            begun.add(run)
        elif run not in begun:
            raise LedgerError(f"every row must belong to a run started before it. Got another at row {position} instead.")
        previous = entry.hash
    if not entries or entries[0].kind != "open":
        raise LedgerError("the book must begin with its opening row. Got another instead.")
    if head is not None and previous != head:
        raise LedgerError("the book must end with the row whose hash was kept. Got another end instead.")


def _follows(entry: Entry, position: int, previous: str) -> bool:
    try:
        linked = entry.seq == position and entry.previous == previous and entry.digest() == entry.hash
        return linked and isinstance(entry.body, dict)
    except (TypeError, ValueError):  # not even the types of a row
        return False


def check_heads(entries: Sequence[Entry], heads: Iterable[tuple[int, str]]) -> None:
    """Refuse a book without one of the rows whose number and hash were kept elsewhere: it is older, or another."""
    for length, head in heads:
        if not (1 <= length <= len(entries) and entries[length - 1].hash == head):
            raise LedgerError(
                f"the book must hold every row that is known of it, {length} at least. Got {len(entries)} rows of an older or "
                "another book instead: it was lost or replaced. Restore it, with all files whose names begin with its own."
            )


def charges(entries: Sequence[Entry]) -> list[tuple[Event, int]]:
    """Read the (event, count) pairs out of a book's rows."""
    pairs = []
    for entry in entries:
        if entry.kind == "charge":
            event, count = entry.body.get("event"), entry.body.get("count")
            if not (isinstance(event, dict) and isinstance(count, int) and count >= 1):
                raise LedgerError(f"a charge must hold an event and a count ≥ 1. Got another at row {entry.seq} instead.")
            pairs.append((from_record(event), count))
    return pairs


def starts(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Read the run and the plan of every start out of a book's rows."""
    return [(str(row.body.get("run")), str(row.body.get("plan"))) for row in entries if row.kind == "start"]


def begun(entries: Sequence[Entry], run: str, reservation: str) -> int | None:
    """Count the rounds of a run's reservation that may have been used. None where there is no such reservation."""
    bodies = (row.body for row in entries if row.kind == "note" and row.body.get("run") == run)
    return max((int(body["begun"]) for body in bodies if body.get("reservation") == reservation), default=None)


def quotable(entries: Sequence[Entry], run: str) -> bool:
    """Tell whether the cost of a book is a theorem for this run: it alone was charged, and all its starts had one plan.

    A second run, and a second plan, may depend on what was released before. Then the sum of what happened bounds nothing by
    itself: the filter's budget does (docs/theory/composition.md), and it is what must be quoted. What was charged before any
    start has no plan at all.
    """
    plans = {plan for started, plan in starts(entries) if started == run}
    return len(plans) == 1 and all(row.body.get("run") == run for row in entries if row.kind == "charge")


def read_lines(path: Path) -> list[Entry]:
    """Read an exported book (JSON lines)."""
    with reading(path, "book", error=LedgerError):
        return [Entry(**row) for row in read_json_lines(path, "book", error=LedgerError)]
