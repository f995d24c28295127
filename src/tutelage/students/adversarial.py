"""The papers' student: a discriminator with one class more than the labels, beside a generator (Salimans et al. 2016)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import remove_parametrizations

from tutelage.nets.compiling import Replayed
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.model import Model, Taught
from tutelage.nets.networks import Perceptron
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.students.shares import refuse_shares

Progress = Callable[[int, int], None]


@final
@dataclass(frozen=True, kw_only=True)
class Adversarial:
    """Say how discriminator and generator learn; the defaults are the paper's for MNIST, with fewer steps."""

    steps: int = 20_000
    batch: int = 100
    rate: float = 1e-3
    widths: tuple[int, ...] = (1000, 500, 250, 250, 250)
    latent: int = 100
    generator: tuple[int, ...] = (500, 500)
    input_noise: float = 0.3
    hidden_noise: float = 0.5
    average: float = 0.999

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "latent"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 1):
                raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {value!r} instead.")
        if not self.rate > 0 or not 0 <= self.average < 1:
            raise RecipeError(f"`rate` must be > 0 and `average` in [0, 1). Got {self.rate!r} and {self.average!r} instead.")


@final
class Discriminator(nn.Module):
    """Score labels through layers that are shaken while they learn; the class of fakes has the constant score 0."""

    def __init__(self, layers: list[nn.Linear], noises: list[float]) -> None:
        super().__init__()
        self.layers, self.noises = nn.ModuleList(layers), noises

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Give scores (batch, classes) and the last hidden layer (batch, width)."""
        features = x
        for index, (layer, noise) in enumerate(zip(self.layers, self.noises, strict=True)):
            # The paper shakes with a Gaussian; as a regulariser only the spread counts, and uniform numbers have it.
            features = x
            shaken = x + noise * math.sqrt(12) * (torch.rand_like(x) - 0.5) if self.training else x
            x = layer(shaken)
            if index + 1 < len(self.layers):
                x = F.relu(x)
        return x, features


@final
class AdversarialStudent(Taught):
    """Learn labels, and what real images look like, from answers and the unanswered pool; for MNIST-like images."""

    def __init__(
        self, *, settings: Adversarial | None = None, classes: int | None = None, device: str = "auto", seed: int = 0
    ) -> None:
        self.settings, self.classes, self.device, self.seed = settings or Adversarial(), classes, device, seed
        super().__init__()

    def fit(self, public: Any, labels: Any, answered: Any = None, *, progress: Progress | None = None) -> AdversarialStudent:
        """Learn from public inputs (a Public or an array) and labels (records,); -1, or a false `answered`, is no answer."""
        refuse_shares(labels, "adversarial")
        inputs = as_float(as_inputs(getattr(public, "inputs", public))).flatten(1)  # (records, features)
        answers = np.asarray(labels).astype(np.int64)
        known = np.flatnonzero(answers >= 0 if answered is None else np.asarray(answered, dtype=bool))
        if len(answers) != len(inputs) or not len(known):
            raise DataError(
                f"`labels` must have one entry per input and at least one answer. Got {len(answers)} and {len(known)} instead."
            )
        classes = self.classes or int(answers[known].max()) + 1
        factory = Perceptron(features=inputs.shape[1], classes=classes, widths=self.settings.widths)
        self._model = self._train(factory, inputs, torch.from_numpy(answers), torch.from_numpy(known), progress)
        return self

    def _train(self, factory: Perceptron, inputs: Tensor, labels: Tensor, known: Tensor, progress: Progress | None) -> Model:
        """Alternate the two players; the averaged discriminator, without its noise, is the model."""
        s, place = self.settings, pick_device(self.device)
        inputs, labels, known = inputs.to(place), labels.to(place), known.to(place)
        with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
            torch.manual_seed(self.seed)
            network = factory().to(place)
            linear = [layer for layer in network if isinstance(layer, nn.Linear)]
            for layer in linear:
                weight_norm(layer)
            critic = Discriminator(linear, [s.input_noise] + [s.hidden_noise] * (len(linear) - 1)).train()
            game = Game(critic, forging(s, inputs.shape[1]).to(place).train(), inputs, labels, known, s)
            replayed = Replayed(game, place=place)
            for step in range(s.steps):
                game.rate.fill_(s.rate * min(1.0, 3 - 3 * step / s.steps))  # down to zero over the last third
                game.follow.fill_(1 - min(s.average, (1 + step) / (10 + step)))
                replayed()
                if progress and ((step + 1) % 50 == 0 or step + 1 == s.steps):
                    progress(step + 1, s.steps)
            with torch.no_grad():
                for parameter, value in zip(critic.parameters(), game.mean, strict=True):
                    parameter.copy_(value)
            for layer in linear:
                remove_parametrizations(layer, "weight")
        return Model(factory, network.state_dict(), device=self.device)


def forging(settings: Adversarial, features: int) -> nn.Sequential:
    """Build the generator: uniform numbers in, pixels in [0, 1] out."""
    layers: list[nn.Module] = []
    size = settings.latent
    for width in settings.generator:
        layers += [nn.Linear(size, width), nn.BatchNorm1d(width), nn.Softplus()]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, features), nn.Sigmoid())


def critic_loss(critic: Discriminator, some: Tensor, labels: Tensor, real: Tensor, fake: Tensor) -> Tensor:
    """Name the answers, call the pool real and the forgeries fake: with z = log Σ exp(scores), p(real) = eᶻ / (eᶻ + 1)."""
    scores, _ = critic(torch.cat([some, real, fake]))
    named, true, false = scores.split([len(some), len(real), len(fake)])
    supervised = F.cross_entropy(named, labels)
    return supervised + 0.5 * (F.softplus(-true.logsumexp(dim=1)).mean() + F.softplus(false.logsumexp(dim=1)).mean())


@final
class Game:
    """Hold what a step reads and writes in fixed places, so that its kernels can be recorded once and replayed."""

    def __init__(
        self, critic: Discriminator, forger: nn.Module, inputs: Tensor, labels: Tensor, known: Tensor, settings: Adversarial
    ) -> None:
        self.critic, self.forger, self.settings = critic, forger, settings
        self.inputs, self.labels, self.known, self.place = inputs, labels, known, inputs.device
        self.rate, self.follow = torch.tensor(settings.rate, device=self.place), torch.tensor(1.0, device=self.place)
        self.players = [
            torch.optim.Adam(
                player.parameters(), lr=self.rate, betas=(0.5, 0.999), fused=True, capturable=self.place.type == "cuda"
            )
            for player in (critic, forger)
        ]
        self.mean = [parameter.detach().clone() for parameter in critic.parameters()]

    def __call__(self) -> None:
        """Let both players move once, and the averaged critic follow."""
        some = self._drawn(self.known)
        real, other = (self.inputs[self._drawn()] for _ in range(2))
        with torch.no_grad():
            fake = self._forged()
        _turn(self.players[0], critic_loss(self.critic, self.inputs[some], self.labels[some], real, fake))
        with torch.no_grad():
            aim = self.critic(other)[1].mean(dim=0)  # (width,)
        _turn(self.players[1], (self.critic(self._forged())[1].mean(dim=0) - aim).square().mean())
        with torch.no_grad():
            for mean, parameter in zip(self.mean, self.critic.parameters(), strict=True):
                mean.lerp_(parameter, self.follow)

    def _drawn(self, of: Tensor | None = None) -> Tensor:
        """Choose records of the pool, or of those given."""
        chosen = torch.randint(len(self.inputs if of is None else of), (self.settings.batch,), device=self.place)
        return chosen if of is None else of[chosen]

    def _forged(self) -> Tensor:
        made: Tensor = self.forger(torch.rand(self.settings.batch, self.settings.latent, device=self.place))
        return made


def _turn(player: torch.optim.Optimizer, loss: Tensor) -> None:
    """Let one player move."""
    player.zero_grad()
    loss.backward()
    player.step()
