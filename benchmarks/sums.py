"""Time the door's sums: a grouped release, a Gram release, and rounds of one drawn teacher. Seconds and peak memory.

Rows are drawn, not computed: what is measured is clipping, exact summation, noise and the ledger, beside no features at all.

    python benchmarks/sums.py [--places 60000] [--grouped 500000] [--gram 5184] [--rounds 20000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import result
from tutelage.codecs.directions import Directions
from tutelage.privacy.budget import Budget
from tutelage.privacy.curator import Curator
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import NoisyMean, NoisySum
from tutelage.privacy.queries import Form, Query
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.sums import Block

CLASSES = 10


def rows(places: int, width: int, height: int, *, grouped: bool) -> Iterator[Block]:
    """Give one row of length 1 per place, some places at a time."""
    rng = np.random.default_rng(0)
    some = np.abs(rng.normal(size=(height, width))).astype(np.float32)
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    for start in range(0, places, height):
        count = min(height, places - start)
        groups = Sealed(rng.integers(0, CLASSES, count)) if grouped else None
        yield Block(Sealed(np.arange(start, start + count)), Sealed(some[:count]), groups)


def grouped(places: int, width: int) -> None:
    """Release class sums."""
    mechanism = NoisySum(Form.GROUPED, width, 1.0, 5.0, places, groups=CLASSES, nonnegative=True)
    mechanism.contribute(rows(places, width, max(1, 2**25 // width), grouped=True))


def gram(places: int, width: int) -> None:
    """Release second moments."""
    NoisySum(Form.GRAM, width, 1.0, 5.0, places).contribute(rows(places, width, max(1, 2**24 // width), grouped=False))


class Idle:
    """Teachers that answer at once."""

    key = "idle"

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def contributions(self, query: Query, *, member: Sealed | None = None) -> Iterator[Sealed]:
        """Give the one that was drawn."""
        assert member is not None
        yield member.map(lambda one: np.full((1, 1, *self.shape), 1e-3 * one))


def rounds(count: int, width: int) -> None:
    """Ask in rounds of one teacher of 1,000, for 64 gradients of 784 numbers each."""
    codec = Directions((width,), 1.0, 64)
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "book.sqlite", Budget(10.0, 1e-5)) as ledger:
        ledger.begin("run", plan="plan")
        curator = Curator(Idle((64, width)), codec, NoisyMean(codec.bound, 120.0, 1), ledger)
        state = Query.state(images=np.zeros((64, width), np.float32))
        begun = time.perf_counter()
        talk = curator.reserve(count, state, population=1000)
        print(f"reserved in {time.perf_counter() - begun:.1f} s", flush=True)
        for _ in range(count):
            talk.ask(state)


def measured(work: Callable[..., None], *given: int) -> dict[str, Any]:
    """Run in a process of its own, and give seconds and its peak memory."""
    queue: Any = multiprocessing.get_context("spawn").Queue()
    process = multiprocessing.get_context("spawn").Process(target=_within, args=(queue, work.__name__, given))
    process.start()
    found = queue.get()
    process.join()
    return {"sizes": list(given), **found}


def _within(queue: Any, name: str, given: tuple[int, ...]) -> None:
    begun = time.perf_counter()
    {"grouped": grouped, "gram": gram, "rounds": rounds}[name](*given)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform != "darwin" else 2**30)
    queue.put({"seconds": round(seconds, 2), "peak_gib": round(peak, 2)})


def main() -> None:
    """Measure all three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=60_000)
    parser.add_argument("--grouped", type=int, default=500_000)
    parser.add_argument("--gram", type=int, default=5_184)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--width", type=int, default=784)
    asked = parser.parse_args()
    figures = {}
    for name, work, given in (
        ("gram", gram, (asked.places, asked.gram)),
        ("grouped", grouped, (asked.places, asked.grouped)),
        ("rounds", rounds, (asked.rounds, asked.width)),
    ):
        figures[name] = measured(work, *given)
        print(name, figures[name], flush=True)
    figures["rounds"]["milliseconds_a_round"] = round(1000 * figures["rounds"]["seconds"] / asked.rounds, 3)
    result.write("sums", figures)


if __name__ == "__main__":
    main()
