"""Principal components of masks that are read once: time and memory of a fit, beside merging by singular values.

python benchmarks/components.py
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import linalg

import result
from tutelage.codecs.sketch import Sketch

CASES = {  # masks, voxels, rank
    "8 brains of 240×240×155, 8 directions": (8, 240 * 240 * 155, 8),
    "40 volumes of 120×120×80, 8 directions": (40, 120 * 120 * 80, 8),
    "260 hippocampi of 32×48×32, 64 directions": (260, 32 * 48 * 32, 64),
}


class Stacked:
    """Merge as the textbook has it: the SVD of what is kept on top of what is new."""

    def __init__(self, width: int, rank: int) -> None:
        self._rank, self._kept, self._waiting = rank, np.empty((0, width)), [np.empty((0, width))]

    def add(self, rows: np.ndarray) -> None:
        """Take in rows; they wait until there are as many as directions."""
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) >= self._rank:
            self._merge()

    def _merge(self) -> None:
        stack = np.concatenate([self._kept, *self._waiting])
        self._waiting = [stack[:0].copy()]
        _, values, vectors = linalg.svd(stack, full_matrices=False, overwrite_a=True, check_finite=False)
        self._kept = (values[:, None] * vectors)[: self._rank]

    def solve(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Give scatter values and directions."""
        if sum(map(len, self._waiting)):
            self._merge()
        lengths = np.linalg.norm(self._kept, axis=1)
        return lengths**2, self._kept / lengths[:, None]


def masks(count: int, voxels: int) -> Iterator[np.ndarray]:
    """Give boxes on a line of voxels, one at a time."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        row = np.zeros((1, voxels))
        low = int(rng.integers(voxels // 2))
        row[:, low : low + int(rng.integers(voxels // 8, voxels // 3))] = 1
        yield row


def measured(make: Callable[[], Any], count: int, voxels: int, rank: int) -> dict[str, float]:
    """Time a fit, then make it again and trace what it allocates."""
    begin = time.perf_counter()
    _fit(make(), count, voxels, rank)
    seconds = time.perf_counter() - begin
    tracemalloc.start()
    values, vectors = _fit(make(), count, voxels, rank)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    off = float(np.abs(vectors @ vectors.T - np.eye(len(vectors))).max())
    return {
        "seconds": round(seconds, 2),
        "GiB": round(peak / 2**30, 3),
        "times rank": round(peak / (8 * voxels * rank), 2),
        "variance kept": round(float(values.sum()), 1),
        "off orthonormal": off,
    }


def _fit(gathered: Any, count: int, voxels: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    for row in masks(count, voxels):
        gathered.add(row)
    found: tuple[np.ndarray, np.ndarray] = gathered.solve(rank)
    return found


def main() -> None:
    """Measure every case both ways."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    figures: dict[str, Any] = {}
    for name, (count, voxels, rank) in CASES.items():
        before = measured(lambda w=voxels, r=rank: Stacked(w, r), count, voxels, rank)
        after = measured(lambda n=count, w=voxels, r=rank: Sketch(w, r, n, centre=False), count, voxels, rank)
        ratios = {f"{key}, before over after": round(before[key] / after[key], 2) for key in ("seconds", "GiB")}
        figures[name] = {"singular values": before, "in place": after, **ratios}
        print(name, figures[name], flush=True)
    result.write("components", figures)


if __name__ == "__main__":
    main()
