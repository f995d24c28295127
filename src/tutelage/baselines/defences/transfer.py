"""Defences that let a student learn from teachers' shares alone: DMP, SELENA and KCD. No guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from tutelage.baselines.defences.records import Records, model
from tutelage.data.dataset import Private, Public
from tutelage.distillation.lessons import BLOCK, Lesson, learn, learn_sets
from tutelage.distillation.stack import Stack
from tutelage.nets.model import Model
from tutelage.nets.networks import Factory
from tutelage.nets.training import State
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.ledger import Ledger


@final
@dataclass(frozen=True, kw_only=True)
class DMP:
    """Distil a private teacher on public images whose answers are the surest (Shejwalkar & Houmansadr 2021). No guarantee."""

    network: Factory
    classes: int
    kept: float = 0.5  # share of the reference images, those of the lowest entropy
    temperature: float = 4.0
    lesson: Lesson = field(default_factory=Lesson)
    device: str = "auto"
    seed: int = 0

    def fit(self, private: Private, *, ledger: Ledger, public: Public | None = None) -> Model:
        """Train a teacher on private records, and a student on its answers about public ones."""
        reference = Records.of(public, method="DMP", classes=self.classes, device=self.device)
        records = Records.read(private, ledger, method="DMP", classes=self.classes, device=self.device)
        teacher = learn(self.network, records.images, records.hot, lesson=self.lesson, seeds=(self.seed,))
        scores = scored(self.network, teacher, reference.images)[0]
        shares = scores.softmax(dim=1)
        entropy = -(shares * shares.clamp_min(1e-9).log()).sum(dim=1)
        sure = entropy.argsort()[: max(1, round(self.kept * len(entropy)))]
        soft = (scores[sure] / self.temperature).softmax(dim=1)
        student = learn(self.network, reference.images[sure], soft, lesson=self.lesson, seeds=(self.seed + 1,))
        return model(self.network, student, device=self.device)


@final
@dataclass(frozen=True, kw_only=True)
class SELENA:
    """Let networks that never saw a record answer about it, and distil these answers (Tang et al. 2022). No guarantee."""

    network: Factory
    classes: int
    networks: int = 25  # K
    without: int = 10  # L: networks that do not see a record
    lesson: Lesson = field(default_factory=Lesson)
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.without < self.networks:
            raise RecipeError(f"`without` must be at least 1 and below `networks`. Got {self.without!r} instead.")

    def fit(self, private: Private, *, ledger: Ledger, public: Public | None = None) -> Model:
        """Split, train the sub-networks, and distil on the same records."""
        records = Records.read(private, ledger, method="SELENA", classes=self.classes, device=self.device)
        generator = torch.Generator().manual_seed(self.seed)
        count = len(records.images)
        away = torch.rand(count, self.networks, generator=generator).argsort(dim=1)[:, : self.without]
        absent = torch.zeros(count, self.networks, dtype=torch.bool).scatter_(1, away, True).to(records.images.device)
        rows = [torch.nonzero(~absent[:, k]).flatten() for k in range(self.networks)]
        rows = [own if len(own) else torch.zeros(1, dtype=torch.long, device=absent.device) for own in rows]
        weights = learn_sets(
            self.network, [records.images[own] for own in rows], [records.hot[own] for own in rows], lesson=self.lesson,
            seeds=range(self.seed, self.seed + self.networks),
        )  # fmt: skip
        shares = scored(self.network, weights, records.images).softmax(dim=2)  # (K, n, classes)
        soft = (shares * absent.T[..., None]).sum(dim=0) / self.without
        student = learn(self.network, records.images, soft, lesson=self.lesson, seeds=(self.seed + self.networks,))
        return model(self.network, student, device=self.device)


@final
@dataclass(frozen=True, kw_only=True)
class KCD:
    """Let a network of the other folds answer about each fold, and mix labels in (cross-distillation). No guarantee."""

    network: Factory
    classes: int
    folds: int = 5
    alpha: float = 0.8  # weight of the answers; the rest is the true label
    lesson: Lesson = field(default_factory=Lesson)
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.folds < 2 or not 0 <= self.alpha <= 1:
            raise RecipeError("`folds` must be at least 2 and `alpha` in [0, 1]. Got others instead.")

    def fit(self, private: Private, *, ledger: Ledger, public: Public | None = None) -> Model:
        """Train a network without each fold, let it answer there, and train the student on all."""
        records = Records.read(private, ledger, method="KCD", classes=self.classes, device=self.device)
        generator = torch.Generator().manual_seed(self.seed)
        fold = (torch.randperm(len(records.images), generator=generator) % self.folds).to(records.images.device)
        rows = [torch.nonzero(fold != k).flatten() for k in range(self.folds)]
        weights = learn_sets(
            self.network, [records.images[own] for own in rows], [records.hot[own] for own in rows], lesson=self.lesson,
            seeds=range(self.seed, self.seed + self.folds),
        )  # fmt: skip
        shares = scored(self.network, weights, records.images).softmax(dim=2)
        answers = shares[fold, torch.arange(len(fold), device=fold.device)]
        soft = self.alpha * answers + (1 - self.alpha) * records.hot
        student = learn(self.network, records.images, soft, lesson=self.lesson, seeds=(self.seed + self.folds,))
        return model(self.network, student, device=self.device)


@torch.no_grad()
def scored(factory: Factory, weights: State, images: Tensor) -> Tensor:
    """Ask every network of a stack about all images: (networks, n, classes)."""
    stack, found = Stack(factory, device=images.device), []
    for k in range(len(next(iter(weights.values())))):
        own = {name: value[k] for name, value in weights.items()}
        found.append(torch.cat([stack.scores(own, some) for some in images.split(BLOCK)]))
    return torch.stack(found)
