"""Formations: one stored image holds f×f smaller ones (partition and expand; Kim et al. 2022), so a set shows f² as many."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.privacy.errors import RecipeError


def check_formation(factor: int, shape: tuple[int, ...]) -> None:
    """Refuse a factor that does not divide an image into whole parts."""
    if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
        raise RecipeError(f"`formation` must be a whole number ≥ 1. Got {factor!r} instead.")
    if any(side // factor < 2 for side in shape[-2:]):
        raise RecipeError(f"`formation` must leave parts of at least 2×2 pixels. Got {factor!r} for {shape[-2:]} instead.")


def expand(images: Tensor, factor: int) -> Tensor:
    """Cut every stored image into f×f parts and bring each to full size: (n, c, h, w) → (n·f², c, h, w), parts side by side."""
    if factor == 1:
        return images
    count, channels, height, width = images.shape
    rows, columns = [height * i // factor for i in range(factor + 1)], [width * i // factor for i in range(factor + 1)]
    parts = [
        F.interpolate(images[:, :, top:bottom, left:right], (height, width), mode="bilinear", align_corners=False)
        for top, bottom in pairwise(rows)
        for left, right in pairwise(columns)
    ]
    return torch.stack(parts, dim=1).reshape(count * factor**2, channels, height, width)


def expand_labels(labels: Tensor, factor: int) -> Tensor:
    """Give every part its stored image's label, or, of labels (n, f², classes), each part its own."""
    if labels.ndim == 3:
        return labels.flatten(0, 1)
    return labels.repeat_interleave(factor**2, dim=0)
