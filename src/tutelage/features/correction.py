"""What a guess is missing: a record's features times the difference between its label and what the guess says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]


def shares(seen: Array, weights: Array) -> Array:
    """Give every class's share (records, classes) under weights (width, classes)."""
    return np.asarray(softmax(seen @ weights, axis=1))


def correction(seen: Array, targets: Array, weights: Array) -> Array:
    """Give how far each label lies from the guess (records, classes). Its outer product with `seen` is a step towards it."""
    wanted = targets[:, None] == np.arange(weights.shape[1])
    return np.asarray(wanted - shares(seen, weights))


@final
class Descent:
    """Follow steps. The guess is a function of what was followed and of nothing else; its later half is averaged."""

    def __init__(self, width: int, classes: int, rounds: int) -> None:
        self.guess: Array = np.zeros((width, classes))
        self._rounds, self._done = rounds, 0
        self._sum, self._counted = np.zeros((width, classes)), 0

    def follow(self, step: Array) -> None:
        """Take one step (width, classes)."""
        self.guess = self.guess + np.asarray(step, dtype=np.float64)
        if self._done >= self._rounds // 2:
            self._sum, self._counted = self._sum + self.guess, self._counted + 1
        self._done += 1

    def state(self) -> dict[str, Array]:
        """Give what is needed to go on."""
        return {
            "guess": self.guess,
            "sum": self._sum,
            "counts": np.asarray([self._rounds, self._done, self._counted]),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from what was kept of a descent of as many rounds."""
        rounds, done, counted = (int(number) for number in state["counts"])
        if rounds != self._rounds or np.shape(state["guess"]) != self.guess.shape:
            raise DataError("`state` must be of a descent of the same size and rounds. Got another instead.")
        self.guess, self._sum = np.asarray(state["guess"], dtype=np.float64), np.asarray(state["sum"], dtype=np.float64)
        self._done, self._counted = done, counted

    @property
    def weights(self) -> Array:
        """Give the mean of the later guesses: noise averages out of it."""
        return self._sum / self._counted if self._counted else self.guess
