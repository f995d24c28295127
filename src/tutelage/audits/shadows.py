"""Shadow runs: the whole run again and again, each with another half of the canaries. Finished ones are kept."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.audits.canaries import Canaries, halves
from tutelage.audits.pipeline import Pipeline
from tutelage.data.dataset import Private
from tutelage.privacy.errors import Unsealed
from tutelage.telling import Progress, silent

Array = npt.NDArray[Any]
Say = Callable[[str], object]


@final
@dataclass(frozen=True, eq=False)
class Signals:
    """What all shadow models say: of the canaries (models, canaries, ...), and of other public records (models, records, ...)."""

    inside: Array  # (models, canaries)
    canaries: Array
    population: Array | None
    seconds: float  # of one run


@final
class Shadows:
    """Plan shadow runs, and carry them out. `folder` lies under private/: what is kept there is a function of private records."""

    def __init__(
        self, pipeline: Pipeline, rest: Private, canaries: Canaries, count: int, *, folder: Path | None = None, seed: int = 0
    ) -> None:
        if folder is not None and "private" not in folder.resolve().parts:
            raise Unsealed("`folder` must lie in a folder named 'private'. Got one outside instead.")
        self.pipeline, self.rest, self.canaries = pipeline, rest, canaries
        self.inside = halves(count, len(canaries), seed=seed)
        self._folder = None if folder is None or not pipeline.key else folder / self._name(seed)

    def _name(self, seed: int) -> str:
        """Name the place by everything that shapes a shadow run."""
        state = hashlib.sha256(self.pipeline.fingerprint.encode())
        for array in (self.canaries.inputs, self.canaries.targets, self.canaries.units.astype("S")):
            state.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        state.update(json.dumps([self.inside.shape, seed]).encode())
        return state.hexdigest()[:32]

    def run(self, *, progress: Progress = silent, say: Say | None = None) -> Signals:
        """Carry out what is not there yet. After the first run it is known, and printed, how long the others take."""
        found = [self._read(number) for number in range(len(self.inside))]
        todo = [number for number, one in enumerate(found) if one is None]
        total, seconds = len(found), 0.0
        progress("shadow runs", total - len(todo), total)
        for place, number in enumerate(todo):
            began = time.perf_counter()
            found[number] = self._shadow(number)
            seconds = time.perf_counter() - began
            if not place and say and len(todo) > 1:
                say(f"one shadow run took {seconds:.1f} s: {len(todo) - 1} more take about {_long(seconds * (len(todo) - 1))}")
            progress("shadow runs", total - len(todo) + place + 1, total)
        done = [one for one in found if one is not None]
        others = [one["population"] for one in done if "population" in one]
        population = np.stack(others) if len(others) == total else None
        return Signals(self.inside, np.stack([one["canaries"] for one in done]), population, seconds)

    def _shadow(self, number: int) -> dict[str, Array]:
        """Train one shadow model, and keep what it says."""
        line, first = self.pipeline, self.canaries.first
        model = line.train(self.rest.including(self.canaries, self.inside[number]))
        outputs = {"canaries": line.observed(model, self.canaries.inputs[first], self.canaries.targets[first])}
        if (compared := line.compared()) is not None:
            outputs["population"] = line.observed(model, *compared)
        if self._folder is not None:
            for place in (self._folder.parent.parent, self._folder.parent, self._folder):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = self._folder / f".{number:05d}.{os.getpid()}.npz"
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                np.savez_compressed(file, **outputs)
            beside.replace(self._folder / f"{number:05d}.npz")
        return outputs

    def _read(self, number: int) -> dict[str, Array] | None:
        """Take a finished shadow run up; one that cannot be read is run again."""
        if self._folder is None or not (path := self._folder / f"{number:05d}.npz").is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                return dict(file)
        except (OSError, ValueError, EOFError):
            return None


def _long(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
