"""Cut a public image into regions: superpixels, connected pieces of equal brightness, or all that has one grey level."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import ndimage, spatial

from tutelage.codecs.checks import positive, whole

Array = npt.NDArray[Any]
LARGE = 1 << 18  # pixels from which on not all of them are asked where the centres of superpixels are: those take seconds
SPEAK = 500  # pixels of a region, on average, that then are


def superpixels(image: Array, regions: int, *, compactness: float = 0.5, steps: int = 10, every: int | None = None) -> Array:
    """Group pixels by brightness and place, by k-means from a regular grid: labels below `regions`, (*shape).

    `image` is (channels, *shape). Distances are measured in grid cells and in standard deviations of a channel;
    `compactness` weighs the former. Like SLIC (Achanta et al. 2012), with centres that may roam. Centres are found by every
    `every`-th pixel along each side, by default `sampled`; then each pixel joins the nearest.
    """
    whole(regions=regions, steps=steps)
    positive(compactness=compactness)
    given = np.asarray(image)
    shape = given.shape[1:]
    stride = sampled(shape, regions) if every is None else every
    whole(every=stride)
    spread = given.reshape(len(given), -1).std(axis=1, dtype=np.float64)
    cell = (math.prod(shape) / regions) ** (1 / len(shape))
    field = _Field(given, np.where(spread > 0, spread, 1.0), compactness / cell)
    centres = field.at(_seeds(shape, regions))
    few = field.part(tuple(slice((min(stride, size) - 1) // 2, None, stride) for size in shape))
    labels = np.zeros(len(few), dtype=np.intp)
    for _ in range(steps):
        before, labels = labels, spatial.cKDTree(centres).query(few)[1]
        sizes = np.bincount(labels, minlength=len(centres))
        sums = np.stack([np.bincount(labels, column, minlength=len(centres)) for column in few.T], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
        if np.array_equal(before, labels):
            break
    if stride > 1:
        tree = spatial.cKDTree(centres)
        labels = np.concatenate([tree.query(field.part((slice(row, row + 1),)))[1] for row in range(shape[0])])
    return labels.reshape(shape).astype(np.int32)


def sampled(shape: tuple[int, ...], regions: int) -> int:
    """Tell which every so-many-th pixel along each side the centres of superpixels are found by (benchmarks/superpixels.py).

    It is a part of what the regions are, and so of a codec's name: `cut_name`.
    """
    pixels = math.prod(shape)
    return 1 if pixels < LARGE else max(1, math.floor((pixels / (regions * SPEAK)) ** (1 / len(shape))))


def cut_name(method: str, shape: tuple[int, ...], regions: int) -> str:
    """Name a cut in a codec's repr. Centres found by fewer pixels are others, and so are their regions."""
    stride = sampled(shape, regions) if method == "superpixels" else 1
    return method if stride == 1 else f"{method}/{stride}"


@final
@dataclass(frozen=True, eq=False, repr=False)
class _Field:
    """Give pixels as points of brightness and place, some at a time: (pixels, channels + axes)."""

    image: Array  # (channels, *shape)
    spread: Array  # (channels,)
    scale: float  # of a pixel's side

    def part(self, where: tuple[slice, ...]) -> Array:
        """Give the pixels of a part of the image, in its order."""
        shape = self.image.shape[1:]
        axes = [np.arange(size)[one] for size, one in itertools.zip_longest(shape, where, fillvalue=slice(None))]
        values = self.image[(slice(None), *where)].reshape(len(self.image), -1).T / self.spread
        places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(shape))
        return np.hstack([values, places * self.scale])

    def at(self, pixels: Array) -> Array:
        """Give single pixels by their numbers."""
        values = self.image.reshape(len(self.image), -1)[:, pixels].T / self.spread
        return np.hstack([values, np.stack(np.unravel_index(pixels, self.image.shape[1:]), axis=-1) * self.scale])


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
    return np.asarray(np.minimum(rank[pieces - 1], regions - 1), dtype=np.int32)


def greys(image: Array, regions: int) -> Array:
    """Make all pixels of one grey level one region, wherever they lie: labels below `regions`, largest first, (*shape).

    `image` is (channels, *shape); the first channel counts. Where it has more than `regions` levels they are taken to be
    noise about few: the modes of its histogram are the levels, and a pixel joins the one that it and its neighbours favour.
    Rare levels join the nearest of the others.
    """
    whole(regions=regions)
    given = np.asarray(image, dtype=np.float64)[0]
    levels, nearest = np.unique(given, return_inverse=True)
    labels = nearest.reshape(given.shape) if len(levels) <= regions else _favoured(given, _modes(given, regions))
    sizes = np.bincount(labels.reshape(-1))
    rank = np.empty(len(sizes), dtype=np.int32)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return np.asarray(rank[labels])


def _modes(given: Array, regions: int) -> Array:
    """Find at most `regions` grey levels, in rising order: the highest tops of a histogram whose noise was smoothed away."""
    calm = ndimage.median_filter(given, size=3, mode="nearest")  # keeps edges and takes most of the noise
    low, high = calm.min(), calm.max()
    if not high > low:
        return np.array([low])
    bins = 512
    spread = min(bins, max(1.5, 0.5 * _noise(given) / (high - low) * bins))  # of what noise the filter leaves, in bins
    counts, edges = np.histogram(calm, bins=bins, range=(low, high))
    heights = ndimage.gaussian_filter1d(np.pad(counts.astype(np.float64), bins // 4), spread, mode="constant")
    tops = np.flatnonzero((heights[1:-1] >= heights[:-2]) & (heights[1:-1] > heights[2:])) + 1
    tops = tops[np.argsort(-heights[tops], kind="stable")][:regions]
    tops = tops[heights[tops] > 0.02 * heights.max()]
    return np.sort(low + (tops - bins // 4 + 0.5) * (edges[1] - edges[0]))


def _noise(given: Array) -> float:
    """Estimate the deviation of a pixel's noise by how far neighbours lie apart: most have the same level."""
    apart = np.concatenate([np.abs(np.diff(given, axis=axis)).reshape(-1) for axis in range(given.ndim)])
    return float(np.median(apart) / (0.6745 * math.sqrt(2))) if apart.size else 0.0


def _favoured(given: Array, levels: Array, *, steps: int = 6) -> Array:
    """Let every pixel choose a level by its value and by what its neighbours chose (Besag 1986, iterated conditional modes)."""
    off = (given - levels.reshape(-1, *(1,) * given.ndim)) ** 2 / (2 * max(_noise(given), 1e-9) ** 2)  # (levels, *shape)
    beside = ndimage.generate_binary_structure(given.ndim, given.ndim).astype(np.float64)[None]
    labels = off.argmin(axis=0)
    for _ in range(steps):
        chosen = (labels == np.arange(len(levels)).reshape(-1, *(1,) * given.ndim)).astype(np.float64)
        before, labels = labels, (off - ndimage.convolve(chosen, beside, mode="constant")).argmin(axis=0)
        if np.array_equal(before, labels):
            break
    return np.asarray(labels)
