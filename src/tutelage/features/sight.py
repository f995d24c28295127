"""How records are seen: features that the public pool taught, on its own axes, all of them equally long."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt
from sklearn.utils.extmath import randomized_svd

from tutelage.data.dataset import Public
from tutelage.features.bins import Bins
from tutelage.features.seeing import Seeing
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]
_FLOOR = 0.1  # of the last axis's variance, added to all: what the pool hardly shows is not blown up
_ROWS = 2000  # seen at once


@final
class Sight:
    """See records as (records, width) numbers of length about 1. Learned from public inputs alone, without labels."""

    def __init__(self, features: Any, mean: Array, basis: Array) -> None:
        self.features, self.mean, self.basis = features, mean.astype(np.float64), basis.astype(np.float64)

    @classmethod
    def learn(
        cls, public: Public, how: Seeing, *, seed: int = 0, device: str = "auto", progress: Progress | None = None
    ) -> Sight:
        """Learn features of the pool, then the axes along which they vary most, each divided by how much.

        `progress` counts what is done once: rounds of finding filters, blocks of the pool that are seen, and the axes.
        """
        inputs = np.asarray(public.inputs)
        tell, looks, rounds = progress or _unheard, blocks(len(inputs)), 0
        features: Any
        if inputs.ndim == 2:
            features = Bins.fit(inputs, bins=how.bins)
        else:
            from tutelage.features.patches import ROUNDS, Patches  # torch, which tables do without

            rounds = ROUNDS
            features = Patches.fit(
                inputs, filters=how.filters, patch=how.patch, grid=how.grid, seed=seed, device=device,
                progress=lambda done, of: tell(done, of + looks + 1),
            )  # fmt: skip
        parts = []
        for number in range(looks):
            parts.append(features(inputs[number * _ROWS : (number + 1) * _ROWS]))
            tell(rounds + number + 1, rounds + looks + 1)
        seen = np.concatenate(parts)
        if how.axes > min(seen.shape):
            raise DataError(f"`axes` must not exceed what the pool has, {min(seen.shape)}. Got {how.axes} instead.")
        mean = seen.mean(axis=0)
        seen -= mean
        _, sizes, axes = randomized_svd(seen, how.axes, n_iter=4, random_state=seed)
        tell(rounds + looks + 1, rounds + looks + 1)
        variances = np.square(sizes) / len(seen)
        return cls(features, mean, axes.T / np.sqrt(variances + _FLOOR * variances[-1] + 1e-12))

    @property
    def width(self) -> int:
        """Count the numbers that a record is seen as."""
        return int(self.basis.shape[1]) + 1

    def __call__(self, inputs: Array, *, progress: Progress | None = None) -> Array:
        """Give (records, width): a constant and the axes. `progress` counts `blocks` of records.

        Added up in 64 bits and always in as many rows: a record is seen the same wherever it stands among others.
        """
        rows = np.asarray(inputs)
        seen = np.ones((len(rows), self.width))
        for number in range(blocks(len(rows))):
            part = slice(number * _ROWS, (number + 1) * _ROWS)
            seen[part, 1:] = (self.features(rows[part]).astype(np.float64) - self.mean) @ self.basis
            if progress is not None:
                progress(number + 1, blocks(len(rows)))
        return seen / math.sqrt(self.width)

    def arrays(self) -> dict[str, Array]:
        """Give everything as plain arrays, for a file."""
        own = {f"features.{name}": array for name, array in self.features.arrays().items()}
        return {"kind": np.asarray(self.features.kind), "mean": self.mean, "basis": self.basis, **own}

    @classmethod
    def of(cls, arrays: dict[str, Array], *, device: str = "auto") -> Sight:
        """Take plain arrays back."""
        own = {name.removeprefix("features."): array for name, array in arrays.items() if name.startswith("features.")}
        if str(arrays["kind"]) == Bins.kind:
            return cls(Bins(**own), arrays["mean"], arrays["basis"])
        from tutelage.features.patches import Patches

        return cls(Patches(**own, device=device), arrays["mean"], arrays["basis"])


def blocks(records: int) -> int:
    """Count the blocks in which records are seen."""
    return -(-records // _ROWS)


def _unheard(done: int, total: int) -> None:
    """Tell nobody."""
