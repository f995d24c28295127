"""The players of Salimans et al. 2016 for SVHN and CIFAR-10: images are read and written by convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.nets.allconv import AllConv
from tutelage.nets.layers import Standardise
from tutelage.nets.networks import Factory
from tutelage.privacy.errors import DataError
from tutelage.students.norms import begin, levelled, one_norm
from tutelage.students.players import Discriminator, Players


@final
@dataclass(frozen=True, kw_only=True)
class Convolutions:
    """Say how wide two convolutional networks are, how fast they learn and what they drop; the defaults are the paper's for SVHN.

    The generator doubles its images once for every width of its own, so that sides must be multiples of 2 to that power.
    """

    rate: float = 3e-4
    average: float = 0.9999
    widths: tuple[int, ...] = (64, 128)
    generator: tuple[int, ...] = (512, 256, 128)
    input_noise: float = 0.2  # share of the inputs that is dropped, and of what comes out of every halving
    hidden_noise: float = 0.5

    def factory(self, shape: tuple[int, ...], classes: int) -> AllConv:
        """Name the network that is published; refuse inputs that are no images, or whose sides the generator cannot draw."""
        unit = 2 ** len(self.generator)
        if len(shape) != 3 or any(side % unit for side in shape[1:]):
            raise DataError(
                f"`public` must hold images, channels first, whose sides are multiples of {unit}, for a convolutional generator "
                f"of {len(self.generator)} widths. Got records of shape {shape} instead."
            )
        channels, height, width = shape
        return AllConv(shape=(channels, height, width), classes=classes, widths=self.widths)

    def players(self, factory: Factory, shape: tuple[int, ...], some: Tensor, latent: Tensor) -> Players:
        """Build both for images of this shape; all layers begin with scales that suit some of them."""
        network = factory().to(some.device)
        parts: list[nn.Module] = []
        for before, layer in zip((None, *network[:-1]), network, strict=True):
            if isinstance(layer, nn.Conv2d | nn.Linear):
                one_norm(layer, 0.05, free=isinstance(layer, nn.Linear))
            parts.append(layer)
            if isinstance(layer, Standardise):
                parts.append(nn.Dropout(self.input_noise))
            elif isinstance(before, nn.Conv2d) and before.stride == (2, 2):
                parts.append(nn.Dropout(self.hidden_noise))
        begin(parts, some, last=0.1)
        critic = Discriminator(nn.Sequential(*parts[:-1]), parts[-1])
        return Players(network, critic.train(), self._forger(shape, latent), F.l1_loss)

    def _forger(self, shape: tuple[int, ...], latent: Tensor) -> nn.Module:
        """Build the generator: uniform numbers in, a small image of many channels, doubled until it has pixels in [0, 1]."""
        channels, *sides = shape
        small, first = [side >> len(self.generator) for side in sides], self.generator[0]
        area = small[0] * small[1]
        layers: list[nn.Module] = [
            nn.Linear(latent.shape[1], first * area, bias=False),
            levelled(nn.BatchNorm1d(first * area, track_running_stats=False)),
            nn.ReLU(),
            nn.Unflatten(1, (first, *small)),
        ]
        for width, out in zip(self.generator, (*self.generator[1:], None), strict=True):
            double = nn.ConvTranspose2d(width, out or channels, 5, stride=2, padding=2, output_padding=1, bias=out is None)
            if out is None:  # a sigmoid of twice the number is the paper's hyperbolic tangent, moved to [0, 1]
                layers += [one_norm(double, 0.05, free=True), nn.Sigmoid()]
            else:
                nn.init.normal_(double.weight, std=0.05)
                layers += [double, levelled(nn.BatchNorm2d(out, track_running_stats=False)), nn.ReLU()]
        forger = nn.Sequential(*layers).to(latent.device).train()
        begin(forger, latent, last=0.2)
        return forger
