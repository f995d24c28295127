"""Measure the book: durable charges a second, opening a long one, 500 kills of a labelling run, processes that race or create it.

The kills and races are those of the test suite (tests/privacy/crashes.py), on real files with real syncs.

    python benchmarks/ledger.py [--kills 500] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import result
from tutelage.privacy.events import Gaussian
from tutelage.privacy.ledger import Budget, Ledger

CRASHES = Path(__file__).parents[1] / "tests" / "privacy" / "crashes.py"
EVENT = Gaussian(1.0, 400.0)


def crashes(*arguments: str) -> dict[str, Any]:
    """Run the kills or the race in a quiet process of its own."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(CRASHES), *arguments], capture_output=True, text=True, env=environment, check=True)
    return dict(json.loads(done.stdout))


def speeds(folder: Path) -> dict[str, float]:
    """Charge and keep one at a time, each synced to disk; then open what came of it, every row verified."""
    with Ledger(folder / "speed.sqlite", Budget(500.0, 1e-5)) as ledger:
        start = time.perf_counter()
        for _ in range(1_000):
            ledger.charge(EVENT)
        charges = 1_000 / (time.perf_counter() - start)
        start = time.perf_counter()
        for index in range(1_000):
            ledger.keep([f"question {index}"], np.array([index]))
        keeps = 1_000 / (time.perf_counter() - start)
        rows = ledger.length
    start = time.perf_counter()
    Ledger(folder / "speed.sqlite").close()
    opening = time.perf_counter() - start
    return {
        "durable_charges_per_second": round(charges),
        "durable_answers_per_second": round(keeps),
        "rows": rows,
        "seconds_to_open_and_verify": round(opening, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        figures: dict[str, Any] = {"speed": speeds(folder)}
        figures["race_for_the_last_question"] = crashes("race", "--folder", str(folder / "last"), "--processes", "16")
        figures["race_for_a_hundred"] = crashes(
            "race", "--folder", str(folder / "hundred"), "--processes", "16", "--room", "100", "--tries", "10"
        )
        figures["eight_create_one"] = crashes("create", "--folder", str(folder / "create"), "--processes", "8", "--rounds", "200")
        figures["kills"] = crashes("kills", "--folder", str(folder / "kills"), "--count", str(given.kills))
        for door, fault in (
            ("late-charge", "teachers voted on an uncharged question"),
            ("late-keep", "released, and not in the book"),
        ):
            where = str(folder / door)
            figures[f"broken twin, {door}"] = crashes(
                "kills", "--folder", where, "--count", "500", "--door", door, "--until", fault
            )
    for name, row in figures.items():
        print(name, json.dumps(row), sep=": ")
    result.write("ledger", figures)


if __name__ == "__main__":
    main()
