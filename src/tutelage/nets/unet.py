"""A U-Net for masks of images and of volumes, as a factory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.nets.layers import Halve
from tutelage.nets.presets import TOPS
from tutelage.nets.slices import Slices
from tutelage.privacy.errors import RecipeError

Which = Literal["head", "norms", "last", "all"]


@final
@dataclass(frozen=True, kw_only=True)
class UNet:
    """Build a U-Net for images (channels, height, width) or volumes (channels, depth, height, width)."""

    shape: tuple[int, ...] = (1, 64, 64)
    widths: tuple[int, ...] = (16, 32, 64)  # from the full size down; every step halves it
    groups: int = 8
    outputs: int = 1  # logits per pixel; one is a mask

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "widths", tuple(self.widths))
        if len(self.shape) not in (3, 4):
            raise RecipeError(f"`shape` must be (channels, *space) of an image or a volume. Got {self.shape} instead.")
        if not self.widths or self.groups < 1 or any(width % self.groups for width in self.widths):
            raise RecipeError(f"`groups` must divide every width of {self.widths}. Got {self.groups!r} instead.")
        if min(self.shape[1:]) >> (len(self.widths) - 1) < 1:
            raise RecipeError(f"`widths` must not halve a {self.shape[1:]} image to nothing. Got {self.widths} instead.")
        if self.outputs < 1:
            raise RecipeError(f"`outputs` must be ≥ 1. Got {self.outputs!r} instead.")

    def __call__(self) -> nn.Module:
        """Build one network: (batch, channels, *space) → logits (batch, outputs, *space)."""
        return Levels(self)


@final
class Levels(nn.Module):
    """Go down through the levels and up again, each time past what was seen at that level on the way down."""

    def __init__(self, plan: UNet) -> None:
        super().__init__()
        space, widths = len(plan.shape) - 1, plan.widths
        below = (plan.shape[0], *widths)
        self.downs = nn.ModuleList(Twice(below[i], out, space, plan.groups) for i, out in enumerate(widths))
        self.halve = Halve()
        self.ups = nn.ModuleList(
            Twice(deep + skip, skip, space, plan.groups) for skip, deep in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.head = convolution(space)(widths[0], plan.outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen: list[Tensor] = []
        for level, down in enumerate(self.downs):
            x = down(self.halve(x) if level else x)
            seen.append(x)
        for up, skip in zip(self.ups, seen[-2::-1], strict=True):
            x = F.interpolate(x, size=skip.shape[2:], mode="nearest")  # to the skip's size: odd ones lost a row on the way down
            x = up(torch.cat([skip, x], dim=1))
        return self.head(x)


@final
class Twice(nn.Module):
    """Convolve, normalise, cut off below zero; twice."""

    def __init__(self, channels: int, out: int, space: int, groups: int) -> None:
        super().__init__()
        self.first = convolution(space)(channels, out, 3, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(groups, out)
        self.second = convolution(space)(out, out, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(groups, out)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second_norm(self.second(F.relu(self.first_norm(self.first(x))))))


def convolution(space: int) -> type[nn.Conv2d] | type[nn.Conv3d]:
    """Name the convolution of this many dimensions."""
    return nn.Conv2d if space == 2 else nn.Conv3d


def free_parameters(network: nn.Module, which: Which) -> list[str]:
    """Name the parameters that a student frees where it may not free all: few enough to be told by few noisy answers.

    "head": the last convolution; "norms": scales and shifts of every norm, and the head; "last": the last way up, and
    the head; "all": every one.
    """
    if which not in get_args(Which):
        raise RecipeError(f"`which` must be one of {get_args(Which)}. Got {which!r} instead.")
    names = [name for name, _ in network.named_parameters()]
    if which == "all":
        return names
    head, last = _top(network)
    free = [head]
    if which == "norms":
        free += [f"{name}." for name, layer in network.named_modules() if isinstance(layer, nn.GroupNorm)]
    if which == "last":
        free += [last]
    return [name for name in names if name.startswith(tuple(free))]


def _top(network: nn.Module) -> tuple[str, str]:
    """Tell how the names of the last convolution's parameters begin, and those of the way up before it."""
    if isinstance(network, Levels):
        return "head.", f"ups.{len(network.ups) - 1}." if len(network.ups) else "head."
    if isinstance(network, Slices):
        head, last = _top(network.plane)
        return f"plane.{head}", f"plane.{last}"
    kind = type(network)
    if kind.__module__.startswith("monai.") and kind.__name__ in TOPS:
        return TOPS[kind.__name__]
    raise RecipeError(f"`network` must be one that `UNet` or a `Preset` built. Got {kind.__name__} instead.")
