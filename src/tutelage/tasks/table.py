"""The tasks there are. Readers and runs find everything about a task here, by the name that guarantee.json holds.

A folder of a task has three files: `reading.py` (READING: how a run is read, without torch), `task.py` (`opened`: the Task of a
plan) and `controls.py` (`Controls`: what needs private data). A new task is such a folder and a line in TABLE.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tutelage.privacy.errors import RecipeError
from tutelage.tasks.reading import Reading

if TYPE_CHECKING:
    from tutelage.runs import RunFolder
    from tutelage.tasks.task import Controls, Plan, Task

TABLE = {
    "labels": "tutelage.tasks.labels",
    "masks": "tutelage.tasks.masks",
    "corrections": "tutelage.tasks.states",  # the states of a linear model
    "states": "tutelage.tasks.states",
    "images": "tutelage.tasks.statistics",  # its walk is a verb of its own, tutelage.generate
    "distilled": "tutelage.tasks.distilled",  # likewise, tutelage.distill
}


def reading(name: str) -> Reading:
    """Give how runs of a task are read."""
    return _read(_folder(name))


def readings() -> list[Reading]:
    """Give how runs are read, once for every task."""
    return [_read(folder) for folder in dict.fromkeys(TABLE.values())]


def opened(name: str, plan: Plan) -> Task:
    """Open a task with what is planned. It refuses a plan that it cannot carry out."""
    task: Task = import_module(f"{_folder(name)}.task").opened(plan)
    return task


def controls(name: str) -> Controls:
    """Give the task's controls, which need private data."""
    made: Controls = import_module(f"{_folder(name)}.controls").Controls()
    return made


def named(student: Any, codec: Any, targets: tuple[int, ...] | None) -> str:
    """Name the task: as student or codec say it by `task`; otherwise by the shape of one target, or of the codec's masks."""
    for part in (student, codec):
        if isinstance(name := getattr(part, "task", None), str):
            return name
    if hasattr(student, "query") and hasattr(student, "update"):
        return "states"
    return "masks" if (space(codec) if targets is None else targets) else "labels"


def space(codec: Any) -> tuple[int, ...] | None:
    """Give the shape of the masks that a codec, or one inside it, is made for; none where it is made for labels."""
    shape = getattr(codec, "shape", None)
    if isinstance(shape, tuple) and type(codec).__module__.startswith("tutelage.codecs."):  # another's may be of anything
        return shape
    inside = (space(inner) for name in ("filter", "codec") if (inner := getattr(codec, name, None)) is not None)
    return next((found for found in inside if found is not None), None)


def released_files() -> frozenset[str]:
    """Name the files that only some tasks release."""
    return frozenset(name for one in readings() for name in (one.answers, *one.files))


def sealed_scores() -> frozenset[str]:
    """Name the figures of all tasks that are computed from private data."""
    return frozenset(str(score) for one in readings() for scores in one.sealed.values() for score in scores)


def read_controls(folder: RunFolder) -> dict[str, float]:
    """Read the figures that were computed from private data: for eyes inside the building."""
    found: dict[str, float] = {}
    for one in readings():
        for name, scores in one.sealed.items():
            if os.access(path := folder.sealed(name), os.R_OK):
                values = np.load(path, allow_pickle=False).tolist()
                found |= dict(zip(map(str, scores), values, strict=True))
    return found


def _folder(name: str) -> str:
    if name not in TABLE:
        raise RecipeError(f"`task` must be one of {', '.join(map(repr, TABLE))}. Got {name!r} instead.")
    return TABLE[name]


@cache
def _read(folder: str) -> Reading:
    found: Reading = import_module(f"{folder}.reading").READING
    return found
