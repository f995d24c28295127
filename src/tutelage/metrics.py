"""How good a mask is. Masks are (records, *shape); every measure gives one number per record.

Two empty masks agree: Dice and surface Dice are 1. An empty mask beside one that is not is a full miss: 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from tutelage.data.dataset import Public
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
THRESHOLDS = np.linspace(0.05, 0.95, 19)
BESIDE = ("surface Dice", "cross-entropy", "squared error")  # what stands beside Dice in a run's scores


def judged(masks: Array, shares: Array, truth: Array) -> dict[str, Array]:
    """Give every measure: Dice and surface Dice of masks, cross-entropy and squared error of every pixel's share."""
    real = np.asarray(truth) > 0.5
    found = (surface_dice(masks, real), cross_entropy(shares, real), squared_error(shares, real))
    return {"Dice": dice(masks, real), **dict(zip(BESIDE, found, strict=True))}


def dice(predicted: Array, truth: Array, *, threshold: float = 0.5) -> Array:
    """Give twice the overlap over the sum of the sizes, of what exceeds the threshold; 1 if both are empty."""
    return np.array([_dice(found > threshold, real > 0.5) for found, real in _pairs(predicted, truth)])


def _dice(found: Array, real: Array) -> float:
    sizes = int(found.sum()) + int(real.sum())
    return 2 * int((found & real).sum()) / sizes if sizes else 1.0


def surface_dice(predicted: Array, truth: Array, *, tolerance: float = 1.0, threshold: float = 0.5) -> Array:
    """Give the share of both surfaces that lies within `tolerance` voxels of the other one; 1 if both are empty."""
    if not (isinstance(tolerance, (int, float)) and 0 <= tolerance < float("inf")):
        raise RecipeError(f"`tolerance` must be a finite number of voxels ≥ 0. Got {tolerance!r} instead.")
    pairs = _pairs(predicted, truth)
    return np.array([_surface_dice(found > threshold, real > 0.5, tolerance) for found, real in pairs])


def _surface_dice(found: Array, real: Array, tolerance: float) -> float:
    if not (found.any() and real.any()):
        return float(not found.any() and not real.any())
    box = _box(found | real)  # outside it there is no surface, and a volume is mostly that
    edges = [_surface(found[box]), _surface(real[box])]
    near = [edge & (ndimage.distance_transform_edt(~other) <= tolerance) for edge, other in (edges, edges[::-1])]
    return float((near[0].sum() + near[1].sum()) / (edges[0].sum() + edges[1].sum()))


def _box(mask: Array) -> tuple[slice, ...]:
    """Give the smallest box around a mask that is not empty."""
    axes = (tuple(other for other in range(mask.ndim) if other != axis) for axis in range(mask.ndim))
    ends = [np.flatnonzero(mask.any(axis=rest))[[0, -1]] for rest in axes]
    return tuple(slice(int(first), int(last) + 1) for first, last in ends)


def _surface(mask: Array) -> Array:
    """Mark the voxels of a mask with a neighbour outside it; outside the frame is outside."""
    return np.asarray(mask & ~ndimage.binary_erosion(mask))


def cross_entropy(predicted: Array, truth: Array, *, margin: float = 1e-6) -> Array:
    """Give the mean binary cross-entropy per pixel; probabilities are kept `margin` away from 0 and 1."""
    if not (isinstance(margin, float) and 0 < margin < 0.5):
        raise RecipeError(f"`margin` must lie in (0, 0.5). Got {margin!r} instead.")
    real = np.asarray(truth)
    if real.size and not (real.min() >= 0 and real.max() <= 1):  # also where one is not a number
        raise DataError("`truth` must lie in [0, 1]. Got values outside instead.")
    return np.array([_cross_entropy(np.clip(found, margin, 1 - margin), real) for found, real in _pairs(predicted, truth)])


def _cross_entropy(sure: Array, real: Array) -> float:
    return float(-(real * np.log(sure) + (1 - real) * np.log1p(-sure)).mean())


def squared_error(predicted: Array, truth: Array) -> Array:
    """Give the mean squared error per pixel."""
    return np.array([float(((found - real) ** 2).mean()) for found, real in _pairs(predicted, truth)])


def best_threshold(predicted: Array, public: Public, *, thresholds: npt.ArrayLike = THRESHOLDS) -> float:
    """Choose the threshold with the highest mean Dice on public masks. One chosen on private masks would be a release."""
    if not isinstance(public, Public) or public.targets is None:
        raise DataError("`public` must be Public with masks: a threshold tuned on private ones is a release. Got others instead.")
    tried = np.asarray(thresholds, dtype=np.float64)
    scores = [float(dice(predicted, public.targets, threshold=float(threshold)).mean()) for threshold in tried]
    return float(tried[int(np.argmax(scores))])


def _pairs(predicted: Array, truth: Array) -> Iterator[tuple[Array, Array]]:
    """Go through predictions and truths record by record: volumes are large, and one at a time is enough."""
    found, real = np.asarray(predicted), np.asarray(truth)
    if found.shape != real.shape or found.ndim < 2:
        raise DataError(
            f"`predicted` and `truth` must have one shape (records, *shape). Got {found.shape} and {real.shape} instead."
        )
    return ((one.astype(np.float64), other.astype(np.float64)) for one, other in zip(found, real, strict=True))
