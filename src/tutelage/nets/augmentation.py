"""Label-preserving distortion of a whole batch at once, on whatever device the batch lies."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.privacy.errors import RecipeError

SINGLE = 11  # uniform numbers that steer single settings; the elastic knots follow
LATTICE = 5  # knots per side of the elastic field that fall on the image; cubic B-splines need two more


@final
@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Say how far an image may be bent before it would change its label. All zeros leave images as they are.

    Randomness is drawn first (`draw`) and used later (`apply`), so that K networks can each keep a stream of their own
    while one call distorts all their batches.
    """

    rotation: float = 0.0  # degrees, either way
    scale: float = 0.0  # relative, either way, per axis
    shear: float = 0.0  # degrees, either way
    shift: float = 0.0  # pixels, either way, per axis
    elastic: float = 0.0  # pixels, root mean square of the smooth displacement
    cutout: int = 0  # side in pixels of one blanked square; 0 is none
    flip: bool = False  # mirror left and right, where that keeps the label: not for digits
    brightness: float = 0.0  # relative, either way
    keep: float = 0.0  # share of images left alone: moved pixels are blurred ones, and a network is asked about sharp ones
    padding: Literal["zeros", "border", "reflection"] = "zeros"  # what lies outside the image

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "padding" and not value >= 0:
                raise RecipeError(f"`{field.name}` must be ≥ 0. Got {value!r} instead.")
        for name in ("scale", "keep"):
            if getattr(self, name) >= 1:
                raise RecipeError(f"`{name}` must be below 1. Got {getattr(self, name)!r} instead.")
        if self.padding not in ("zeros", "border", "reflection"):
            raise RecipeError(f"`padding` must be 'zeros', 'border' or 'reflection'. Got {self.padding!r} instead.")

    @property
    def draws(self) -> int:
        """Count the uniform numbers one image takes."""
        return SINGLE + (2 * (LATTICE + 2) ** 2 if self.elastic else 0)

    def draw(self, count: int, *, generator: torch.Generator) -> Tensor:
        """Draw the randomness of `count` images on the generator's device."""
        return torch.rand(count, self.draws, generator=generator, device=generator.device)  # (count, draws)

    def __call__(self, images: Tensor, *, generator: torch.Generator) -> Tensor:
        """Distort images of shape (..., channels, height, width)."""
        return self.apply(images, self.draw(math.prod(images.shape[:-3]), generator=generator))

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Distort images (..., channels, height, width) by randomness drawn before (..., draws); pure."""
        flat = images.reshape(-1, *images.shape[-3:])  # (n, channels, height, width)
        signed = 2 * draws.reshape(-1, draws.shape[-1]) - 1  # (n, draws) in [-1, 1)
        if self.rotation or self.scale or self.shear or self.shift or self.elastic or self.flip:
            grid = self._grid(signed, *flat.shape[-2:]).to(flat.dtype)  # (n, height, width, 2)
            flat = F.grid_sample(flat, grid, mode="bilinear", padding_mode=self.padding, align_corners=False)
        if self.brightness:
            flat = (flat * (1 + self.brightness * signed[:, 9, None, None, None])).clamp(0, 1).to(images.dtype)
        if self.cutout:
            flat = flat * self._kept(signed, *flat.shape[-2:]).to(flat.dtype)
        if self.keep:
            alone = (signed[:, 10] + 1) / 2 < self.keep  # (n,)
            flat = torch.where(alone[:, None, None, None], images.reshape(flat.shape), flat)
        return flat.reshape(images.shape)

    def _grid(self, signed: Tensor, height: int, width: int) -> Tensor:
        """Compose flip, scale, shear, rotation, shift and the elastic field as sampling positions."""
        angle, slant = (math.pi / 180 * degrees * signed[:, i] for i, degrees in ((0, self.rotation), (1, self.shear)))
        stretch_x, stretch_y = (1 / (1 + self.scale * signed[:, i]) for i in (2, 3))
        if self.flip:
            stretch_x = stretch_x * torch.where(signed[:, 6] < 0, -1.0, 1.0)
        cos, sin, tan = torch.cos(angle), torch.sin(angle), torch.tan(slant)
        shift_x, shift_y = self.shift * signed[:, 4] * 2 / width, self.shift * signed[:, 5] * 2 / height
        top = torch.stack([cos * stretch_x, (cos * tan - sin) * stretch_x, shift_x], dim=-1)
        bottom = torch.stack([sin * stretch_y, (sin * tan + cos) * stretch_y, shift_y], dim=-1)
        x = (2 * torch.arange(width, device=signed.device, dtype=signed.dtype) + 1) / width - 1
        y = (2 * torch.arange(height, device=signed.device, dtype=signed.dtype) + 1) / height - 1
        ones = torch.ones(height, width, device=signed.device, dtype=signed.dtype)
        base = torch.stack([x * ones, y[:, None] * ones, ones], dim=-1).reshape(-1, 3)  # (height·width, 3)
        theta = torch.stack([top, bottom], dim=-1)  # (n, 3, 2)
        grid = (base @ theta).unflatten(1, (height, width))  # (n, height, width, 2)
        if self.elastic:
            grid = grid + self._field(signed[:, SINGLE:], height, width)
        return grid

    def _field(self, knots: Tensor, height: int, width: int) -> Tensor:
        """Spread random knots by cubic B-splines: a smooth field for the price of two small products."""
        knots = knots.reshape(-1, 2, LATTICE + 2, LATTICE + 2)  # uniform on [-1, 1)
        rows, columns = splines(height, device=knots.device), splines(width, device=knots.device)
        field = rows @ knots @ columns.T  # (n, 2, height, width)
        # A uniform knot has variance 1/3; the splines' mean squared weight per axis gives the rest.
        spread = (rows.square().sum(1).mean() * columns.square().sum(1).mean() / 3).sqrt()
        field = field * (self.elastic / spread)
        return torch.stack([field[:, 0] * 2 / width, field[:, 1] * 2 / height], dim=-1)

    def _kept(self, signed: Tensor, height: int, width: int) -> Tensor:
        """Mark what one blanked square leaves: (n, 1, height, width)."""
        middle_y, middle_x = (signed[:, 7] + 1) / 2 * height, (signed[:, 8] + 1) / 2 * width
        y = torch.arange(height, device=signed.device) + 0.5
        x = torch.arange(width, device=signed.device) + 0.5
        out_y = (y - middle_y[:, None]).abs() > self.cutout / 2  # (n, height)
        out_x = (x - middle_x[:, None]).abs() > self.cutout / 2  # (n, width)
        return (out_y[:, :, None] | out_x[:, None, :])[:, None]


def splines(size: int, *, device: torch.device, knots: int = LATTICE) -> Tensor:
    """Tabulate cubic B-spline weights of the knots at every pixel: (size, knots + 2)."""
    position = (torch.arange(size, device=device) + 0.5) / size * (knots - 1) + 1  # knots 1..`knots` lie on the image
    distance = (position[:, None] - torch.arange(knots + 2, device=device)).abs()
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = (2 - distance).clamp(min=0) ** 3 / 6
    return torch.where(distance < 1, near, far)


DIGITS = Augmentation(rotation=15, scale=0.15, shear=15, shift=2, elastic=1.0, keep=0.15)
CLOTHES = Augmentation(scale=0.1, shift=2, cutout=8, flip=True, keep=0.15)
COLOUR = Augmentation(shift=4, cutout=8, flip=True, brightness=0.2, padding="reflection")
