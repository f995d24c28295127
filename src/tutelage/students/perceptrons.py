"""The players of Salimans et al. 2016 for MNIST: every pixel is seen by every unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tutelage.nets.networks import Factory, Perceptron
from tutelage.students.players import Discriminator, Players


@final
class Shake(nn.Module):
    """Add noise of one deviation to everything that passes, while the network learns."""

    def __init__(self, deviation: float) -> None:
        super().__init__()
        self.deviation = deviation

    def forward(self, x: Tensor) -> Tensor:
        # The paper shakes with a Gaussian; as a regulariser only the spread counts, and uniform numbers have it.
        return torch.rand_like(x).sub_(0.5).mul_(self.deviation * math.sqrt(12)).add_(x) if self.training else x


@final
@dataclass(frozen=True, kw_only=True)
class Perceptrons:
    """Say how wide two perceptrons are, how fast they learn, and with what noise; the paper's for MNIST, but for the rate.

    The authors learn at 3e-3, and lengths of weights stay as they began. In runs of 6,000 steps such students were worse
    (docs/guide/pate.md): here lengths are free.
    """

    rate: float = 1e-3
    average: float = 0.999
    widths: tuple[int, ...] = (1000, 500, 250, 250, 250)
    generator: tuple[int, ...] = (500, 500)
    input_noise: float = 0.3  # deviation of what is added to inputs, and to hidden layers
    hidden_noise: float = 0.5

    def factory(self, shape: tuple[int, ...], classes: int) -> Perceptron:
        """Name the network that is published."""
        return Perceptron(features=math.prod(shape), classes=classes, widths=self.widths)

    def players(self, factory: Factory, shape: tuple[int, ...], some: Tensor, latent: Tensor) -> Players:
        """Build both for inputs of this shape."""
        network = factory().to(some.device)
        parts: list[nn.Module] = []
        for index, layer in enumerate(network):
            if isinstance(layer, nn.Linear):
                parts += [Shake(self.hidden_noise if index > 1 else self.input_noise), weight_norm(layer)]
            else:
                parts.append(layer)
        critic = Discriminator(nn.Sequential(*parts[:-2]), nn.Sequential(*parts[-2:]))
        return Players(network, critic.train(), self._forger(shape, latent), F.mse_loss)

    def _forger(self, shape: tuple[int, ...], latent: Tensor) -> nn.Module:
        """Build the generator: uniform numbers in, pixels in [0, 1] out."""
        layers: list[nn.Module] = []
        size = latent.shape[1]
        for width in self.generator:
            layers += [nn.Linear(size, width), nn.BatchNorm1d(width), nn.Softplus()]
            size = width
        layers += [nn.Linear(size, math.prod(shape)), nn.Sigmoid(), nn.Unflatten(1, shape)]
        return nn.Sequential(*layers).to(latent.device).train()
