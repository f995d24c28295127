"""Differentiable Siamese augmentation (Zhao & Bilen 2021): one drawn distortion for real and synthetic images alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.privacy.errors import RecipeError

KINDS = ("colour", "crop", "cutout", "flip", "scale", "rotate")
DRAWS = 8  # uniform numbers per image


@final
@dataclass(frozen=True)
class Siamese:
    """Say which distortions one is drawn from at every call. Strengths are those of the paper's code.

    Randomness is drawn first (`draw`), so that two sets can share it: one row for all images (Siamese), or one per image.
    """

    kinds: tuple[str, ...] = KINDS

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(self.kinds))
        strangers = [kind for kind in self.kinds if kind not in KINDS]
        if strangers:
            raise RecipeError(f"`kinds` must be among {', '.join(KINDS)}. Got {strangers[0]!r} instead.")

    def draw(self, count: int, *, generator: torch.Generator, device: torch.device | None = None) -> tuple[str, Tensor]:
        """Draw which distortion is next, and the randomness of `count` images: a kind and (count, 8)."""
        place = generator.device
        kind = self.kinds[int(torch.randint(len(self.kinds), (1,), generator=generator, device=place))] if self.kinds else ""
        return kind, torch.rand(count, DRAWS, generator=generator, device=place).to(device or place)

    def __call__(self, images: Tensor, drawn: tuple[str, Tensor]) -> Tensor:
        """Distort images (n, channels, height, width) in [0, 1]; one row of draws serves all of them."""
        kind, draws = drawn
        draws = draws.expand(len(images), -1)
        return _APPLY[kind](images, draws) if kind else images


def _colour(images: Tensor, draws: Tensor) -> Tensor:
    """Change brightness, saturation and contrast."""
    b, s, c = (draws[:, i, None, None, None] for i in (0, 1, 2))
    images = images + (b - 0.5)
    grey = images.mean(dim=1, keepdim=True)
    images = (images - grey) * (2 * s) + grey if images.shape[1] > 1 else images
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    return (images - middle) * (c + 0.5) + middle


def _crop(images: Tensor, draws: Tensor) -> Tensor:
    """Shift by up to an eighth of a side; zeros come in."""
    height, width = images.shape[-2:]
    rows = (torch.floor(draws[:, 0] * (2 * (height // 8) + 1)) - height // 8).long()
    columns = (torch.floor(draws[:, 1] * (2 * (width // 8) + 1)) - width // 8).long()
    y = (
        torch.arange(height, device=images.device) + rows[:, None] + 1
    )  # the first row and column of the padding stand for outside
    x = torch.arange(width, device=images.device) + columns[:, None] + 1
    padded = F.pad(images, (1, 1, 1, 1))
    y, x = y.clamp(0, height + 1), x.clamp(0, width + 1)
    n = torch.arange(len(images), device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[n, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


def _cutout(images: Tensor, draws: Tensor) -> Tensor:
    """Blank one square of half a side."""
    height, width = images.shape[-2:]
    y = torch.arange(height, device=images.device) + 0.5
    x = torch.arange(width, device=images.device) + 0.5
    far = (y - draws[:, 0, None] * height).abs() > height / 4, (x - draws[:, 1, None] * width).abs() > width / 4
    return images * (far[0][:, :, None] | far[1][:, None, :])[:, None]


def _flip(images: Tensor, draws: Tensor) -> Tensor:
    return torch.where((draws[:, 0] < 0.5)[:, None, None, None], images.flip(3), images)


def _scale(images: Tensor, draws: Tensor) -> Tensor:
    """Stretch each axis by up to 1.2."""
    low, high = 1 / 1.2, 1.2
    sx, sy = (low + (high - low) * draws[:, i] for i in (0, 1))
    zero = torch.zeros_like(sx)
    return _bent(images, torch.stack([torch.stack([sx, zero, zero], -1), torch.stack([zero, sy, zero], -1)], 1))


def _rotate(images: Tensor, draws: Tensor) -> Tensor:
    """Turn by up to 15 degrees."""
    angle = (draws[:, 0] - 0.5) * 2 * 15 * torch.pi / 180
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    return _bent(images, torch.stack([torch.stack([cos, -sin, zero], -1), torch.stack([sin, cos, zero], -1)], 1))


def _bent(images: Tensor, theta: Tensor) -> Tensor:
    grid = F.affine_grid(theta.to(images.dtype), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


_APPLY = {"colour": _colour, "crop": _crop, "cutout": _cutout, "flip": _flip, "scale": _scale, "rotate": _rotate}


ALL = Siamese()
