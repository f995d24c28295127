"""Noisy federated averaging (Geyer, Klein & Nabi 2017), in one process: every unit is a client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tutelage.baselines.checks import check_adjacency, check_share, check_unit, check_whole
from tutelage.baselines.cohort import Cohort, Distortion, check_distortion, checked, places, taking_part
from tutelage.baselines.gradients import Weights, built, stacked, trainable, unit_gradients
from tutelage.baselines.price import Step, batch, calibrated, step
from tutelage.baselines.released import released
from tutelage.data.dataset import Private
from tutelage.nets.inputs import pick_device
from tutelage.nets.masks import MaskModel
from tutelage.nets.networks import Factory
from tutelage.privacy import accounting
from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import BudgetExceeded, Error
from tutelage.privacy.events import Gaussian
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.privacy.sealed import Sealed, quietly

if TYPE_CHECKING:
    from tutelage.nets.model import Model

Progress = Callable[[int, int], None]


@final
@dataclass(frozen=True, kw_only=True)
class NoisyFedAvg:
    """Let every client train a copy of the weights for some steps, clip what it changed, and move by the noisy mean of changes.

    Formal guarantee: all rounds together are (epsilon, delta)-DP for the book's unit, replace-one. The noise is that of
    `privacy.mechanisms.NoisyMean` on the ball of radius `clip`, charged round by round before a client is asked; with every
    client in every round (`rate` 1) the price is exact. Below 1 the operating system draws a fixed number of clients without
    replacement, in secret (docs/theory/sampled.md). Add-remove books are refused.

    Unlike the paper the clip is a number that is fixed beforehand: its median of the clients' norms is itself a private figure.
    """

    network: Factory = field(kw_only=False)
    epsilon: float
    delta: float
    rounds: int = 50
    rate: float = 1.0  # share of the clients in one round
    clip: float = 1.0  # 2-norm of one client's change; choose it on public data
    local_steps: int = 5
    local_rate: float = 0.1  # learning rate of plain SGD at a client
    server_rate: float = 1.0  # how far the weights follow the mean change
    momentum: float = 0.0  # of the weights' own movement
    augmentation: Distortion | None = None
    views: int = 4  # of a client's records in one local step
    chunk: int = 16  # clients that train side by side: time and memory, no figure
    device: str = "auto"
    seed: int = 0  # of weights and distortions; noise and samples have none

    def __post_init__(self) -> None:
        accounting.positive(epsilon=self.epsilon, clip=self.clip, local_rate=self.local_rate, server_rate=self.server_rate)
        accounting.probability(delta=self.delta)
        check_whole(rounds=self.rounds, local_steps=self.local_steps, views=self.views, chunk=self.chunk)
        check_share(momentum=self.momentum)
        batch(self.rate, 1)

    def mechanism(self, dimension: int, units: int, budget: Budget) -> NoisyMean:
        """Give one round's noisy mean of changes, with the smallest noise that keeps `rounds` of them inside (epsilon, delta)."""
        check_whole(dimension=dimension, units=units)
        check_adjacency(budget)
        bound, clients = Ball(dimension, self.clip), batch(self.rate, units)

        def made(sigma: float) -> NoisyMean:
            return NoisyMean(bound, sigma, clients, budget.adjacency, budget.unit)

        sigma = calibrated(
            _answer(made(1.0)).sensitivity,
            steps=self.rounds,
            rate=self.rate,
            population=units,
            epsilon=self.epsilon,
            delta=self.delta,
        )
        return made(sigma)

    def event(self, mechanism: NoisyMean, units: int) -> Step:
        """Say what one round is."""
        return step(_answer(mechanism), rate=self.rate, population=units)

    def fit(self, private: Private, *, ledger: Ledger, progress: Progress | None = None) -> Model | MaskModel:
        """Charge for a round, ask the clients, move; `rounds` times. What does not fit the book is refused before the first."""
        check_unit(private, ledger.budget)
        masks, place, units = private.targets.ndim > 1, pick_device(self.device), places(private)
        check_distortion(self.augmentation, masks=masks)
        network = stacked(built(self.network, seed=self.seed, device=place))
        weights = torch.cat([tensor.detach().flatten().double().cpu() for tensor in trainable(network).values()])
        mechanism = self.mechanism(len(weights), units, ledger.budget)
        event = self.event(mechanism, units)
        _check_room(ledger, event, self.rounds)
        private = checked(private, network)
        clients: Clients | None = None
        velocity = torch.zeros_like(weights)
        for done in range(1, self.rounds + 1):
            ledger.charge(event)
            clients = clients or quietly("fit", lambda: Clients(self, network, private), ours=Error)
            ballots = clients.changes(weights, mechanism.teachers)
            velocity = self.momentum * velocity + torch.from_numpy(mechanism.contribute(ballots)[0])
            weights = weights + self.server_rate * velocity
            if progress:
                progress(done, self.rounds)
        network.load_state_dict({**network.state_dict(), **unflattened(weights, network)})
        return released(self.network, network.state_dict(), masks=masks, device=self.device)


@final
class Clients:
    """Train copies of the weights, each on one unit's records. What they change stays sealed."""

    def __init__(self, plan: NoisyFedAvg, network: nn.Module, private: Private) -> None:
        self.plan, self.network = plan, network
        self.place = next(network.parameters()).device
        self.cohort = Cohort.of(private, device=self.place)
        self.public = torch.Generator().manual_seed(plan.seed)  # the distortions of a place do not depend on who is there

    def changes(self, weights: Tensor, count: int) -> Sealed:
        """Let `count` clients train from these weights: (clients, 1, dimension), all held at once (280 MB for 200 × 350,000)."""
        chosen, start = taking_part(len(self.cohort), count), unflattened(weights, self.network)

        def trained(order: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
            parts = torch.from_numpy(order).split(self.plan.chunk)
            return np.concatenate([self._changed(start, part) for part in parts])[:, None]

        return Sealed(chosen.numpy()).map(trained)  # inside the seal, where a failure quotes nothing

    def _changed(self, start: Weights, chosen: Tensor) -> npt.NDArray[np.float32]:
        begun = {name: tensor.to(self.place, torch.float32).expand(len(chosen), *tensor.shape) for name, tensor in start.items()}
        own = begun
        for _ in range(self.plan.local_steps):
            images, targets = self.cohort.views(
                chosen, self.plan.views, augmentation=self.plan.augmentation, generator=self.public
            )
            slopes = unit_gradients(self.network, own, images, targets, shared=False)
            own = {name: tensor - self.plan.local_rate * slopes[name] for name, tensor in own.items()}
        moved = [(own[name] - begun[name]).flatten(1) for name in own]  # (clients, parameters of one tensor)
        present = self.cohort.present(chosen).to(self.place)[:, None]
        return torch.where(present, torch.cat(moved, dim=1), 0.0).cpu().numpy()  # an empty place changes nothing


def unflattened(weights: Tensor, network: nn.Module) -> Weights:
    """Cut one long vector into the network's parameters."""
    named = trainable(network)
    parts = weights.split([tensor.numel() for tensor in named.values()])
    return {name: part.reshape(tensor.shape) for (name, tensor), part in zip(named.items(), parts, strict=True)}


def _answer(mechanism: NoisyMean) -> Gaussian:
    event = mechanism.event()
    assert isinstance(event, Gaussian)
    return event


def _check_room(ledger: Ledger, event: Step, rounds: int) -> None:
    """Refuse a training that the book would stop half-way."""
    budget = ledger.budget
    if not accounting.admits([*ledger.totals(), (event, rounds)], budget.epsilon, budget.delta):
        raise BudgetExceeded(
            f"`rounds` must fit the budget of ε = {budget.epsilon:g} at δ = {budget.delta:g}. "
            f"Got {rounds} of them instead; nothing was read."
        )
