"""As many teachers as units: each knows its own record, and says what a public guess gets wrong about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private
from tutelage.features.correction import correction
from tutelage.features.sight import Sight
from tutelage.privacy.errors import DataError
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Shards

Array = npt.NDArray[Any]
_ROWS = 2000  # looked at at once


@final
class RecordTeachers:
    """Answer a guess (width, classes) of a linear model with the mean correction that a shard's records ask for.

    Nothing is trained: a teacher is its records, seen with public features. More units behind one teacher would only be
    louder noise, so that there should be as many shards as units.
    """

    def __init__(self, sight: Sight) -> None:
        self.sight = sight
        self._seen: Array | None = None

    def fit(self, private: Private, shards: Shards, *, progress: Callable[[int, int], None] | None = None) -> RecordTeachers:
        """Look at every record once, in the order of the shards."""
        order = np.concatenate(shards.indices)
        sizes = np.asarray([len(part) for part in shards.indices])
        self._begins, self._sizes = np.cumsum(sizes) - sizes, sizes
        self._targets = np.asarray(private.targets)[order]
        seen, step = np.empty((len(order), self.sight.width)), _ROWS
        for start in range(0, len(order), step):
            seen[start : start + step] = self.sight(private.inputs[order[start : start + step]])
            if progress is not None:
                done = int((self._begins < start + step).sum())
                progress(done, len(sizes))
        self._seen = seen
        return self

    def __len__(self) -> int:
        return len(self._sizes)

    def vote(self, inputs: Array, *, progress: Callable[[int, int], None] | None = None) -> Sealed:
        """Give every teacher's correction of every guess, sealed: (teachers, guesses, width, classes)."""
        if self._seen is None:
            raise DataError("`teachers` must be fitted before they vote. Got none instead.")
        given = np.empty((len(self), *inputs.shape))
        for number, guess in enumerate(inputs):
            missing = correction(self._seen, self._targets, guess)
            if (self._sizes == 1).all():
                np.matmul(self._seen[:, :, None], missing[:, None, :], out=given[:, number])
            else:
                for teacher, (begin, size) in enumerate(zip(self._begins, self._sizes, strict=True)):
                    own = slice(begin, begin + size)
                    given[teacher, number] = self._seen[own].T @ missing[own] / size
            if progress is not None:
                progress(number + 1, len(inputs))
        return Sealed(given)
