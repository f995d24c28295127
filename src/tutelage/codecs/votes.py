"""Class labels as ballots: one whole vote each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.bounds import OneHot
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Votes:
    """Encode labels 0 … classes−1 as one-hot ballots. Data-independent: there is nothing to fit."""

    classes: int

    def __post_init__(self) -> None:
        if not (isinstance(self.classes, int) and self.classes >= 2):
            raise RecipeError(f"`classes` must be a whole number ≥ 2. Got {self.classes!r} instead.")

    @property
    def bound(self) -> OneHot:
        """One vote for one class."""
        return OneHot(self.classes)

    def encode(self, predictions: Array) -> Array:
        """Turn labels (teachers, queries) into ballots (teachers, queries, classes). A label that is no class is a vote for 0.

        It is not refused: whether there is an answer would then depend on one private record.
        """
        labels = np.asarray(predictions)
        if labels.ndim != 2 or not np.issubdtype(labels.dtype, np.integer):
            raise DataError("`predictions` must be whole-number labels of shape (teachers, queries). Got others instead.")
        known = np.where((labels >= 0) & (labels < self.classes), labels, 0).astype(np.int64)
        return known[..., None] == np.arange(self.classes)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """A released label is the prediction."""
        return codes
