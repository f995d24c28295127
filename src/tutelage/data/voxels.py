"""What a scan is allowed to hold, and what becomes of the rest: one voxel at a time, by constants that are public.

Voxels of an image that are no finite number are 0. Numbers of a mask are rounded to whole ones; what is no finite number, is
below 0, or is none of the object's labels, is background. Neither other scans nor the rest of this one decide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_WHOLE = 1e-3  # how far a number of a mask may be from a whole one without a word: headers scale in single precision

IMAGE = "voxels that are no finite number (they count as 0)"
MASK = "mask numbers that are not finite, below 0 or not whole (they are rounded; what is no label then is background)"


def clean_image(volume: Array) -> tuple[Array, bool]:
    """Put 0 for what is no finite number, and tell whether there was any."""
    odd = not np.isfinite(volume).all()
    return (np.nan_to_num(volume, nan=0.0, posinf=0.0, neginf=0.0) if odd else volume), odd


def clean_mask(mask: Array, labels: Sequence[int]) -> tuple[Array, bool]:
    """Give the object as zeros and ones, and tell whether the mask held anything but whole numbers from 0."""
    known = np.where(np.isfinite(mask), mask, -1.0)
    nearest = np.rint(known)
    odd = bool((known < 0).any() or (np.abs(known - nearest) > _WHOLE).any())
    held = (np.isin(nearest, labels) if labels else nearest > 0) & (nearest >= 0)
    return held.astype(np.uint8), odd
