"""PATE for classification at full size: the published rows, and ours beside them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from tutelage.codecs.votes import Votes
from tutelage.data.presets import load
from tutelage.planning import Aggregation
from tutelage.privacy.ledger import Budget
from tutelage.students.questions import Prototypes
from tutelage.transfer import Outcome, transfer


@final
@dataclass(frozen=True)
class Study:
    """One row: what is learned, from how many teachers, at what budget; and what was published for it."""

    name: str
    data: str
    split: str
    published: str
    epsilon: float
    delta: float
    shards: int
    queries: int
    teacher: str = "convnet"
    student: str = "consistency"
    prototypes: bool = True
    method: str = "gnmax"
    steps: int = 1500
    student_steps: int = 4000


STUDIES = (
    Study("mnist", "mnist", "votes", "98.5 % at raw 1.97 (2018)", 1.0, 1e-5, 250, 80),
    Study("mnist-half", "mnist", "half", "98.5 % at raw 1.97 (2018)", 1.0, 1e-5, 250, 80),
)


def carry_out(
    study: Study,
    directory: Path,
    *,
    seed: int = 0,
    device: str = "auto",
    out: Path | None = None,
    controls: bool = True,
    progress: Any = None,
) -> tuple[Outcome, dict[str, Any]]:
    """Run one row once and give its figures; the raw, data-dependent ε among them is for benchmark data alone."""
    started = time.perf_counter()
    data = load(study.data, directory, split=study.split, download=False)
    with tempfile.TemporaryDirectory() as scratch:
        outcome = transfer(
            data.private,
            data.public,
            test=data.test,
            teachers=_teachers(study, data, seed, device),
            student=_student(study, data, seed, device),
            codec=Votes(data.classes),
            budget=Budget(study.epsilon, study.delta),
            shards=study.shards,
            queries=study.queries,
            aggregation=Aggregation(study.method),
            questions=Prototypes(seed=seed) if study.prototypes else None,
            out=out or Path(scratch) / "run",
            controls=controls,
            seed=seed,
            benchmark=True,
            progress=progress,
        )
        raw = float(np.load(outcome.folder.private / "data_dependent_epsilon.npy"))
        figures = {
            "seed": seed,
            **outcome.scores,
            **outcome.folder.read_controls(),
            "epsilon": outcome.guarantee["epsilon"],
            "raw_epsilon": raw,
            "sanitised_epsilon": outcome.guarantee["sanitised_epsilon"],
            "seconds": time.perf_counter() - started,
        }
    return outcome, figures


def _teachers(study: Study, data: Any, seed: int, device: str) -> Any:
    from tutelage.nets.networks import ConvNet
    from tutelage.teachers.classifier import Classifier
    from tutelage.teachers.training import Training

    shape = data.private.inputs.shape[1:]
    return Classifier(ConvNet(shape=shape, classes=data.classes), training=Training(steps=study.steps), seed=seed, device=device)


def _student(study: Study, data: Any, seed: int, device: str) -> Callable[[], Any]:
    from tutelage.students.consistency import Consistency, ConsistencyStudent

    settings = Consistency(steps=study.student_steps)
    return lambda: ConsistencyStudent(settings=settings, classes=data.classes, seed=seed, device=device)


def small(study: Study) -> Study:
    """Shrink a row to minutes on two cores: fewer and quicker teachers, a shorter student."""
    return replace(study, name=f"{study.name}-small", shards=50, steps=300, student_steps=400)
