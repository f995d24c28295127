"""What a segmentation model says of one volume: four signals, each higher for members, to be calibrated volume by volume.

A hard volume has a high loss whether it was learned or not: signals are compared with what models without it say of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
SIGNALS = ("mean cross-entropy", "Dice", "boundary", "worst voxels")
_WORST = 0.01  # the share of voxels whose cross-entropy is highest
_LEAST = 1e-7


def signals(probabilities: npt.ArrayLike, masks: npt.ArrayLike) -> Array:
    """Give (volumes, 4) from probabilities and masks of zeros and ones, both (volumes, *space): names in SIGNALS."""
    given, truth = np.asarray(probabilities, dtype=np.float64), np.asarray(masks) > 0
    if given.shape != truth.shape or given.ndim < 3:
        raise DataError(f"`probabilities` must be (volumes, *space) as the masks. Got {given.shape} and {truth.shape} instead.")
    if wrong := int((~np.isfinite(given.reshape(len(given), -1))).any(axis=1).sum()):
        raise DataError(f"`probabilities` must be finite. Got {wrong} of {len(given)} volumes with others instead.")
    return np.stack([_one(volume, mask) for volume, mask in zip(given, truth, strict=True)]) if len(given) else np.empty((0, 4))


def _one(probability: Array, mask: Array) -> Array:
    chance = np.clip(probability, _LEAST, 1 - _LEAST)
    entropy = -np.log(np.where(mask, chance, 1 - chance))
    overlap = 2 * chance[mask].sum() / (chance.sum() + mask.sum())
    edge = ndimage.binary_dilation(mask) & ~ndimage.binary_erosion(mask)
    boundary = entropy[edge].mean() if edge.any() else entropy.mean()
    count = max(1, round(_WORST * entropy.size))
    worst = np.partition(entropy.reshape(-1), -count)[-count:].mean()
    return np.asarray([-entropy.mean(), overlap, -boundary, -worst])


def calibrated(target: npt.ArrayLike, models: npt.ArrayLike, inside: npt.ArrayLike) -> Array:
    """Subtract what models without a volume say of it, over their deviation: (volumes, signals), higher for members.

    `target` is (volumes, signals), `models` (models, volumes, signals), `inside` (models, volumes).
    """
    one, many = np.asarray(target, dtype=np.float64), np.asarray(models, dtype=np.float64)
    outside = ~np.asarray(inside, dtype=bool)
    if many.shape[1:] != one.shape or outside.shape != many.shape[:2] or not (outside.sum(axis=0) >= 2).all():
        raise DataError("`inside` must leave every volume out of at least two models. Got other shapes, or fewer, instead.")
    known = np.where(outside[:, :, None], many, np.nan)
    return np.asarray((one - np.nanmean(known, axis=0)) / (np.nanstd(known, axis=0) + 1e-12))
