"""Teachers that are scikit-learn classifiers: one per shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private
from tutelage.estimators import estimator, flat
from tutelage.privacy.errors import DataError
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Shards

Array = npt.NDArray[Any]


@final
class EstimatorTeachers:
    """Train one scikit-learn classifier per shard; a shard with a single class gives a constant teacher."""

    def __init__(self, kind: str = "forest", *, seed: int = 0) -> None:
        estimator(kind)  # an unknown name is refused before any data is touched
        self.kind, self.seed = kind, seed
        self._models: list[Any] = []

    def fit(self, private: Private, shards: Shards, *, progress: Callable[[int, int], None] | None = None) -> EstimatorTeachers:
        """Train every teacher on its own shard and nothing else."""
        self._models = []
        for k in range(len(shards)):
            part = private[shards[k]]
            inputs, targets = flat(part.inputs), part.targets
            model = targets[0] if len(np.unique(targets)) == 1 else estimator(self.kind, seed=self.seed).fit(inputs, targets)
            self._models.append(model)
            if progress is not None:
                progress(k + 1, len(shards))
        return self

    def __len__(self) -> int:
        return len(self._models)

    def vote(self, inputs: Array) -> Sealed:
        """Give every teacher's label for every input, sealed: (teachers, queries)."""
        if not self._models:
            raise DataError("`teachers` must be fitted before they vote. Got none instead.")
        rows = flat(inputs)
        votes = [m.predict(rows) if hasattr(m, "predict") else np.full(len(rows), m) for m in self._models]
        return Sealed(np.stack(votes).astype(np.int64))
