"""One step of a game between a critic, who learns labels and to know forgeries, and a forger (Salimans et al. 2016)."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.nets.inputs import as_float
from tutelage.students.players import Discriminator, Players


def critic_loss(critic: Discriminator, some: Tensor, labels: Tensor, real: Tensor, fake: Tensor) -> Tensor:
    """Name the answers, call the pool real and the forgeries fake: with z = log Σ exp(scores), p(real) = eᶻ / (eᶻ + 1)."""
    scores, _ = critic(torch.cat([some, real, fake]))
    named, true, false = scores.split([len(some), len(real), len(fake)])
    supervised = F.cross_entropy(named, labels)
    return supervised + 0.5 * (F.softplus(-true.logsumexp(dim=1)).mean() + F.softplus(false.logsumexp(dim=1)).mean())


@final
class Game:
    """Hold what a step reads and writes in fixed places, so that its kernels can be recorded once and replayed."""

    def __init__(self, players: Players, inputs: Tensor, labels: Tensor, known: Tensor, *, batch: int, latent: int) -> None:
        self.critic, self.forger, self.distance = players.critic, players.forger, players.distance
        self.inputs, self.labels, self.known, self.place = inputs, labels, known, inputs.device
        self.batch, self.latent = batch, latent
        self.rate, self.follow = (torch.tensor(1.0, device=self.place) for _ in range(2))
        self.weights = [weight for weight in self.critic.parameters() if weight.requires_grad]
        self.mean = [weight.detach().clone() for weight in self.weights]
        self.turns = [self._player(self.critic), self._player(self.forger)]

    def _player(self, network: nn.Module) -> torch.optim.Adam:
        """Let a network learn what of it is free."""
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        capturable = self.place.type == "cuda"
        return torch.optim.Adam(weights, lr=self.rate, betas=(0.5, 0.999), fused=True, capturable=capturable)

    def __call__(self) -> None:
        """Let both players move once, and the averaged critic follow."""
        some = self._drawn(self.known)
        real, other = (as_float(self.inputs[self._drawn()]) for _ in range(2))
        with torch.no_grad():
            fake = self.forger(self.dice())
        _turn(self.turns[0], critic_loss(self.critic, as_float(self.inputs[some]), self.labels[some], real, fake))
        with torch.no_grad():
            aim = self.critic.body(other).mean(dim=0)  # (width,)
        _turn(self.turns[1], self.distance(self.critic.body(self.forger(self.dice())).mean(dim=0), aim))
        with torch.no_grad():
            for mean, weight in zip(self.mean, self.weights, strict=True):
                mean.lerp_(weight, self.follow)

    @torch.no_grad()
    def end(self) -> None:
        """Let the averaged critic take the place of the last one."""
        for weight, mean in zip(self.weights, self.mean, strict=True):
            weight.copy_(mean)

    def _drawn(self, of: Tensor | None = None) -> Tensor:
        """Choose records of the pool, or of those given."""
        chosen = torch.randint(len(self.inputs if of is None else of), (self.batch,), device=self.place)
        return chosen if of is None else of[chosen]

    def dice(self) -> Tensor:
        """Throw what a forgery is made from."""
        return torch.rand(self.batch, self.latent, device=self.place)


def _turn(player: torch.optim.Optimizer, loss: Tensor) -> None:
    """Let one player move; nothing is computed for the other's weights."""
    weights = [weight for group in player.param_groups for weight in group["params"]]
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient
    player.step()
