"""Teachers that train nothing: each place answers with a public function of its own records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.queries import Query
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.sums import Block
from tutelage.privacy.units import Shards
from tutelage.teachers.cleaning import numbers, numeric

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Rows:
    """Hold what a public function makes of some records: `left` (records, width), and for outer products `right` (records, k)."""

    left: Array
    right: Array | None = None


class PublicFunction(Protocol):
    """A function of single records that is fixed before the data. No record's value may depend on another record."""

    @property
    def key(self) -> str:
        """Describe the function by all that decides its values."""

    def prepare(self, inputs: Array) -> Array:
        """Turn records into what is kept of them between queries, row by row. Called once, when the records are read."""

    def __call__(self, query: Query, prepared: Array, labels: Array) -> Rows:
        """Give the rows that these records add to the answer of a query."""


@final
class Statistics:
    """Let every place of a division contribute the values of a public function on its records.

    With a roster and as many shards as places, every unit stands alone: the least noise for a sum. A place without records adds
    exactly zero. The function sees the first record of every place in the row of its number, and other records of a place
    by themselves: what floats are rounded to depends on the row they stand in, and one unit's records move no other's row.
    """

    def __init__(self, function: PublicFunction, *, grouped: bool = False, block: int = 2000) -> None:
        if not isinstance(getattr(function, "key", None), str):
            raise RecipeError(f"`function` must have a public text `key`. Got {type(function).__name__} without one instead.")
        self.function, self.grouped, self.block = function, grouped, block
        self._first: Array | None = None

    @property
    def key(self) -> str:
        """Describe the function; there are no other settings that decide an answer."""
        return f"statistics of {self.function.key}"

    def fit(self, private: Private, shards: Shards, *, progress: Callable[[int, int], None] | None = None) -> Statistics:
        """Read every record once, place by place."""
        inputs, labels, count = np.asarray(private.inputs), numeric(private.targets), len(shards)
        self._present = np.asarray([len(part) > 0 for part in shards.indices])
        self._labels = np.asarray([labels[part[0]] if len(part) else 0 for part in shards.indices])
        self._more: dict[int, tuple[Array, Array]] = {}  # what else a place has: prepared records and labels
        first: list[Array] = []
        for start in range(0, count, self.block):
            some = range(start, min(start + self.block, count))
            rows = np.zeros((len(some), *inputs.shape[1:]), dtype=inputs.dtype)
            for row, place in zip(rows, some, strict=True):
                part = shards[place]
                row[...] = inputs[part[0]] if len(part) else 0
                if len(part) > 1:
                    self._more[place] = self._prepared(inputs[part[1:]]), labels[part[1:]]
            first.append(self._prepared(rows))
            if progress is not None:
                progress(some.stop, count)
        self._first = np.concatenate(first)
        return self

    def _prepared(self, inputs: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self.function.prepare(numbers(inputs)))

    def __len__(self) -> int:
        return len(self._present)

    def contributions(self, query: Query, *, member: Sealed | None = None) -> Iterator[Block]:
        """Give what every place adds, some places at a time."""
        if self._first is None:
            raise DataError("`teachers` must be fitted before they are asked. Got none instead.")
        if member is not None:
            raise RecipeError("`member` must stay open: statistics are of all places. Got one place instead.")
        for start in range(0, len(self), self.block):
            yield self._block(query, np.arange(start, min(start + self.block, len(self))))

    def _block(self, query: Query, places: Array) -> Block:
        assert self._first is not None
        parts = [(places, self._first[places], self._labels[places])]
        for place in places.tolist():
            if place in self._more:
                prepared, labels = self._more[place]
                parts.append((np.full(len(labels), place), prepared, labels))
        found = [self._values(query, prepared, labels) for _, prepared, labels in parts]
        for rows in (found[0].left, found[0].right):
            if rows is not None:
                rows[~self._present[places]] = 0  # whatever the function says of a blank
        right = None if found[0].right is None else np.concatenate([np.asarray(rows.right) for rows in found])
        return Block(
            Sealed(np.concatenate([who for who, _, _ in parts])),
            Sealed(np.concatenate([rows.left for rows in found])),
            Sealed(np.concatenate([labels for _, _, labels in parts]).astype(np.int64)) if self.grouped else None,
            None if right is None else Sealed(right),
        )

    def _values(self, query: Query, prepared: Array, labels: Array) -> Rows:
        with np.errstate(all="ignore"):
            rows = self.function(query, prepared, labels)
        return Rows(np.array(rows.left), None if rows.right is None else np.array(rows.right))
