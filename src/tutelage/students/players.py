"""What both kinds of players share: a critic in two parts, noise while it learns, and layers of one norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import is_parametrized, remove_parametrizations

from tutelage.nets.networks import Factory


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
class Discriminator(nn.Module):
    """Score labels; the class of fakes has the constant score 0."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Give scores (batch, classes) and the features that they are read from (batch, width)."""
        features = self.body(x)
        return self.head(features), features


@final
@dataclass(frozen=True, eq=False)
class Players:
    """Hold the two of a game, the network to publish, which shares the critic's layers, and how far apart two means are."""

    network: nn.Module
    critic: Discriminator
    forger: nn.Module
    distance: Callable[[Tensor, Tensor], Tensor]

    def published(self) -> dict[str, Tensor]:
        """Give the network's weights as an ordinary network has them."""
        for layer in list(self.network.modules()):
            if is_parametrized(layer):
                remove_parametrizations(layer, "weight")
        return self.network.state_dict()


class Kind(Protocol):
    """Say which network is published for inputs of a shape, and build the two that play for it."""

    rate: float

    def factory(self, shape: tuple[int, ...], classes: int) -> Factory: ...
    def players(self, factory: Factory, shape: tuple[int, ...], some: Tensor, latent: Tensor) -> Players: ...


def one_norm(layer: nn.Module, deviation: float, *, free: bool) -> nn.Module:
    """Give a layer weights whose direction is learned; their length only where it is free.

    Where lengths are not free, a layer cannot drown the noise that it is shaken with. How small the numbers are that a direction
    is made of decides how fast it turns at a given rate.
    """
    weight_norm(layer, dim=1 if isinstance(layer, nn.ConvTranspose2d) else 0)
    weight = layer.parametrizations.weight  # original0: lengths, original1: directions
    with torch.no_grad():
        weight.original1.normal_(std=deviation)
        weight.original0.fill_(1.0)
        layer.bias.zero_()
    weight.original0.requires_grad_(free)
    return layer


@torch.no_grad()
def begin(chain: Iterable[nn.Module], x: Tensor, *, last: float = 1.0) -> Tensor:
    """Let every layer of one norm give mean 0 and deviation 1 on these inputs, and the last of them its own deviation."""
    layers = list(chain)
    normed = [layer for layer in layers if is_parametrized(layer)]
    for layer in layers:
        if is_parametrized(layer):
            lengths, given = layer.parametrizations.weight.original0, layer(x).transpose(0, 1).flatten(1)  # (channels, ...)
            # What says the same of every input stays small in place of growing without bound.
            scale = (last if layer is normed[-1] else 1.0) / given.std(dim=1, correction=0).clamp_min(1e-3)
            lengths.mul_(scale.view_as(lengths))
            layer.bias.copy_(-given.mean(dim=1) * scale)
        x = layer(x)
    return x


def levelled(norm: nn.Module) -> nn.Module:
    """Let batches be normalised to a free mean and to the deviation 1, by the batch alone."""
    norm.weight.requires_grad_(False)
    return norm
