"""Pieces that several networks are put together from."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@final
class Standardise(nn.Module):
    """Shift and scale by constants that were chosen without looking at any data."""

    def __init__(self, centre: float, spread: float) -> None:
        super().__init__()
        self.centre, self.spread = centre, spread

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.centre) / self.spread


@final
class Halve(nn.Module):
    """Keep the largest of every 2×2 pixels, or of every 2×2×2 voxels."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return F.max_pool2d(x, 2) if x.ndim == 4 else F.max_pool3d(x, 2)
        # Without a gradient to carry, comparing slices takes a CPU a tenth of the pooling kernel's time.
        for axis in range(2, x.ndim):
            whole = x.narrow(axis, 0, x.shape[axis] // 2 * 2).unflatten(axis, (-1, 2))
            x = torch.maximum(whole.select(axis + 1, 0), whole.select(axis + 1, 1))
        return x
