"""Compute features of small random convolutional networks: never trained, drawn from a public seed, each image on its own.

Means of such features tell distributions apart (Li et al., Neural distance embedding; Zheng & Li, NDPDC, 2024). All features are
non-negative and an image's features have length at most 1, so that two images' differ by at most √2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError

if TYPE_CHECKING:  # a description needs no torch
    from tutelage.nets.random_network import RandomNetwork

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class RandomNetworks:
    """Describe random networks for images (n, channels, side, side): how many, how wide, and the public seed of their weights."""

    networks: int = 20
    width: int = 16
    seed: int = 0
    shown: int = 24  # channels of the middle layer that are features; of the last layer all are

    def __post_init__(self) -> None:
        for name, least in (("networks", 1), ("width", 1), ("seed", 0), ("shown", 1)):
            if getattr(self, name) < least:
                raise DataError(f"`{name}` must be at least {least}. Got {getattr(self, name)} instead.")

    def plain(self) -> dict[str, Any]:
        """Give the description as plain data, to be hashed and released."""
        return {
            "features": "random-networks/1",
            "networks": self.networks,
            "width": self.width,
            "seed": self.seed,
            "shown": self.shown,
        }

    def features_of_one(self, shape: tuple[int, ...]) -> int:
        """Count the features of one network for images of this shape (channels, side, side)."""
        middle, last = shape[1] // 4, shape[1] // 8
        return min(self.shown, self.width) * middle**2 + self.width * last**2

    def built(self, shape: tuple[int, ...], *, device: str = "cpu") -> list[RandomNetwork]:
        """Draw the networks. The same seed gives the same weights on every machine."""
        from tutelage.nets.random_network import RandomNetwork

        if len(shape) != 3 or shape[1] != shape[2] or shape[1] < 8:
            raise DataError(f"`shape` must be (channels, side, side) with a side of at least 8. Got {shape} instead.")
        seeds = range(self.networks)
        return [RandomNetwork(shape[0], self.width, self.shown, [self.seed, number]).to(device) for number in seeds]

    def __call__(self, images: Array, *, device: str = "cpu") -> Array:
        """Give all networks' features (n, networks · features), together of length 1."""
        import torch

        shape = np.asarray(images).shape[1:]
        x = torch.as_tensor(np.ascontiguousarray(images), dtype=torch.float32, device=device)
        with torch.no_grad():
            parts = [network(x) for network in self.built(shape, device=device)]
        return np.asarray((torch.cat(parts, 1) / math.sqrt(self.networks)).cpu().numpy())
