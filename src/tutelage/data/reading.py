"""How the files of one scan become arrays: its format, the spacing that it is brought to, and the window of its values.

All of it is public and declared. Each scan is read by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
Format = Literal["nifti", "dicom", "images"]
_LARGEST = 2048  # voxels along a side of a resampled scan: a header of nonsense must not fill memory


@final
@dataclass(frozen=True)
class Reading:
    """Say how files become arrays. `intensity` (low, high) becomes [0, 1]; without it a volume has its own mean and spread."""

    format: Format = "nifti"
    channels: int = 1  # of image files
    spacing: tuple[float, ...] | None = None  # millimetres of a voxel, right, front and up
    intensity: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.spacing is not None and not (len(self.spacing) == 3 and all(0 < one < math.inf for one in self.spacing)):
            raise RecipeError(f"`spacing` must be three millimetres > 0. Got {self.spacing!r} instead.")
        if self.intensity is not None and not (len(self.intensity) == 2 and self.intensity[0] < self.intensity[1]):
            raise RecipeError(f"`intensity` must be two numbers, the lower first. Got {self.intensity!r} instead.")

    def windowed(self, volume: Array) -> Array | None:
        """Cut values to the window and bring them to [0, 1]; None where no window is declared."""
        if self.intensity is None:
            return None
        low, high = self.intensity
        return np.asarray(np.clip((volume.astype(np.float32) - low) / (high - low), 0, 1), dtype=np.float32)

    def resampled(self, volume: Array, affine: Array, *, order: int) -> Array:
        """Bring a volume to the declared spacing: 1 between voxels of an image, 0 the nearest of a mask."""
        if self.spacing is None:
            return volume
        return resized(volume, tuple(scaled(volume.shape[:3], affine, self.spacing)), order=order)


NIFTI = Reading()


def scaled(shape: Sequence[int], affine: Array, spacing: Sequence[float]) -> list[int]:
    """Give the size that a volume has at another spacing."""
    own = np.sqrt((np.asarray(affine, dtype=np.float64)[:3, :3] ** 2).sum(axis=0))
    if not (np.isfinite(own).all() and (own > 0).all()):
        raise DataError("Every scan must have a spacing > 0. Got another instead.")
    sides = [max(1, round(side * have / want)) for side, have, want in zip(shape, own.tolist(), spacing, strict=True)]
    if max(sides) > _LARGEST:
        raise DataError(f"Every scan must have at most {_LARGEST} voxels a side at the declared spacing. Got more instead.")
    return sides


def resized(volume: Array, size: Sequence[int], *, order: int) -> Array:
    """Bring a volume to a size, its corners where they were."""
    if tuple(volume.shape) == tuple(size):
        return volume
    factors = [want / have for want, have in zip(size, volume.shape, strict=True)]
    made = ndimage.zoom(volume, factors, order=order, mode="nearest", grid_mode=True)
    return np.asarray(made[tuple(slice(0, side) for side in size)], dtype=volume.dtype)
