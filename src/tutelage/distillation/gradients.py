"""Gradient matching with Siamese augmentation (DC, Zhao et al. 2021; DSA, Zhao & Bilen 2021).

No guarantee: every step reads records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.distillation.siamese import ALL, Siamese
from tutelage.distillation.stack import Stack, cross_entropy
from tutelage.distillation.starts import classes_of
from tutelage.nets.classics import NormedConvNet


@final
@dataclass(frozen=True, kw_only=True)
class GradientMatching:
    """Say how many networks are gone through (`networks`), how often images move on each, what it learns between."""

    networks: int = 100
    outer: int = 10
    inner: int = 50  # steps of the network on the images between two moves of the images
    batch: int = 256
    rate: float = 0.1
    momentum: float = 0.5
    network_rate: float = 0.01
    width: int = 128
    depth: int = 3
    augmentation: Siamese | None = ALL
    seed: int = 0

    def fit(self, images: Tensor, labels: Tensor, start: Tensor) -> Tensor:
        """Move synthetic images, `start` (classes, ipc, c, h, w), until their gradients point where those of real ones do."""
        device, classes, shape = start.device, len(start), tuple(start.shape[2:])
        generator = torch.Generator(device=device).manual_seed(self.seed)
        kinds = torch.Generator().manual_seed(self.seed)
        factory = NormedConvNet(shape=(shape[0], shape[1], shape[2]), classes=classes, width=self.width, depth=self.depth)
        stack, places = Stack(factory, device=device), classes_of(labels, classes)
        shown = start.detach().clone().requires_grad_(True)
        optimizer = torch.optim.SGD([shown], lr=self.rate, momentum=self.momentum)
        targets = torch.arange(classes, device=device).repeat_interleave(start.shape[1])
        for number in range(self.networks):
            weights = {name: value[0] for name, value in stack.start([self.seed * 1_000_003 + number]).items()}
            for move in range(self.outer):
                loss = torch.zeros((), device=device)
                for c, place in enumerate(places):
                    rows = place[torch.randint(len(place), (self.batch,), generator=generator, device=device)]
                    seen, fake = images[rows].float(), shown[c]
                    if self.augmentation:
                        kind, _ = self.augmentation.draw(1, generator=kinds)
                        drawn = (kind, torch.rand(1, 8, generator=generator, device=device))
                        seen, fake = self.augmentation(seen, drawn), self.augmentation(fake, drawn)
                    wanted = self._gradient(stack, weights, seen, c, create=False)
                    given = self._gradient(stack, weights, fake, c, create=True)
                    loss = loss + distance(given, [w.detach() for w in wanted])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if move + 1 < self.outer:
                    weights = self._learn(stack, weights, shown.detach().flatten(0, 1), targets, generator, kinds)
        return shown.detach()

    def _gradient(
        self, stack: Stack, weights: dict[str, Tensor], images: Tensor, label: int, *, create: bool
    ) -> Sequence[Tensor]:
        own = {name: value.detach().requires_grad_(True) for name, value in weights.items()}
        wanted = torch.full((len(images),), label, device=images.device)
        loss = F.cross_entropy(stack.scores(own, images), wanted)
        return torch.autograd.grad(loss, list(own.values()), create_graph=create)

    def _learn(
        self,
        stack: Stack,
        weights: dict[str, Tensor],
        images: Tensor,
        targets: Tensor,
        generator: torch.Generator,
        kinds: torch.Generator,
    ) -> dict[str, Tensor]:
        """Train the network on the synthetic images for `inner` steps."""
        soft = F.one_hot(targets, int(targets.max()) + 1).float()
        for _ in range(self.inner):
            rows = torch.randint(len(images), (min(self.batch, len(images)),), generator=generator, device=images.device)
            seen = images[rows]
            if self.augmentation:
                kind, _ = self.augmentation.draw(1, generator=kinds)
                seen = self.augmentation(seen, (kind, torch.rand(len(rows), 8, generator=generator, device=images.device)))
            own = {name: value.detach().requires_grad_(True) for name, value in weights.items()}
            slopes = torch.autograd.grad(cross_entropy(stack.scores(own, seen), soft[rows]), list(own.values()))
            weights = {
                name: value - self.network_rate * slope for (name, value), slope in zip(weights.items(), slopes, strict=True)
            }
        return weights


def distance(given: Sequence[Tensor], wanted: Sequence[Tensor]) -> Tensor:
    """Sum 1 − cosine over the outputs of every layer, as DC does: biases and norms of one number an output do not count."""
    total = torch.zeros((), device=given[0].device)
    for a, b in zip(given, wanted, strict=True):
        if a.ndim < 2:
            continue
        a, b = a.flatten(1), b.flatten(1)
        total = total + (1 - (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1) + 1e-6)).sum()
    return total
