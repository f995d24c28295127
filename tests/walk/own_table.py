"""A clinic's table: words as labels, a column of patients, gaps and unknown words; and the command line, called as installed."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tutelage import cli

HEADER = ["patient", "age", "sex", "marker", "diagnosis"]
Call = Callable[..., tuple[int, str, str]]


def write(path: Path, patients: range, *, label: bool = True, seed: int = 0) -> Path:
    """Write one to three visits of each patient: who is old and has a high marker is ill."""
    rng = np.random.default_rng([seed, patients.start])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(HEADER if label else HEADER[:-1])
        for patient in patients:
            for _ in range(1 + patient % 3):
                age, marker = int(rng.integers(20, 90)), float(rng.normal(5, 2))
                ill = "sick" if age / 10 + marker > 10.5 else "healthy"
                cells = [f"p{patient}", age, ("f", "m", "")[int(rng.integers(20)) % 3], f"{marker:.3f}", ill]
                rows.writerow(cells if label else cells[:-1])
    return path


def clinic(folder: Path, *, patients: int = 240) -> Path:
    """Write private.csv, public.csv and test.csv."""
    for name, people in (("private", range(patients)), ("public", range(1000, 1150)), ("test", range(2000, 2100))):
        write(folder / f"{name}.csv", people)
    return folder


def caller(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call main() as the installed command does: exit code, what was printed, and what went to stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tutelage", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    return call
