"""Tables seen in steps: every column as it is, and whether it passes each quantile of the public pool."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]
_SPREAD = 0.03  # added to a column's spread: a category that the pool hardly knows must not weigh more than all others
_FAR = 4.0  # spreads from the mean beyond which a value is cut


@final
class Bins:
    """Hold cuts and scales that were learned from public rows."""

    kind = "bins"

    def __init__(self, columns: Array, cuts: Array, mean: Array, spread: Array) -> None:
        self.columns, self.cuts = columns.astype(np.int64), cuts.astype(np.float32)  # (steps,) each: which column, beyond what
        self.mean, self.spread = mean.astype(np.float32), spread.astype(np.float32)

    @classmethod
    def fit(cls, rows: Array, *, bins: int = 20) -> Bins:
        """Cut every column with more than two values at the pool's quantiles."""
        if not (isinstance(bins, int) and bins >= 2):
            raise RecipeError(f"`bins` must be a whole number ≥ 2. Got {bins!r} instead.")
        table = _flat(rows)
        steps = [(place, cut) for place in range(table.shape[1]) for cut in _cuts(table[:, place], bins)]
        columns = np.asarray([place for place, _ in steps], dtype=np.int64)
        cuts = np.asarray([cut for _, cut in steps], dtype=np.float32)
        plain = cls(columns, cuts, np.zeros(1), np.ones(1))._steps(table)
        return cls(columns, cuts, plain.mean(axis=0), plain.std(axis=0) + _SPREAD)

    def _steps(self, table: Array) -> Array:
        return np.concatenate([table, (table[:, self.columns] > self.cuts).astype(np.float32)], axis=1)

    def __call__(self, rows: Array) -> Array:
        """Give (records, columns + cuts) float32."""
        return np.clip((self._steps(_flat(rows)) - self.mean) / self.spread, -_FAR, _FAR)

    def arrays(self) -> dict[str, Array]:
        """Give what `Bins(**arrays)` needs."""
        return {"columns": self.columns, "cuts": self.cuts, "mean": self.mean, "spread": self.spread}


def _flat(rows: Array) -> Array:
    return np.asarray(rows, dtype=np.float32).reshape(len(rows), -1)


def _cuts(column: Array, bins: int) -> Array:
    if len(np.unique(column)) <= 2:
        return np.empty(0, dtype=np.float32)  # a category: it is its own step
    return np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)[1:-1]))
