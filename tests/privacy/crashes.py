"""Kill real labelling runs at random moments, race processes for the last question, and let many create one book together.

A program of its own, so that it forks from one quiet thread: the tests and benchmarks/ledger.py start it and read its JSON.

    python tests/privacy/crashes.py kills --folder /tmp/k --count 500 [--door late-charge|late-keep]
    python tests/privacy/crashes.py race  --folder /tmp/r --processes 16 --room 100 --tries 10
    python tests/privacy/crashes.py create --folder /tmp/c --processes 8 --rounds 200
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tutelage.codecs.votes import Votes
from tutelage.privacy.accounting import admits, mu_epsilon
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import BudgetExceeded, LedgerError
from tutelage.privacy.events import Gaussian, NoisyMax
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.mechanisms import GNMax, ThresholdTest
from tutelage.privacy.queries import Query
from tutelage.privacy.sealed import Sealed

CLASSES, TEACHERS, QUESTIONS, BATCH = 4, 12, 120, 2
KILLS_PER_BOOK = 50
BUDGET = Budget(1e6, 1e-5)  # never the reason to stop here
CODEC, MECHANISM = Votes(CLASSES), GNMax(CLASSES, 1.0)
SCREENS = (None, ThresholdTest(CLASSES, 8.0, 2.0))  # books take turns: GNMax, Confident-GNMax
INPUTS = np.arange(QUESTIONS, dtype=np.int64)[:, None]


class Voters:
    """Teachers that write down outside the book, before they answer, how many questions they were asked."""

    key = "voters"

    def __init__(self, log: int) -> None:
        self.log = log

    def vote(self, inputs: np.ndarray) -> Sealed:
        os.write(self.log, f"{len(inputs)}\n".encode())
        labels = np.tile(inputs[:, 0] % CLASSES, (TEACHERS, 1))
        labels[:3] = (labels[:3] + 1) % CLASSES
        return Sealed(labels)


class Mute:
    """The same teachers, when they must not be asked."""

    key = "voters"

    def vote(self, inputs: np.ndarray) -> Sealed:
        raise AssertionError("an answer that was released before reached the teachers again")


class LateCharge:
    """A broken twin: reads and releases first, charges after."""

    def __init__(self, teachers: Any, ledger: Ledger, screen: ThresholdTest | None) -> None:
        self.teachers, self.ledger = teachers, ledger
        self.salt = Curator(teachers, CODEC, MECHANISM, ledger, screen=screen).salted

    def answer(self, inputs: np.ndarray) -> np.ndarray:
        questions = Query.inputs(inputs).keys(self.salt)
        if len(self.ledger.recall(questions)) < len(questions):
            self.ledger.keep(questions, MECHANISM.contribute(self.teachers.vote(inputs).map(CODEC.encode)))
            self.ledger.charge(MECHANISM.event(), count=len(inputs))
        known = self.ledger.recall(questions)
        return np.stack([known[question] for question in questions])


class LateKeep:
    """A broken twin: charges in time, and hands an answer over before the book holds it."""

    def __init__(self, teachers: Any, ledger: Ledger, screen: ThresholdTest | None) -> None:
        self.teachers, self.ledger, self.pending = teachers, ledger, ([], np.empty(0, dtype=np.int64))
        self.salt = Curator(teachers, CODEC, MECHANISM, ledger, screen=screen).salted

    def answer(self, inputs: np.ndarray) -> np.ndarray:
        self.ledger.keep(*self.pending)
        questions = Query.inputs(inputs).keys(self.salt)
        known = self.ledger.recall(questions)
        if len(known) == len(questions):
            self.pending = ([], np.empty(0, dtype=np.int64))
            return np.stack([known[question] for question in questions])
        self.ledger.charge(MECHANISM.event(), count=len(inputs))
        released = MECHANISM.contribute(self.teachers.vote(inputs).map(CODEC.encode))
        self.pending = (questions, released)
        return released


def _curator(teachers: Any, ledger: Ledger, screen: ThresholdTest | None) -> Curator:
    return Curator(teachers, CODEC, MECHANISM, ledger, screen=screen)


DOORS: dict[str, Callable[[Any, Ledger, ThresholdTest | None], Any]] = {
    "curator": _curator,
    "late-charge": LateCharge,
    "late-keep": LateKeep,
}


def _forked(work: Callable[[], None]) -> int:
    """Run in a child; its exit status is 0 only when the work came to its end."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


# ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def label(folder: Path, door: str, screen: ThresholdTest | None, ready: int | None = None) -> None:
    """Ask every question; an answer is out as soon as it stands in `out`, written only after `answer` returned."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    out, votes = os.open(folder / "out", flags), os.open(folder / "votes", flags)
    ledger = Ledger(folder / "book.sqlite", BUDGET)
    asked = DOORS[door](Voters(votes), ledger, screen)
    if ready is not None:
        os.write(ready, b"!")
    for start in range(0, QUESTIONS, BATCH):
        answers = asked.answer(INPUTS[start : start + BATCH])
        os.write(out, "".join(f"{start + i} {int(answer)}\n" for i, answer in enumerate(answers)).encode())
    ledger.close()


def _lines(path: Path) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in path.read_text().splitlines()] if path.exists() else []


def faults(folder: Path, screen: ThresholdTest | None) -> list[str]:
    """Compare the book with what was seen outside it."""
    book = folder / "book.sqlite"
    if not book.exists():
        return ["released without a book"] if _lines(folder / "out") else []
    found = []
    try:
        with Ledger(book, BUDGET) as ledger:
            totals = dict(ledger.totals())
            curator = Curator(Mute(), CODEC, MECHANISM, ledger, screen=screen)
            seen = _lines(folder / "out")
            asked, answers = (np.array(column) for column in zip(*seen, strict=True)) if seen else (INPUTS[:0, 0],) * 2
            if not curator.known(INPUTS[asked]):
                found.append("released, and not in the book")
            elif (curator.answer(INPUTS[asked]) != answers).any():
                found.append("released with another value than the book's")
    except LedgerError:
        return ["the book does not open"]
    first = MECHANISM.event() if screen is None else screen.event()
    if sum(count for (count,) in _lines(folder / "votes")) > totals.get(first, 0):
        found.append("teachers voted on an uncharged question")
    if len({question for question, answer in seen if answer >= 0}) > totals.get(MECHANISM.event(), 0):
        found.append("fewer answers charged than released")
    return found


def kills(folder: Path, count: int, door: str, seed: int, until: str) -> dict[str, Any]:
    """Kill `count` runs, or until a fault is found; look at the book after each, and let one run per book come to its end."""
    admits([(MECHANISM.event(), 1)], BUDGET.epsilon, BUDGET.delta)  # computed once here, so that children die at work
    moments, started = random.Random(seed), time.perf_counter()  # when to kill: no privacy noise
    result: dict[str, Any] = {"kills": 0, "during_work": 0, "wasted_questions": 0, "released": 0, "books": 0, "finished": 0}
    found: dict[str, int] = {}

    def note(faults_now: list[str]) -> None:
        for fault in faults_now:
            found[fault] = found.get(fault, 0) + 1

    while result["kills"] < count and until not in found:
        here, screen = folder / str(result["books"]), SCREENS[result["books"] % 2 if door == "curator" else 0]
        here.mkdir(parents=True)
        for turn in range(min(KILLS_PER_BOOK, count - result["kills"])):
            voted, (wait, ready) = len(_lines(here / "votes")), os.pipe()
            child = _forked(lambda here=here, screen=screen, ready=ready: label(here, door, screen, ready))
            os.close(ready)
            if turn % 4:  # every fourth run may die while it opens the book, the others at work
                os.read(wait, 1)
            time.sleep(moments.uniform(0.0, 0.04))
            os.kill(child, signal.SIGKILL)  # a child that had finished is a zombie until the wait: harmless
            os.close(wait)
            if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
                result["kills"] += 1
                result["during_work"] += len(_lines(here / "votes")) > voted
            note(faults(here, screen))
            if until in found:
                break
        status = os.waitpid(_forked(lambda here=here, screen=screen: label(here, door, screen)), 0)[1]
        result["finished"] += status == 0 and {line[0] for line in _lines(here / "out")} == set(range(QUESTIONS))
        note(faults(here, screen))
        with Ledger(here / "book.sqlite") as ledger:
            charged = sum(n for event, n in ledger.totals() if not isinstance(event, NoisyMax) or screen is None)
        result["wasted_questions"] += charged - QUESTIONS
        result["released"] += len({tuple(line) for line in _lines(here / "out")})
        result["books"] += 1
    return {**result, "faults": found, "seconds": round(time.perf_counter() - started, 2)}


# ── races ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def race(folder: Path, processes: int, room: int, tries: int) -> dict[str, Any]:
    """Let `processes` open one book at the same moment and charge `tries` times each where `room` charges fit."""
    folder.mkdir(parents=True, exist_ok=True)
    book, event, spent = folder / "race.sqlite", Gaussian(1.0, 10.0), 5
    budget = Budget(float(mu_epsilon(0.1 * math.sqrt(spent + room + 0.5), 1e-5)), 1e-5)
    with Ledger(book, budget) as ledger:
        ledger.charge(event, count=spent)
        assert ledger.affordable(event) == room
    gate, opener = os.pipe()
    report, reporter = os.pipe()
    started = time.perf_counter()

    def run() -> None:
        os.close(opener)
        os.read(gate, 1)  # returns when the parent closes its end: everyone starts at once
        granted = refused = 0
        with Ledger(book, budget) as ledger:
            for _ in range(tries):
                try:
                    ledger.charge(event)
                    granted += 1
                except BudgetExceeded:
                    refused += 1
        os.write(reporter, f"{granted} {refused}\n".encode())

    children = [_forked(run) for _ in range(processes)]
    os.close(opener)
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    os.close(reporter)
    with os.fdopen(report) as lines:
        outcomes = [[int(word) for word in line.split()] for line in lines]
    os.close(gate)
    with Ledger(book, budget) as ledger:
        in_book = dict(ledger.totals())[event] - spent
        left = ledger.affordable(event)
    return {
        "processes": processes,
        "room": room,
        "granted": sum(granted for granted, _ in outcomes),
        "refused": sum(refused for _, refused in outcomes),
        "in_book": in_book,
        "left": left,
        "failed": failed,
        "seconds": round(time.perf_counter() - started, 2),
    }


# ── creations ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def creations(folder: Path, processes: int, rounds: int) -> dict[str, Any]:
    """Let `processes` create one book at the same moment, each charge once and keep an answer, `rounds` times."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = wrong = 0
    started = time.perf_counter()
    for turn in range(rounds):
        book, (gate, opener) = folder / f"{turn}.sqlite", os.pipe()

        def run(book: Path = book, gate: int = gate, opener: int = opener) -> None:
            os.close(opener)
            os.read(gate, 1)
            with Ledger(book, BUDGET) as ledger:
                ledger.charge(MECHANISM.event())
                ledger.keep([str(os.getpid())], np.array([os.getpid()]))

        children = [_forked(run) for _ in range(processes)]
        os.close(gate)
        os.close(opener)
        failed += sum(os.waitpid(child, 0)[1] != 0 for child in children)
        with Ledger(book) as ledger:
            whole = ledger.length == 1 + 2 * processes and dict(ledger.totals()) == {MECHANISM.event(): processes}
            wrong += not (whole and len(ledger.recall([str(child) for child in children])) == processes)
    return {
        "processes": processes,
        "rounds": rounds,
        "failed": failed,
        "wrong": wrong,
        "seconds": round(time.perf_counter() - started, 2),
    }


def main() -> None:
    """Do what the command line says and print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("kills", "race", "create"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--door", choices=tuple(DOORS), default="curator")
    parser.add_argument("--until", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--room", type=int, default=1)
    parser.add_argument("--tries", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    if given.what == "kills":
        result = kills(given.folder, given.count, given.door, given.seed, given.until)
    elif given.what == "create":
        result = creations(given.folder, given.processes, given.rounds)
    else:
        result = race(given.folder, given.processes, given.room, given.tries)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
