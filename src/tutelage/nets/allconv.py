"""The all-convolutional network that Salimans et al. 2016 let tell real colour images from forged ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import nn

from tutelage.nets.layers import Standardise
from tutelage.privacy.errors import RecipeError


@final
@dataclass(frozen=True, kw_only=True)
class AllConv:
    """Build three convolutions per width, the third with stride 2, one more and two of 1×1, and the mean over the image.

    The defaults are the paper's for SVHN; for CIFAR-10 it has widths 96 and 192.
    """

    shape: tuple[int, int, int] = (3, 32, 32)
    classes: int = 10
    widths: tuple[int, ...] = (64, 128)
    slope: float = 0.2  # of the ReLU below zero
    centre: float = 0.5
    spread: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "widths", tuple(self.widths))
        if not self.widths:
            raise RecipeError("`widths` must name at least one width. Got none instead.")
        if -(-min(self.shape[1:]) >> len(self.widths)) < 3:  # odd sides are rounded up
            raise RecipeError(
                f"`widths` must leave 3×3 pixels of a {self.shape[1:]} image, halved once each. Got {self.widths} instead."
            )

    def __call__(self) -> nn.Module:
        """Build one network: (batch, channels, height, width) in [0, 1] → (batch, classes)."""
        layers: list[nn.Module] = [Standardise(self.centre, self.spread)]
        channels = self.shape[0]
        for out in self.widths:
            for stride in (1, 1, 2):
                layers += [nn.Conv2d(channels, out, 3, stride=stride, padding=1), nn.LeakyReLU(self.slope)]
                channels = out
        for kernel in (3, 1, 1):  # without a margin
            layers += [nn.Conv2d(channels, channels, kernel), nn.LeakyReLU(self.slope)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, self.classes))
