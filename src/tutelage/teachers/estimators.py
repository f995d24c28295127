"""Teachers that are scikit-learn classifiers: one per shard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private
from tutelage.estimators import estimator, flat
from tutelage.privacy.errors import DataError
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Shards
from tutelage.teachers.shelf import Shelf, fingerprint

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]


@final
class EstimatorTeachers:
    """Train one scikit-learn classifier per shard; a shard with a single class gives a constant teacher."""

    def __init__(self, kind: str = "forest", *, seed: int = 0, checkpoint: str | Path | None = None) -> None:
        estimator(kind)  # an unknown name is refused before any data is touched
        self.kind, self.seed, self.checkpoint = kind, seed, checkpoint
        self._models: list[Any] = []

    def fit(
        self, private: Private, shards: Shards, *, checkpoint: str | Path | None = None, progress: Progress | None = None
    ) -> EstimatorTeachers:
        """Train every teacher on its own shard and nothing else; `checkpoint`, here or before, is a folder under `private/`."""
        folder = checkpoint or self.checkpoint
        shelf = None if folder is None else Shelf(folder, fingerprint(self._settings(), private, shards))
        found = shelf.taken_up() if shelf else {}
        self._models = []
        for k in range(len(shards)):
            if k not in found:
                found[k] = self._taught(private[shards[k]])
                if shelf:
                    shelf.put(k, found[k])
            self._models.append(found[k])
            if progress is not None:
                progress(k + 1, len(shards))
        if shelf:
            shelf.write()
        return self

    def _taught(self, part: Private) -> Any:
        inputs, targets = flat(part.inputs), part.targets
        return int(targets[0]) if len(np.unique(targets)) == 1 else estimator(self.kind, seed=self.seed).fit(inputs, targets)

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
        rows = flat(inputs)
        votes = np.empty((len(self), len(rows)), dtype=np.int64)
        for number, model in enumerate(self._models):
            votes[number] = model.predict(rows) if hasattr(model, "predict") else model
            if progress is not None:
                progress(number + 1, len(self))
        return Sealed(votes)
