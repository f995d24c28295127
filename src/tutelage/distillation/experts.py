"""Expert buffers: many networks trained on the private records at once, with their weights after every epoch. Private."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.distillation.siamese import ALL, Siamese
from tutelage.distillation.stack import Stack
from tutelage.nets.networks import Factory, describe
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.nets.training import State
from tutelage.privacy.errors import DataError, RecipeError

KIND = "tutelage.experts/1"
Progress = Callable[[int, int], None]


@final
@dataclass(frozen=True, eq=False)
class Experts:
    """Hold trajectories: every weight as (experts, epochs + 1, ...), the first the initial one. As private as the records."""

    weights: State

    def __post_init__(self) -> None:
        if len({tuple(value.shape[:2]) for value in self.weights.values()}) != 1:
            raise DataError("`weights` must be of the same experts and epochs. Got several instead.")

    @property
    def count(self) -> int:
        """Count the experts."""
        return next(iter(self.weights.values())).shape[0]

    @property
    def epochs(self) -> int:
        """Count the epochs that each was trained."""
        return next(iter(self.weights.values())).shape[1] - 1

    def at(self, expert: int, epoch: int, *, device: torch.device | None = None) -> State:
        """Give one expert's weights after this many epochs."""
        return {name: value[expert, epoch].to(device or value.device).float() for name, value in self.weights.items()}

    def last(self) -> State:
        """Give all experts' last weights, stacked."""
        return {name: value[:, -1].float() for name, value in self.weights.items()}

    def save(self, path: str | Path, factory: Factory) -> None:
        """Write below a folder named private, readable by its owner alone."""
        write_tensors(path, self.weights, {"kind": KIND, "network": describe(factory)}, private=True)

    @classmethod
    def load(cls, path: str | Path) -> Experts:
        """Read what was saved."""
        return cls(read_tensors(path, kind=KIND)[0])


@final
@dataclass(frozen=True, kw_only=True)
class ExpertTraining:
    """Say how experts are trained: plain SGD without a schedule, so that a trajectory can be followed from any epoch."""

    experts: int = 20
    epochs: int = 50
    batch: int = 256
    rate: float = 0.01
    momentum: float = 0.0
    decay: float = 0.0
    augmentation: Siamese | None = ALL
    together: int = 20  # experts at once: time and memory, no figure beyond rounding
    half: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("experts", "epochs", "batch", "together"):
            if not (isinstance(getattr(self, name), int) and getattr(self, name) >= 1):
                raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {getattr(self, name)!r} instead.")

    def plain(self) -> str:
        """Write the settings down."""
        return json.dumps(asdict(self), sort_keys=True)

    def fit(self, factory: Factory, images: Tensor, labels: Tensor, classes: int, *, progress: Progress | None = None) -> Experts:
        """Train all experts on all records; each goes through them in an order of its own."""
        parts = []
        for first in range(0, self.experts, self.together):
            numbers = range(first, min(self.experts, first + self.together))
            parts.append(self._group(factory, images, labels, classes, numbers, progress))
        return Experts({name: torch.cat([part[name] for part in parts]) for name in parts[0]})

    def _group(
        self, factory: Factory, images: Tensor, labels: Tensor, classes: int, numbers: range, progress: Progress | None
    ) -> State:
        device = images.device
        stack = Stack(factory, device=device, half=self.half)
        weights = stack.start([self.seed * 1_000_003 + number for number in numbers])
        slopes = {name: torch.zeros_like(value) for name, value in weights.items()}
        streams = [torch.Generator(device=device).manual_seed(self.seed * 1_000_003 + number) for number in numbers]
        kinds = torch.Generator().manual_seed(self.seed)
        taken: dict[str, list[Tensor]] = {name: [value.detach().cpu().clone()] for name, value in weights.items()}
        count = len(images) // self.batch * self.batch or len(images)
        for epoch in range(self.epochs):
            orders = torch.stack([torch.randperm(len(images), generator=stream, device=device)[:count] for stream in streams])
            for rows in orders.split(self.batch, dim=1):
                seen = images[rows].float()  # (experts, batch, c, h, w)
                if self.augmentation:
                    kind, _ = self.augmentation.draw(1, generator=kinds)
                    draws = torch.stack([torch.rand(rows.shape[1], 8, generator=stream, device=device) for stream in streams])
                    seen = self.augmentation(seen.flatten(0, 1), (kind, draws.flatten(0, 1))).unflatten(0, rows.shape)
                gradients = stack.gradients(weights, seen, F.one_hot(labels[rows], classes).float())
                for name, value in weights.items():
                    slopes[name].mul_(self.momentum).add_(gradients[name]).add_(value, alpha=self.decay)
                    value.sub_(slopes[name], alpha=self.rate)
            for name, value in weights.items():
                taken[name].append(value.detach().cpu().clone())
            if progress:
                progress((epoch + 1) * len(numbers), self.epochs * len(numbers))
        return {name: torch.stack(values, dim=1) for name, values in taken.items()}
