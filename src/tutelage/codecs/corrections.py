"""Corrections of a linear guess as ballots: vectors of bounded length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Corrections:
    """Lay corrections (width, classes) out as one vector. Data-independent; how long one may be is a public choice."""

    task: ClassVar[str] = "corrections"
    width: int
    classes: int
    clip: float = 0.25  # the longest correction that one teacher may ask for
    rate: float = 4.0  # how far the mean correction is followed

    def __post_init__(self) -> None:
        if not (isinstance(self.classes, int) and self.classes >= 2):
            raise RecipeError(f"`classes` must be a whole number ≥ 2. Got {self.classes!r} instead.")
        if not (isinstance(self.rate, (int, float)) and 0 < self.rate < math.inf):
            raise RecipeError(f"`rate` must be a finite number > 0. Got {self.rate!r} instead.")
        Ball(self.width, self.clip)

    @property
    def bound(self) -> Ball:
        """No correction is longer than `clip`; two of them are at most twice as far apart."""
        return Ball(self.width * self.classes, self.clip)

    def encode(self, predictions: Array) -> Array:
        """Turn corrections (teachers, queries, width, classes) into ballots (teachers, queries, dimension)."""
        return predictions.reshape(*predictions.shape[:2], -1)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Turn released means into steps (queries, width, classes): features are about 1 long, each axis a √width-th of it."""
        return np.asarray(codes).reshape(len(codes), self.width, self.classes) * (self.rate * self.width)
