"""Teachers that are scikit-learn classifiers: one per shard."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private
from tutelage.estimators import estimator, flat
from tutelage.privacy.errors import DataError
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Shards
from tutelage.teachers.cleaning import classes, numbers, numeric
from tutelage.teachers.shelf import Shelf, fingerprint

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]


@final
class EstimatorTeachers:
    """Train one scikit-learn classifier per shard.

    An empty shard, a shard with a single class and a model that fails, when it is trained or when it predicts, give a constant
    teacher. Which ones failed is written into the checkpoint folder and nowhere else: a failure that stopped the run, or
    printed something, would be an output that nobody paid for.
    """

    def __init__(self, kind: str = "forest", *, seed: int = 0, checkpoint: str | Path | None = None) -> None:
        estimator(kind)  # an unknown name is refused before any data is touched
        self.kind, self.seed, self.checkpoint = kind, seed, checkpoint
        self._models: list[Any] = []
        self._failed: dict[int, str] = {}
        self._shelf: Shelf | None = None
        self._width = 0

    @property
    def key(self) -> str:
        """Describe class and settings, never data."""
        return json.dumps({"teachers": type(self).__name__, **self._settings()}, sort_keys=True)

    def fit(
        self, private: Private, shards: Shards, *, checkpoint: str | Path | None = None, progress: Progress | None = None
    ) -> EstimatorTeachers:
        """Train every teacher on its own shard and nothing else; `checkpoint`, here or before, is a folder under `private/`."""
        inputs, targets = np.asarray(private.inputs), numeric(private.targets)
        folder = checkpoint or self.checkpoint
        self._shelf = None
        if folder is not None:
            settings = {**self._settings(), "teachers": len(shards)}
            self._shelf = Shelf(folder, json.dumps(settings, sort_keys=True), fingerprint(settings, private, shards))
        found = self._shelf.taken_up() if self._shelf else {}
        self._models, self._failed, self._width = [], self._shelf.failed() if self._shelf else {}, _width(inputs)
        for k in range(len(shards)):
            if k not in found:
                found[k] = self._taught(k, inputs[shards[k]], targets[shards[k]])
                if self._shelf:
                    self._shelf.put(k, found[k])
            self._models.append(found[k])
            if progress is not None:
                progress(k + 1, len(shards))
        if self._shelf:
            self._shelf.write()
        return self

    def _taught(self, teacher: int, inputs: Array, targets: Array) -> Any:
        """Train one teacher, or give the class that a constant one votes for."""
        labels = classes(targets)
        if len(np.unique(labels)) < 2:
            return int(labels[0]) if len(labels) else 0
        try:
            with _silent():
                return estimator(self.kind, seed=self.seed).fit(_rows(inputs), labels)
        except MemoryError:  # of this machine, not of a record
            raise
        except Exception as error:
            self._fails(teacher, error)
            return 0

    def _fails(self, teacher: int, error: Exception) -> None:
        self._failed[teacher] = type(error).__name__  # a message may quote a record
        if self._shelf:
            self._shelf.note(self._failed)

    def _settings(self) -> dict[str, Any]:
        import sklearn

        model = estimator(self.kind, seed=self.seed)
        return {"kind": self.kind, "model": repr(getattr(model, "model", model)), "seed": self.seed, "with": sklearn.__version__}

    def __len__(self) -> int:
        return len(self._models)

    def vote(self, inputs: Array, *, progress: Progress | None = None) -> Sealed:
        """Give every teacher's label for every input, sealed: (teachers, queries)."""
        if not self._models:
            raise DataError("`teachers` must be fitted before they vote. Got none instead.")
        if _width(inputs) != self._width:  # public, and would make every teacher fail
            raise DataError(f"`inputs` must have {self._width} numbers each, as in training. Got {_width(inputs)} instead.")
        rows = _rows(inputs)
        votes = np.zeros((len(self), len(rows)), dtype=np.int64)
        for number, model in enumerate(self._models):
            votes[number] = self._asked(number, model, rows)
            if progress is not None:
                progress(number + 1, len(self))
        return Sealed(votes)

    def _asked(self, teacher: int, model: Any, rows: Array) -> Any:
        """Give one teacher's labels; 0 where it fails or says what is no class."""
        if not hasattr(model, "predict"):
            return model
        try:
            with _silent():
                return np.broadcast_to(classes(model.predict(rows)), len(rows))
        except MemoryError:
            raise
        except Exception as error:
            self._fails(teacher, error)
            return 0


def _rows(inputs: Array) -> Array:
    """Give records as rows of 64 bits. Models compute in the precision that they are given.

    One record of 64 bits widens the array of all, and would move every teacher by rounding.
    """
    return numbers(flat(inputs).astype(np.float64))


def _width(inputs: Any) -> int:
    return math.prod(np.shape(inputs)[1:])


@contextmanager
def _silent() -> Iterator[None]:
    """Keep warnings back: whether there is one depends on private records."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
