"""Columns of a table, encoded by rules that are public and fixed before any row is read.

Nothing here is fitted. A mean, a range or a list of categories taken from private rows is a function of them, so an
encoder fitted on them releases something that no ledger was charged for; and two hospitals that each fit their own
could not pool their answers. Categories are those that a data set's public documentation prints, and scales are
round constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from tutelage.privacy.errors import DataError


@final
@dataclass(frozen=True)
class OneHot:
    """Encode a category as one column each, the last ones for "missing" and "other" where the column has them."""

    name: str
    categories: tuple[str, ...]
    missing: str | None = None  # how the file writes a missing value, if it may
    other: bool = False  # whether what the list does not name is allowed

    @property
    def features(self) -> tuple[str, ...]:
        """Name the encoded columns."""
        extra = (() if self.missing is None else ("missing",)) + (("other",) if self.other else ())
        return tuple(f"{self.name}={category}" for category in self.categories + extra)

    def encode(self, cells: Sequence[str]) -> np.ndarray:
        """Encode cells: (records, features)."""
        known = self.categories if self.missing is None else (*self.categories, self.missing)
        place = dict.fromkeys(cells, len(known)) | {category: column for column, category in enumerate(known)}
        columns = np.fromiter(map(place.__getitem__, cells), np.intp, len(cells))
        if not self.other and (columns == len(known)).any():
            raise DataError(f"`{self.name}` must be one of its {len(known)} documented categories. Got another one instead.")
        return np.eye(len(self.features), dtype=np.float32)[columns]


@final
@dataclass(frozen=True)
class Scaled:
    """Encode a number ≥ 0 into [0, 1] by a public constant; what lies above it is 1."""

    name: str
    top: float
    log: bool = False  # for amounts whose size matters by factors

    @property
    def features(self) -> tuple[str, ...]:
        """Name the encoded column."""
        return (self.name,)

    def encode(self, cells: Sequence[str]) -> np.ndarray:
        """Encode cells: (records, 1)."""
        try:
            value = {cell: float(cell) for cell in set(cells)}  # few are distinct
        except ValueError:
            raise DataError(f"`{self.name}` must be a number. Got something else instead.") from None
        numbers = np.fromiter(map(value.__getitem__, cells), np.float64, len(cells))
        if not (np.isfinite(numbers) & (numbers >= 0)).all():
            raise DataError(f"`{self.name}` must be a number ≥ 0. Got something else instead.")
        share = np.log1p(numbers) / np.log1p(self.top) if self.log else numbers / self.top
        return np.minimum(share, 1.0).astype(np.float32)[:, None]
