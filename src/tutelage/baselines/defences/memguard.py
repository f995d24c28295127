"""MemGuard (Jia et al. 2019): noise on the answers of a finished network, made to mislead an attack. No guarantee.

Labels never change, so that an attack which asks for labels alone is not touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.baselines.defences.records import Records, model
from tutelage.baselines.defences.transfer import scored
from tutelage.data.dataset import Private, Public
from tutelage.distillation.lessons import Lesson, learn
from tutelage.nets.model import Model
from tutelage.nets.networks import Factory
from tutelage.privacy.ledger import Ledger


@final
@dataclass(frozen=True, kw_only=True)
class MemGuard:
    """Train plainly, train an attack on sorted shares, and move every answer to where that attack is undecided.

    `budget` bounds the mean distance (1-norm) that shares are moved. No guarantee.
    """

    network: Factory
    classes: int
    budget: float = 1.0
    steps: int = 50
    lesson: Lesson = field(default_factory=Lesson)
    device: str = "auto"
    seed: int = 0

    def fit(self, private: Private, *, ledger: Ledger, public: Public | None = None) -> Guarded:
        """Train the network on private records, and the attack on these and a public reference set."""
        reference = Records.of(public, method="MemGuard", classes=self.classes, device=self.device)
        records = Records.read(private, ledger, method="MemGuard", classes=self.classes, device=self.device)
        weights = learn(self.network, records.images, records.hot, lesson=self.lesson, seeds=(self.seed,))
        inside, outside = (scored(self.network, weights, of.images)[0] for of in (records, reference))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            attack = nn.Sequential(nn.Linear(self.classes, 32), nn.ReLU(), nn.Linear(32, 1)).to(inside.device)
        optimizer = torch.optim.Adam(attack.parameters(), lr=1e-2)
        for _ in range(200):
            lost = F.softplus(-_asked(attack, inside)).mean() + F.softplus(_asked(attack, outside)).mean()
            optimizer.zero_grad()
            lost.backward()
            optimizer.step()
        return Guarded(
            model(self.network, weights, device=self.device), attack.cpu().requires_grad_(False), self.budget, self.steps
        )


def _asked(attack: nn.Module, scores: Tensor) -> Tensor:
    return attack(scores.softmax(dim=1).sort(dim=1, descending=True).values).squeeze(1)


@final
class Guarded:
    """Hold a network whose shares are moved before they are told. An answer depends on its input alone."""

    def __init__(self, inner: Model, attack: nn.Module, budget: float, steps: int) -> None:
        self.inner, self.attack, self.budget, self.steps = inner, attack, budget, steps

    def probabilities(self, inputs: Any) -> np.ndarray:
        """Give moved class shares: (records, classes)."""
        plain = torch.as_tensor(self.inner.probabilities(inputs)).clamp_min(1e-9)
        moved = plain.log().clone().requires_grad_(True)
        best, label = plain.log().clone(), plain.argmax(dim=1)
        closest = _asked(self.attack, best).abs()
        for _ in range(self.steps):
            doubt = _asked(self.attack, moved)
            slope = torch.autograd.grad(doubt.abs().sum(), moved)[0]
            slope = slope / slope.norm(dim=1, keepdim=True).clamp_min(1e-9)
            moved = (moved - 0.1 * slope).detach().requires_grad_(True)
            found, shares = _asked(self.attack, moved).abs().detach(), moved.detach().softmax(dim=1)
            fits = (shares.argmax(dim=1) == label) & ((shares - plain).abs().sum(dim=1) <= self.budget) & (found < closest)
            best, closest = torch.where(fits[:, None], moved.detach(), best), torch.where(fits, found, closest)
        return best.softmax(dim=1).numpy()

    predict_proba = probabilities

    def predict(self, inputs: Any) -> np.ndarray:
        """Give labels: those of the network inside."""
        return self.inner.predict(inputs)
