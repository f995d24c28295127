"""The direction in which a teacher would move a public state, such as generated images, as one contribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.bounds import Ball, Bound, Stacked
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Directions:
    """Lay out `rows` vectors of a shape, each clipped to `norm`. One teacher's rows are bounded together: 2·norm·√rows."""

    shape: tuple[int, ...]
    norm: float
    rows: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(side) for side in self.shape))
        Stacked(Ball(math.prod(self.shape), self.norm), self.rows)

    @property
    def bound(self) -> Bound:
        """Bound every row by itself, and all rows as one contribution."""
        return Stacked(Ball(math.prod(self.shape), self.norm), self.rows)

    def encode(self, predictions: Array) -> Array:
        """Turn directions (teachers, queries, rows, *shape) into contributions (teachers, queries, dimension)."""
        given = np.asarray(predictions)
        if given.shape[2:] not in ((self.rows, *self.shape), self.shape if self.rows == 1 else None):
            raise DataError(f"`predictions` must be of shape (.., .., {self.rows}, *{self.shape}). Got {given.shape} instead.")
        return given.reshape(*given.shape[:2], -1)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Turn released means into directions (queries, rows, *shape)."""
        return np.asarray(codes).reshape(len(codes), self.rows, *self.shape)
