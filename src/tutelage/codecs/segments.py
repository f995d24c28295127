"""Cut a public image into regions: superpixels, or connected pieces of equal brightness."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage, spatial

from tutelage.codecs.checks import positive, whole

Array = npt.NDArray[Any]


def superpixels(image: Array, regions: int, *, compactness: float = 0.5, steps: int = 10) -> Array:
    """Group pixels by brightness and place, by k-means from a regular grid: labels below `regions`, (*shape).

    `image` is (channels, *shape). Distances are measured in grid cells and in standard deviations of a channel;
    `compactness` weighs the former. Like SLIC (Achanta et al. 2012), with centres that may roam.
    """
    whole(regions=regions, steps=steps)
    positive(compactness=compactness)
    given = np.asarray(image, dtype=np.float64)
    shape = given.shape[1:]
    cell = (math.prod(shape) / regions) ** (1 / len(shape))
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, len(shape))
    spread = given.reshape(len(given), -1).std(axis=1)
    values = given.reshape(len(given), -1).T / np.where(spread > 0, spread, 1.0)
    features = np.hstack([values, places * (compactness / cell)])  # (pixels, channels + axes)
    centres = features[_seeds(shape, regions)]
    labels = np.zeros(len(features), dtype=np.intp)
    for _ in range(steps):
        before, labels = labels, spatial.cKDTree(centres).query(features)[1]
        sizes = np.bincount(labels, minlength=len(centres))
        sums = np.stack([np.bincount(labels, column, minlength=len(centres)) for column in features.T], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
        if np.array_equal(before, labels):
            break
    return labels.reshape(shape).astype(np.int32)


def _seeds(shape: tuple[int, ...], regions: int) -> Array:
    """Spread at most `regions` starting pixels over a regular grid."""
    counts = np.ones(len(shape), dtype=int)
    while True:  # divide the axis with the longest cells as long as the number allows
        axis = int(np.argmax(np.asarray(shape) / counts))
        grown = counts + (np.arange(len(shape)) == axis)
        if math.prod(grown.tolist()) > regions or grown[axis] > shape[axis]:
            break
        counts = grown
    axes = [((np.arange(count) + 0.5) * size / count).astype(int) for count, size in zip(counts, shape, strict=True)]
    return np.ravel_multi_index(np.meshgrid(*axes, indexing="ij"), shape).reshape(-1)


def level_sets(image: Array, regions: int, *, levels: int = 16) -> Array:
    """Find connected pieces of equal brightness: labels below `regions`, largest first, what is left over joins the last.

    `image` is (channels, *shape); the first channel counts, cut into `levels` equal steps between its extremes.
    """
    whole(regions=regions, levels=levels)
    given = np.asarray(image, dtype=np.float64)[0]
    low, high = given.min(), given.max()
    steps = np.minimum((given - low) / (high - low if high > low else 1.0) * levels, levels - 1).astype(int)
    pieces, found = np.zeros(given.shape, dtype=np.int64), 0
    for step in np.unique(steps):
        labels, count = ndimage.label(steps == step)
        pieces[labels > 0] = labels[labels > 0] + found
        found += count
    sizes = np.bincount(pieces.reshape(-1), minlength=found + 1)[1:]
    rank = np.empty(found, dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(found)
    return np.minimum(rank[pieces - 1], regions - 1).astype(np.int32)
