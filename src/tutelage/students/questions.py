"""Which public records to ask about: chosen by the public pool and by what was released, so that the choice costs nothing."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.cluster.vq import kmeans2, vq
from scipy.linalg import eigh

from tutelage.data.dataset import Public
from tutelage.privacy.errors import RecipeError

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
        return typical(_codes(public, self.components), count, seed=self.seed)


@final
class Uncertain:
    """Ask about prototypes first, then about what the student of the last round is least sure of.

    The least sure records of a pool are often many views of one question: the `breadth` · count least sure are put into
    clusters, and each cluster is asked about once.
    """

    def __init__(self, *, breadth: float = 3.0, components: int = 40, seed: int = 0) -> None:
        if not breadth >= 1:
            raise RecipeError(f"`breadth` must be ≥ 1. Got {breadth!r} instead.")
        self.breadth, self.components, self.seed = breadth, components, seed

    def __call__(self, public: Public, count: int) -> Array:
        """Give the indices of the first round's records."""
        return Prototypes(components=self.components, seed=self.seed)(public, count)

    def again(self, public: Public, count: int, *, shares: Array, asked: Array) -> Array:
        """Give the indices of `count` records not asked yet, by the student's shares (records, classes) over the pool."""
        free = np.flatnonzero(~np.asarray(asked, dtype=bool))
        two = -np.partition(-np.asarray(shares, dtype=np.float64)[free], 1, axis=1)[:, :2]
        lead = two[:, 0] - two[:, 1]  # small where two classes are as good as each other
        unsure = free[np.argsort(lead, kind="stable")[: max(count, int(self.breadth * count))]]  # least sure first
        if len(unsure) <= count:
            return unsure
        codes = _codes(public, self.components)[unsure]
        centres = _centres(codes, count, self.seed)
        cluster, _ = vq(codes, centres)
        _, first = np.unique(cluster, return_index=True)  # the least sure of each cluster
        rest = np.setdiff1d(np.arange(len(unsure)), first)[: count - len(first)]  # for clusters that came out empty
        return unsure[np.sort(np.concatenate([first, rest]))]


def typical(codes: Array, count: int, *, seed: int) -> Array:
    """Give the record in the middle of each of `count` clusters of codes (records, numbers): different records' indices."""
    centres = _centres(codes, count, seed)
    chosen: list[int] = []
    taken = np.zeros(len(codes), dtype=bool)
    for number in range(count):  # a pool with fewer distinct records than questions goes round again
        distance = ((codes - centres[number % len(centres)]) ** 2).sum(axis=1)
        chosen.append(int(np.where(taken, np.inf, distance).argmin()))
        taken[chosen[-1]] = True
    return np.asarray(chosen)


def _codes(public: Public, components: int) -> Array:
    """Turn records to the pool's main axes: (records, components)."""
    rows = public.inputs.reshape(len(public), -1).astype(np.float64)
    centred = rows - rows.mean(axis=0)
    width = centred.shape[1]
    _, axes = eigh(centred.T @ centred, subset_by_index=(max(0, width - components), width - 1))
    return centred @ axes


def _centres(codes: Array, count: int, seed: int) -> Array:
    """Find the centres of as many clusters as there are questions, or distinct records."""
    distinct = len(np.unique(codes.round(6), axis=0))
    centres, _ = kmeans2(codes, min(count, distinct), minit="++", iter=50, rng=np.random.default_rng(seed))
    return np.asarray(centres)
