"""Carry out a distillation that the command line asks for: a data set by its name, or an .npz file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tutelage.data import presets
from tutelage.data.dataset import Private, Public
from tutelage.data.digits import digits
from tutelage.distillation.embedding import Embedding
from tutelage.distillation.matching import ReleasedMatching
from tutelage.features.scattering import Scattering
from tutelage.privacy.budget import Budget
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.runs import RunFolder
from tutelage.students.linear_rounds import LinearRounds
from tutelage.tasks.distilled.sets import Distillation, Distilled, distill

Progress = Callable[[str, int, int], None]
TUNED_ON = "Fashion-MNIST and embedded digits (settings of all other data sets)"


def carry_out(
    private: str,
    out: Path,
    *,
    epsilon: float,
    delta: float,
    ipc: int,
    classes: int | None = None,
    high: float = 1.0,
    test: Path | None = None,
    formation: int | None = None,
    networks: int = 16,
    width: int = 16,
    steps: int = 400,
    mirror: bool = False,
    labels: bool = True,
    init: str = "noise",
    resume: bool = False,
    data: Path = Path("data"),
    ledger: Path | None = None,
    device: str = "auto",
    pages: Callable[[RunFolder], object] | None = None,
    progress: Progress | None = None,
) -> Distilled:
    """Read the data, distil, and write a page."""
    records, judged, count = read(private, classes=classes, test=test, data=data)
    how = Distillation(
        ipc=ipc,
        formation=formation,
        embedding=Embedding(networks=networks, width=width, mirror=mirror),
        matching=ReleasedMatching(steps=steps),
        labeller=LinearRounds(features=Scattering(mirror=mirror)),
    )
    how = how if labels else replace(how, sums=1.0, labels=0.0, soft=0.0)
    return distill(
        records, classes=count, budget=Budget(epsilon, delta), out=out, values=(0.0, high), how=how, init=init, test=judged,
        ledger=ledger, resume=resume, tuned_on=TUNED_ON, device=device, progress=progress,
        pages=pages,
    )  # fmt: skip


def read(name: str, *, classes: int | None, test: Path | None, data: Path) -> tuple[Private, Public | None, int]:
    """Read private records, public ones for scores, and how many classes there are."""
    if name.endswith(".npz"):
        if classes is None:
            raise RecipeError("`classes` must be declared for an .npz file: it is never read off the data. Got none instead.")
        found = _arrays(Path(name))
        judged = None if test is None else Public.of(*_arrays(test), source="test")
        return Private.of(*found, source="an .npz file"), judged, classes
    if classes is not None or test is not None:
        raise RecipeError("`classes` and `test` must come with an .npz file. Got them with the name of a data set instead.")
    if name == "digits":
        private, pool, rest = digits()
        return private, _joined(pool, rest), 10
    study = presets.load(name, data)
    return study.private, _joined(study.public, study.test), study.classes


def _joined(one: Public, other: Public) -> Public:
    """Put a pool that no student needs here beside the test set."""
    inputs, targets = (np.concatenate([getattr(one, name), getattr(other, name)]) for name in ("inputs", "targets"))
    return Public.of(inputs, targets, source=other.source)


def _arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return file["inputs"], file["labels"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"`{path.name}` must be an .npz file of plain arrays `inputs` and `labels`. Got {type(error).__name__} instead."
        ) from None
