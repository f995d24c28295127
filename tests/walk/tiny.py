"""A whole run in a fraction of a second: three clouds of points, ten teachers, thirty questions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import tutelage as tt
from tutelage import manifest
from tutelage.privacy.curator import Curator

TEACHERS, QUESTIONS, CLASSES = 10, 30, 3


def clouds(records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw points around the corners of a triangle, and which corner each belongs to."""
    generator = np.random.default_rng(seed)
    labels = np.arange(records) % CLASSES
    corners = np.asarray([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    return corners[labels] + generator.normal(size=(records, 2)), labels


def tiny_run(out: Path, *, private_unit: Any = "record", **choices: Any) -> tt.Outcome:
    """Take the walk with `choices` passed to `transfer`."""
    inputs, targets = clouds(120, 0)
    pool, truth = clouds(60, 1)
    rest, answers = clouds(60, 2)
    settings: dict[str, Any] = {
        "teachers": MeanTeachers(),
        "student": lambda: tt.SupervisedStudent("kernel"),
        "codec": tt.Votes(CLASSES),
        "budget": tt.Budget(8.0, 1e-5),
        "shards": TEACHERS,
        "queries": QUESTIONS,
        "test": tt.Public.of(rest, answers),
        "purpose": "tiny",
        **choices,
    }
    return tt.transfer(tt.Private.of(inputs, targets, unit=private_unit), tt.Public.of(pool, truth), out=out, **settings)


def promised(outcome: tt.Outcome) -> dict[str, Any]:
    """Give a guarantee without the head of its ledger, which grows with every start."""
    return {name: value for name, value in outcome.guarantee.items() if name != "ledger_head"}


def forged(release: Path, to: Path, **fields: Any) -> Path:
    """Copy a release with other fields in its guarantee (`...` leaves one out), and a manifest that fits: a forger's work."""
    shutil.copytree(release, to)
    path = to / "guarantee.json"
    told = {**json.loads(path.read_text(encoding="utf-8")), **fields}
    path.write_text(json.dumps({k: v for k, v in told.items() if v is not ...}, indent=2), encoding="utf-8")
    manifest.write(to)
    return to


class MeanTeachers:
    """Teachers that remember the mean of every class and vote for the nearest."""

    def fit(self, private: tt.Private, shards: tt.Shards, *, progress: Any = None) -> MeanTeachers:
        parts = [private[shards[k]] for k in range(len(shards))]
        means = [[part.inputs[part.targets == c].mean(axis=0) for c in range(CLASSES)] for part in parts]
        self.means = np.asarray(means)  # (teachers, classes, 2)
        return self

    def vote(self, inputs: np.ndarray) -> tt.Sealed:
        away = inputs[None, :, None] - self.means[:, None]  # (teachers, inputs, classes, 2)
        return tt.Sealed((away**2).sum(axis=-1).argmin(axis=-1))


class Killed(BaseException):
    """Stands for a kill at the worst moment: after the charge, before the answer is kept."""


def kill_after(monkeypatch: Any, answers: int) -> None:
    """Let the curator give so many blocks of answers, then die between paying and releasing."""
    real, calls = Curator._release, []

    def mortal(self: Curator, *arguments: Any) -> Any:
        released = real(self, *arguments)
        calls.append(1)
        if len(calls) > answers:
            raise Killed
        return released

    monkeypatch.setattr(Curator, "_release", mortal)
