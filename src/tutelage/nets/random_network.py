"""One random convolutional network: three layers whose weights follow from a public seed."""

from __future__ import annotations

import math
from typing import final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


@final
class RandomNetwork(nn.Module):
    """Three random convolutions, each followed by ReLU and pooling. No image of a batch touches another's features."""

    def __init__(self, channels: int, width: int, shown: int, seed: list[int]) -> None:
        super().__init__()
        rng = np.random.Generator(np.random.PCG64(seed))
        self.shown = shown
        for name, before in (("first", channels), ("second", width), ("third", width)):
            layer = nn.Conv2d(before, width, 3, padding=1)
            with torch.no_grad():
                spread = math.sqrt(2 / (9 * before))
                layer.weight.copy_(torch.as_tensor(rng.standard_normal((width, before, 3, 3)) * spread))
                layer.bias.copy_(torch.as_tensor(rng.standard_normal(width) * 0.3))
            setattr(self, name, layer.requires_grad_(False))

    def forward(self, x: Tensor) -> Tensor:
        """Give features (n, d) of length at most 1, none negative, of images in 0…1."""
        x = F.avg_pool2d(F.relu(self.first(2 * x - 1)), 2)
        middle = F.avg_pool2d(F.relu(self.second(x)), 2)
        last = F.avg_pool2d(F.relu(self.third(middle)), 2)
        both = [part.flatten(1).float() for part in (middle[:, : self.shown], last)]
        return torch.cat([part / (part.norm(dim=1, keepdim=True) + 1e-6) for part in both], 1) / math.sqrt(2)
