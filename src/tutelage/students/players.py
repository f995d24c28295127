"""What both kinds of players share: a critic in two parts, and the network of it that is published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, remove_parametrizations

from tutelage.nets.networks import Factory


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
    average: float

    def factory(self, shape: tuple[int, ...], classes: int) -> Factory: ...
    def players(self, factory: Factory, shape: tuple[int, ...], some: Tensor, latent: Tensor) -> Players: ...
