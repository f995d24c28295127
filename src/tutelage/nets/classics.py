"""The networks that distilled sets are judged by: ConvNet-3 with instance norms, and an AlexNet for small images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import nn

from tutelage.nets.layers import Standardise
from tutelage.privacy.errors import RecipeError


@final
@dataclass(frozen=True, kw_only=True)
class NormedConvNet:
    """Build ConvNet-3 of the distillation papers: 3×3 convolution, instance norm, ReLU, average pool per stage, one linear layer.

    An instance norm is a group norm with as many groups as channels, so no image's scores depend on its company.
    """

    shape: tuple[int, int, int] = (3, 32, 32)
    classes: int = 10
    width: int = 128
    depth: int = 3
    centre: float = 0.5
    spread: float = 0.25

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.width < 1 or self.depth < 1:
            raise RecipeError(f"`width` and `depth` must be ≥ 1. Got {self.width!r} and {self.depth!r} instead.")
        if min(self.shape[1:]) >> self.depth < 1:
            raise RecipeError(f"`depth` must not halve a {self.shape[1:]} image to nothing. Got {self.depth!r} instead.")

    @property
    def features(self) -> int:
        """Count the numbers that go into the linear layer."""
        return self.width * math.prod(side >> self.depth for side in self.shape[1:])

    def stages(self) -> Iterator[nn.Sequential]:
        """Build the convolutional stages, each of which halves the image."""
        channels = self.shape[0]
        for _ in range(self.depth):
            norm = nn.GroupNorm(self.width, self.width)
            yield nn.Sequential(nn.Conv2d(channels, self.width, 3, padding=1), norm, nn.ReLU(), nn.AvgPool2d(2))
            channels = self.width

    def __call__(self) -> nn.Module:
        """Build one network: (batch, channels, height, width) in [0, 1] → (batch, classes)."""
        head = nn.Linear(self.features, self.classes)
        return nn.Sequential(Standardise(self.centre, self.spread), *self.stages(), nn.Flatten(), head)


def stages_for(shape: tuple[int, ...], most: int = 3) -> int:
    """Say how many times images (channels, height, width) may be halved so that at least 2×2 is left, up to `most`."""
    return max(1, min(most, *(side.bit_length() - 2 for side in shape[1:])))


@final
@dataclass(frozen=True, kw_only=True)
class AlexNet:
    """Build the AlexNet that dataset condensation uses on images of 28 or 32 pixels: five convolutions, one linear layer."""

    shape: tuple[int, int, int] = (3, 32, 32)
    classes: int = 10
    centre: float = 0.5
    spread: float = 0.25

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if min(self.shape[1:]) < 8:
            raise RecipeError(f"`shape` must have sides of at least 8. Got {self.shape!r} instead.")

    def __call__(self) -> nn.Module:
        """Build one network: (batch, channels, height, width) in [0, 1] → (batch, classes)."""
        channels, height, width = self.shape
        layers: list[nn.Module] = [Standardise(self.centre, self.spread)]
        for out, kernel, halve in ((128, 5, True), (192, 5, True), (256, 3, False), (192, 3, False), (192, 3, True)):
            layers += [nn.Conv2d(channels, out, kernel, padding=kernel // 2), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if halve else []
            channels = out
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * (height // 8) * (width // 8), self.classes))
