"""Clip and sensitivity in one object, so that they cannot disagree.

One unit can rewrite its teacher's whole ballot, so the sum over teachers moves by at most the *diameter* of the set the
ballots are clipped into: Δ = diameter. Only when a whole institution comes or goes and an absent teacher counts as the
zero ballot is it the radius. A unit behind m teachers moves the sum m times as far (triangle inequality).
Proofs: docs/theory/sensitivity.md.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Adjacency, Unit

Array = npt.NDArray[np.float64]
_RECORD = Unit()


def _positive(**named: float) -> None:
    for name, value in named.items():
        if not (isinstance(value, (int, float, np.integer, np.floating)) and 0 < value <= sys.float_info.max):
            raise RecipeError(f"`{name}` must be a finite number > 0. Got {value!r} instead.")


def _whole(**named: int) -> None:
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {value!r} instead.")


def _diagonal(dimension: int, norm: float) -> float:
    """Length of the all-ones vector."""
    return 1.0 if norm == math.inf else float(dimension) ** (1 / norm)


class Bound(ABC):
    """A set that every ballot is clipped into, of `dimension` coordinates on the last axis."""

    dimension: int

    @abstractmethod
    def clip(self, ballots: npt.ArrayLike) -> Array:
        """Map any ballots (..., dimension) into the set. Total: what is not a number becomes the zero ballot."""

    @abstractmethod
    def diameter(self, norm: float = 2) -> float:
        """Give the largest distance between two members, in the 1-, 2- or ∞-norm (one coordinate)."""

    @abstractmethod
    def radius(self, norm: float = 2) -> float:
        """Give the largest distance of a member from the zero ballot, in the 1-, 2- or ∞-norm (one coordinate)."""

    def sensitivity(self, adjacency: Adjacency = Adjacency.REPLACE_ONE, *, unit: Unit = _RECORD, norm: float = 2) -> float:
        """Bound how far one unit can move the sum of all ballots."""
        if norm not in (1, 2, math.inf):
            raise RecipeError(f"`norm` must be 1, 2 or infinity. Got {norm!r} instead.")
        if adjacency not in list(Adjacency):
            raise RecipeError(f"`adjacency` must be 'replace-one' or 'add-remove'. Got {adjacency!r} instead.")
        if adjacency == Adjacency.REPLACE_ONE:
            return unit.teachers * self.diameter(norm)
        if unit.name != "institution":
            raise RecipeError(
                f"`adjacency` must be 'replace-one' unless the unit is a whole institution. Got 'add-remove' with {unit.name!r}: "
                "removing one record retrains its teacher into anything."
            )
        # An absent teacher's zero ballot is clipped too: where zero is no member it becomes one, and nothing is gained.
        gone = np.zeros(self.dimension)
        absent_is_zero = bool((self.clip(gone) == gone).all())
        return unit.teachers * (self.radius(norm) if absent_is_zero else self.diameter(norm))

    def _shaped(self, ballots: npt.ArrayLike) -> Array:
        try:
            array = np.asarray(ballots, dtype=np.float64)
        except (TypeError, ValueError):  # NumPy's own message quotes the entry that failed
            raise DataError("`ballots` must be an array of real numbers. Got others (withheld: they are private).") from None
        if array.ndim == 0 or array.shape[-1] != self.dimension:
            raise DataError(
                f"`ballots` must have {self.dimension} coordinates on their last axis. Got shape {array.shape} instead."
            )
        return np.where(np.isnan(array), 0.0, array)


def _shrunk(array: Array, norm: float) -> Array:
    """Scale rows longer than `norm` onto the sphere."""
    finite = np.clip(array, -1e300, 1e300)
    peak = np.abs(finite).max(axis=-1, keepdims=True)
    scaled = finite / np.where(peak > 0, peak, 1.0)  # in [-1, 1]: squares neither overflow nor underflow
    length = np.linalg.norm(scaled, axis=-1, keepdims=True)
    return np.asarray(np.where(length * peak > norm, scaled * (norm / np.where(peak > 0, length, 1.0)), finite))


@final
@dataclass(frozen=True)
class Ball(Bound):
    """Vectors of 2-norm ≤ `norm`: diameter 2·norm."""

    dimension: int
    norm: float = 1.0

    def __post_init__(self) -> None:
        _whole(dimension=self.dimension)
        _positive(norm=self.norm)

    def clip(self, ballots: npt.ArrayLike) -> Array:
        """Shrink long vectors onto the sphere."""
        return _shrunk(self._shaped(ballots), self.norm)

    def diameter(self, norm: float = 2) -> float:
        """2C; in the 1-norm √dimension times that (both ends on a diagonal)."""
        return 2.0 * self.radius(norm)

    def radius(self, norm: float = 2) -> float:
        """C, or C·√dimension in the 1-norm."""
        return self.norm * (math.sqrt(self.dimension) if norm == 1 else 1.0)


@final
@dataclass(frozen=True)
class Orthant(Bound):
    """Non-negative vectors of 2-norm ≤ `norm`: no two are further apart than √2·norm (‖x−y‖² ≤ ‖x‖² + ‖y‖²)."""

    dimension: int
    norm: float = 1.0

    def __post_init__(self) -> None:
        _whole(dimension=self.dimension)
        _positive(norm=self.norm)

    def clip(self, ballots: npt.ArrayLike) -> Array:
        """Drop negative parts, then shrink."""
        return _shrunk(np.maximum(self._shaped(ballots), 0.0), self.norm)

    def diameter(self, norm: float = 2) -> float:
        """√2·C from two coordinates on, C with one; in the 1-norm C·√(2·dimension) (disjoint halves)."""
        if self.dimension == 1 or norm == math.inf:
            return self.norm
        return self.norm * math.sqrt(2.0 * self.dimension if norm == 1 else 2.0)

    def radius(self, norm: float = 2) -> float:
        """C, or C·√dimension in the 1-norm."""
        return self.norm * (math.sqrt(self.dimension) if norm == 1 else 1.0)


@final
@dataclass(frozen=True)
class Cube(Bound):
    """Vectors with every coordinate in [-side, side]: diameter 2·side·√dimension."""

    dimension: int
    side: float = 1.0

    def __post_init__(self) -> None:
        _whole(dimension=self.dimension)
        _positive(side=self.side)

    def clip(self, ballots: npt.ArrayLike) -> Array:
        """Cut every coordinate."""
        return np.clip(self._shaped(ballots), -self.side, self.side)

    def diameter(self, norm: float = 2) -> float:
        """From one corner to the opposite one."""
        return 2.0 * self.radius(norm)

    def radius(self, norm: float = 2) -> float:
        """From the centre to a corner."""
        return self.side * _diagonal(self.dimension, norm)


@final
@dataclass(frozen=True)
class Simplex(Bound):
    """Probability vectors: diameter √2 (2 in the 1-norm), reached by two different certainties."""

    dimension: int

    def __post_init__(self) -> None:
        _whole(dimension=self.dimension)

    def clip(self, ballots: npt.ArrayLike) -> Array:
        """Drop negative parts and divide by the sum; a ballot without weight is spread evenly."""
        array = np.maximum(self._shaped(ballots), 0.0)
        array = np.where(np.isinf(array).any(axis=-1, keepdims=True), np.isinf(array), array)
        array = array / np.where(array.max(axis=-1, keepdims=True) > 0, array.max(axis=-1, keepdims=True), 1.0)
        total = array.sum(axis=-1, keepdims=True)
        return np.asarray(np.where(total > 0, array / np.where(total > 0, total, 1.0), 1.0 / self.dimension))

    def diameter(self, norm: float = 2) -> float:
        """√2, 2 or 1: two coordinates move by one each; a single class leaves nothing to say."""
        return 0.0 if self.dimension == 1 else _diagonal(2, norm)

    def radius(self, norm: float = 2) -> float:
        """1 in every norm."""
        return 1.0


@final
@dataclass(frozen=True)
class OneHot(Bound):
    """One vote for one of `dimension` classes: moving it changes two counts by one, √2 (2 in the 1-norm)."""

    dimension: int

    def __post_init__(self) -> None:
        _whole(dimension=self.dimension)

    def clip(self, ballots: npt.ArrayLike) -> Array:
        """Turn any ballot into one whole vote for its largest entry (the first among equals)."""
        array = self._shaped(ballots)
        return np.asarray(np.arange(self.dimension) == array.argmax(axis=-1)[..., None], dtype=np.float64)

    def diameter(self, norm: float = 2) -> float:
        """√2, 2 or 1: two coordinates move by one each."""
        return 0.0 if self.dimension == 1 else _diagonal(2, norm)

    def radius(self, norm: float = 2) -> float:
        """1 in every norm."""
        return 1.0


@final
@dataclass(frozen=True)
class Binary(Bound):
    """Vectors of zeros and ones: diameter √dimension."""

    dimension: int

    def __post_init__(self) -> None:
        _whole(dimension=self.dimension)

    def clip(self, ballots: npt.ArrayLike) -> Array:
        """Call every coordinate above one half a one."""
        return np.asarray(self._shaped(ballots) > 0.5, dtype=np.float64)

    def diameter(self, norm: float = 2) -> float:
        """From none to all."""
        return _diagonal(self.dimension, norm)

    def radius(self, norm: float = 2) -> float:
        """From none to all."""
        return self.diameter(norm)


@final
@dataclass(frozen=True)
class Stacked(Bound):
    """`rows` vectors of one teacher as one contribution, each clipped into `each`: diameters add up in squares.

    What one teacher says about B generated images is B vectors that all come from its own records: 2C√B apart, not 2C.
    """

    each: Bound
    rows: int

    def __post_init__(self) -> None:
        _whole(rows=self.rows)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """Count the coordinates of all rows."""
        return self.rows * self.each.dimension

    def clip(self, ballots: npt.ArrayLike) -> Array:
        """Clip row by row."""
        array = self._shaped(ballots)
        rows = array.reshape(*array.shape[:-1], self.rows, self.each.dimension)
        return self.each.clip(rows).reshape(array.shape)

    def diameter(self, norm: float = 2) -> float:
        """√rows times the diameter of one, rows times in the 1-norm."""
        return self.each.diameter(norm) * self._grown(norm)

    def radius(self, norm: float = 2) -> float:
        """√rows times the radius of one, rows times in the 1-norm."""
        return self.each.radius(norm) * self._grown(norm)

    def _grown(self, norm: float) -> float:
        return 1.0 if norm == math.inf else float(self.rows) ** (1 / norm)


def bound_named(name: str, dimension: int, norm: float = 1.0) -> Bound:
    """Build a bound from the words a recipe uses."""
    table: dict[str, Any] = {
        "ball": lambda: Ball(dimension, norm),
        "orthant": lambda: Orthant(dimension, norm),
        "cube": lambda: Cube(dimension, norm),
        "simplex": lambda: Simplex(dimension),
        "onehot": lambda: OneHot(dimension),
        "binary": lambda: Binary(dimension),
    }
    if name not in table:
        raise RecipeError(f"`bound` must be one of {', '.join(table)}. Got {name!r} instead.")
    built: Bound = table[name]()
    return built
