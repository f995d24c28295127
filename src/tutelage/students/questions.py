"""Which public records to ask about: chosen by the public pool alone, so that the choice costs nothing."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.cluster.vq import kmeans2

from tutelage.data.dataset import Public

Array = npt.NDArray[Any]


@final
class Prototypes:
    """Ask about the most typical record of each of many clusters.

    Typical records are where teachers agree, and agreement is what makes an answer both right under noise and cheap; spread over
    clusters they stand for the whole pool.
    """

    def __init__(self, *, components: int = 40, seed: int = 0) -> None:
        self.components, self.seed = components, seed

    def __call__(self, public: Public, count: int) -> Array:
        """Give the indices of `count` different records."""
        rows = public.inputs.reshape(len(public), -1).astype(np.float64)
        centred = rows - rows.mean(axis=0)
        _, axes = np.linalg.eigh(centred.T @ centred)
        codes = centred @ axes[:, -self.components :]  # (records, components)
        distinct = len(np.unique(codes.round(6), axis=0))
        centres, _ = kmeans2(codes, min(count, distinct), minit="++", iter=50, rng=np.random.default_rng(self.seed))
        chosen: list[int] = []
        taken = np.zeros(len(rows), dtype=bool)
        for number in range(count):  # a pool with fewer distinct records than questions goes round again
            distance = ((codes - centres[number % len(centres)]) ** 2).sum(axis=1)
            chosen.append(int(np.where(taken, np.inf, distance).argmin()))
            taken[chosen[-1]] = True
        return np.asarray(chosen)
