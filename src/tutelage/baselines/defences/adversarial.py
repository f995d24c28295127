"""Adversarial regularisation (Nasr, Shokri & Houmansadr 2018): a network learns against an attack. No guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.baselines.defences.records import Records
from tutelage.data.dataset import Private, Public
from tutelage.distillation.lessons import Lesson
from tutelage.nets.model import Model
from tutelage.nets.networks import Factory
from tutelage.privacy.ledger import Ledger


@final
@dataclass(frozen=True, kw_only=True)
class AdversarialRegularisation:
    """Minimise the training loss plus `weight` times an attack's gain, which `attacks` steps a step keep up to date.

    No guarantee: this one attack does badly. The reference set (public, with labels) stands for non-members.
    """

    network: Factory
    classes: int
    weight: float = 3.0
    attacks: int = 2
    lesson: Lesson = field(default_factory=Lesson)
    device: str = "auto"
    seed: int = 0

    def fit(self, private: Private, *, ledger: Ledger, public: Public | None = None) -> Model:
        """Train both, in turns."""
        method = "adversarial regularisation"
        reference = Records.of(public, method=method, classes=self.classes, device=self.device, labels=True)
        records = Records.read(private, ledger, method=method, classes=self.classes, device=self.device)
        place, lesson = records.images.device, self.lesson
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network, attack = self.network().to(place), attacker(self.classes).to(place)
        generator = torch.Generator().manual_seed(self.seed)
        learning = torch.optim.SGD(network.parameters(), lr=lesson.rate, momentum=lesson.momentum, weight_decay=lesson.decay)
        attacking = torch.optim.Adam(attack.parameters(), lr=1e-3)

        def some(of: Records) -> tuple[Tensor, Tensor]:
            rows = torch.randint(len(of.images), (lesson.batch,), generator=generator).to(place)
            return of.images[rows], of.hot[rows]

        def belief(images: Tensor, labels: Tensor) -> Tensor:
            return attack(torch.cat([network(images).softmax(dim=1), labels], dim=1)).squeeze(1)

        for step in range(lesson.steps):
            for _ in range(self.attacks):
                inside, outside = belief(*some(records)), belief(*some(reference))
                lost = F.softplus(-inside).mean() + F.softplus(outside).mean()
                attacking.zero_grad()
                lost.backward()
                attacking.step()
            images, labels = some(records)
            scores = network(images)
            gained = F.logsigmoid(attack(torch.cat([scores.softmax(dim=1), labels], dim=1)).squeeze(1)).mean()
            loss = -(labels * scores.log_softmax(dim=1)).sum(dim=1).mean() + self.weight * gained
            learning.zero_grad()
            loss.backward()
            for group in learning.param_groups:
                group["lr"] = lesson.rate_at(step)
            learning.step()
        state = {name: value.detach().cpu() for name, value in network.state_dict().items()}
        return Model(self.network, state, device=self.device)


def attacker(classes: int) -> nn.Module:
    """Build a network that tells members from others by shares and label: (n, 2·classes) → (n, 1)."""
    return nn.Sequential(nn.Linear(2 * classes, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
