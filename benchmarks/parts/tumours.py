"""Brain volumes drawn by code, of the size of BraTS: masks about which teachers agree up to a little, and heads around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Array = npt.NDArray[Any]
SHAPE = (240, 240, 155)
TISSUES, NOISE, BRIGHT = (1.0, -0.5), 0.25, 1.5  # grey levels, a voxel's deviation, and how much brighter the tumour is


def tumour(volume: int, teacher: int, shape: tuple[int, ...] = SHAPE) -> Array:
    """Draw a mask of two overlapping ellipsoids; teachers agree about a volume up to a little."""
    ours, mine = np.random.default_rng(volume), np.random.default_rng((volume, 1 + teacher))
    mask = np.zeros(shape, dtype=bool)
    for _ in range(2):
        centre = np.array(shape) * (0.5 + ours.uniform(-0.15, 0.15, 3) + mine.uniform(-0.01, 0.01, 3))
        radius = ours.uniform(15, 40, 3) * mine.uniform(0.93, 1.07, 3)
        squares = [((np.arange(size, dtype=np.float32) - c) / r) ** 2 for size, c, r in zip(shape, centre, radius, strict=True)]
        mask |= squares[0][:, None, None] + squares[1][:, None] + squares[2] <= 1
    return mask


def head(volume: int, mask: Array) -> Array:
    """Draw an image (*shape) float32 around a mask: folds of two tissues in noise, and nothing outside of the head."""
    rng, coarse = np.random.default_rng((volume, 0)), (12, 12, 8)
    folds = ndimage.zoom(rng.normal(size=coarse), [size / few for size, few in zip(mask.shape, coarse, strict=True)], order=1)
    image = np.where(folds > 0, *TISSUES) + rng.normal(0, NOISE, mask.shape) + BRIGHT * mask
    down, right, up = (np.linspace(-1, 1, size) / part for size, part in zip(mask.shape, (0.62, 0.75, 0.8), strict=True))
    inside = down[:, None, None] ** 2 + right[:, None] ** 2 + up**2 < 1
    return np.where(inside, image, 0).astype(np.float32)
