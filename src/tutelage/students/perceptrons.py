"""The players of Salimans et al. 2016 for MNIST: every pixel is seen by every unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.nets.networks import Factory, Perceptron
from tutelage.students.players import Discriminator, Players, Shake, begin, levelled, one_norm


@final
@dataclass(frozen=True, kw_only=True)
class Perceptrons:
    """Say how wide two perceptrons are, how fast they learn, and with what noise; the defaults are the paper's for MNIST."""

    rate: float = 3e-3
    widths: tuple[int, ...] = (1000, 500, 250, 250, 250)
    generator: tuple[int, ...] = (500, 500)
    input_noise: float = 0.3  # deviation of what is added to inputs, and to hidden layers
    hidden_noise: float = 0.5

    def factory(self, shape: tuple[int, ...], classes: int) -> Perceptron:
        """Name the network that is published."""
        return Perceptron(features=math.prod(shape), classes=classes, widths=self.widths)

    def players(self, factory: Factory, shape: tuple[int, ...], some: Tensor, latent: Tensor) -> Players:
        """Build both for inputs of this shape; the critic's layers begin with scales that suit some of them."""
        network = factory().to(some.device)
        parts: list[nn.Module] = []
        for index, layer in enumerate(network):
            if isinstance(layer, nn.Linear):
                noise = self.hidden_noise if index > 1 else self.input_noise
                parts += [Shake(noise), one_norm(layer, 0.1, free=index + 1 == len(network))]
            else:
                parts.append(layer)
        begin(parts, some)
        critic = Discriminator(nn.Sequential(*parts[:-2]), nn.Sequential(*parts[-2:]))
        return Players(network, critic.train(), self._forger(shape, latent), F.mse_loss)

    def _forger(self, shape: tuple[int, ...], latent: Tensor) -> nn.Module:
        """Build the generator: uniform numbers in, pixels in [0, 1] out."""
        layers: list[nn.Module] = []
        size = latent.shape[1]
        for width in self.generator:
            linear = nn.Linear(size, width, bias=False)
            nn.init.xavier_uniform_(linear.weight)
            layers += [linear, levelled(nn.BatchNorm1d(width, track_running_stats=False)), nn.Softplus()]
            size = width
        layers += [one_norm(nn.Linear(size, math.prod(shape)), 0.05, free=True), nn.Sigmoid(), nn.Unflatten(1, shape)]
        return nn.Sequential(*layers).to(latent.device).train()
