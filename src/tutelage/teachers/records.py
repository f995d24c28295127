"""As many teachers as units: each holds its own records, and answers a public guess with what it gets wrong about them."""

from __future__ import annotations

import hashlib
import json
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
from tutelage.teachers.cleaning import classes, numbers, numeric

Array = npt.NDArray[Any]
_ROWS = 2000  # teachers whose first records are read at once


@final
class RecordTeachers:
    """Answer a guess (width, classes) of a linear model with the mean correction that a shard's records ask for.

    Nothing is trained: a teacher is its records, seen with public features. More units behind one teacher would only be
    louder noise, so that there should be as many shards as units. The correction of an empty shard is 0.

    What a sum of floats is rounded to depends on the row that it stands in. So every teacher's first record, or a blank one,
    stands in the row of its number, and what else it has is computed on its own: no other teacher's records move it.
    """

    def __init__(self, sight: Sight) -> None:
        self.sight = sight
        self._first: Array | None = None

    @property
    def key(self) -> str:
        """Describe the public features by a hash of them; there are no other settings."""
        digest = hashlib.sha256()
        for name, array in sorted(self.sight.arrays().items()):
            digest.update(f"{name}{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return json.dumps({"teachers": type(self).__name__, "sight": digest.hexdigest()})

    def fit(self, private: Private, shards: Shards, *, progress: Callable[[int, int], None] | None = None) -> RecordTeachers:
        """See every record once, in the order of the shards."""
        inputs, targets, count = np.asarray(private.inputs), numeric(private.targets), len(shards)
        self._sizes = np.asarray([len(part) for part in shards.indices])
        self._labels = np.asarray([targets[part[0]] if len(part) else 0 for part in shards.indices])
        self._more: dict[int, tuple[Array, Array]] = {}  # what else a teacher has: features and labels
        self._first = np.empty((count, self.sight.width))
        for start in range(0, count, _ROWS):
            some = range(start, min(start + _ROWS, count))
            firsts = np.zeros((len(some), *inputs.shape[1:]), dtype=inputs.dtype)
            for row, teacher in zip(firsts, some, strict=True):
                part = shards[teacher]
                row[...] = inputs[part[0]] if len(part) else 0
                if len(part) > 1:
                    self._more[teacher] = self._seen(inputs[part[1:]]), targets[part[1:]]
            self._first[start : start + len(some)] = self._seen(firsts)
            if progress is not None:
                progress(some.stop, count)
        return self

    def _seen(self, inputs: Array) -> Array:
        """See records; one that the features make no number of is seen as nothing."""
        with np.errstate(all="ignore"):
            return numbers(self.sight(numbers(inputs)))

    def __len__(self) -> int:
        return len(self._sizes)

    def vote(self, inputs: Array, *, progress: Callable[[int, int], None] | None = None) -> Sealed:
        """Give every teacher's correction of every guess, sealed: (teachers, guesses, width, classes)."""
        if self._first is None:
            raise DataError("`teachers` must be fitted before they vote. Got none instead.")
        given = np.empty((len(self), *inputs.shape))
        for number, guess in enumerate(inputs):
            missing = correction(self._first, classes(self._labels, guess.shape[1]), guess)
            np.matmul(self._first[:, :, None], missing[:, None, :], out=given[:, number])
            for teacher, (seen, labels) in self._more.items():
                rest = seen.T @ correction(seen, classes(labels, guess.shape[1]), guess)
                given[teacher, number] = (given[teacher, number] + rest) / self._sizes[teacher]
            given[self._sizes == 0, number] = 0.0
            if progress is not None:
                progress(number + 1, len(inputs))
        return Sealed(given)
