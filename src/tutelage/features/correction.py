"""What a guess is missing: a record's features times the difference between its label and what the guess says."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

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
        self.done, self._rounds = 0, rounds
        self._sum, self._counted = np.zeros((width, classes)), 0

    def follow(self, step: Array) -> None:
        """Take one step (width, classes)."""
        self.guess = self.guess + np.asarray(step, dtype=np.float64)
        if self.done >= self._rounds // 2:
            self._sum, self._counted = self._sum + self.guess, self._counted + 1
        self.done += 1

    @property
    def weights(self) -> Array:
        """Give the mean of the later guesses: noise averages out of it."""
        return self._sum / self._counted if self._counted else self.guess

    def state_dict(self) -> dict[str, Array]:
        """Give the guess, the sum of the later ones, and how many steps were taken and summed."""
        return {"guess": self.guess, "sum": self._sum, "counts": np.asarray([self.done, self._counted])}

    def load_state_dict(self, state: dict[str, Array]) -> None:
        """Go on from a state."""
        self.guess, self._sum = np.asarray(state["guess"]), np.asarray(state["sum"])
        self.done, self._counted = (int(count) for count in state["counts"])
