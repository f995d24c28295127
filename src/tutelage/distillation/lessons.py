"""Train networks on a small set of images with soft labels, several seeds at once, and take the last weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from tutelage.distillation.siamese import Siamese
from tutelage.distillation.stack import Loss, Stack, cross_entropy
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.networks import Factory
from tutelage.nets.training import State
from tutelage.privacy.errors import RecipeError

BLOCK = 1000  # test images at once


@final
@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Say how a network learns from a distilled set: stochastic gradients with momentum, half a cosine, the last weights."""

    steps: int = 2000
    batch: int = 256
    rate: float = 0.02
    momentum: float = 0.9
    decay: float = 5e-4
    augmentation: Augmentation | Siamese | None = None
    mixup: float = 0.0  # share of a second image at most
    half: bool = False  # products in bfloat16

    def __post_init__(self) -> None:
        if min(self.steps, self.batch) < 1 or not self.rate > 0:
            raise RecipeError(f"`steps`, `batch` and `rate` must be > 0. Got {self.steps}, {self.batch}, {self.rate} instead.")

    def rate_at(self, step: int) -> float:
        """Climb for a twentieth of the steps, then follow half a cosine to zero."""
        return self.rate * min(1.0, (step + 1) / max(1, self.steps // 20)) * 0.5 * (1 + math.cos(math.pi * step / self.steps))


def learn(
    factory: Factory,
    images: Tensor,
    targets: Tensor,
    *,
    lesson: Lesson,
    seeds: Sequence[int] = (0, 1),
    start: State | None = None,
    loss: Loss = cross_entropy,
) -> State:
    """Train one network a seed on the same images (n, c, h, w) and soft labels (n, classes): stacked weights."""
    return learn_sets(factory, [images] * len(seeds), [targets] * len(seeds), lesson=lesson, seeds=seeds, start=start, loss=loss)


def learn_sets(
    factory: Factory,
    images: Sequence[Tensor],
    targets: Sequence[Tensor],
    *,
    lesson: Lesson,
    seeds: Sequence[int],
    start: State | None = None,
    loss: Loss = cross_entropy,
) -> State:
    """Train one network a set and seed, all in lockstep: stacked weights. Sets may have different sizes."""
    device = images[0].device
    stack = Stack(factory, device=device, half=lesson.half)
    weights = stack.start(seeds)
    if start is not None:
        weights = {name: start[name].to(device).expand_as(value).clone() for name, value in weights.items()}
    slopes = {name: torch.zeros_like(value) for name, value in weights.items()}
    draws = [torch.Generator(device=device).manual_seed(seed) for seed in seeds]
    shared = torch.Generator().manual_seed(seeds[0])  # which distortion is next, for all
    orders = [torch.empty(0, dtype=torch.long, device=device) for _ in seeds]
    for step in range(lesson.steps):
        rows = []
        for i, (own, generator) in enumerate(zip(images, draws, strict=True)):
            while len(orders[i]) < lesson.batch:  # every image once in a new order, then again
                orders[i] = torch.cat([orders[i], torch.randperm(len(own), generator=generator, device=device)])
            rows.append(orders[i][: lesson.batch])
            orders[i] = orders[i][lesson.batch :]
        seen = torch.stack([own[row] for own, row in zip(images, rows, strict=True)])  # (networks, batch, c, h, w)
        wanted = torch.stack([own[row] for own, row in zip(targets, rows, strict=True)])
        seen = _distorted(lesson.augmentation, seen, draws[0], shared)
        if lesson.mixup:
            share = lesson.mixup * torch.rand(*seen.shape[:2], generator=draws[0], device=device)
            other = seen.roll(1, dims=1)
            seen = seen + share[..., None, None, None] * (other - seen)
            wanted = wanted + share[..., None] * (wanted.roll(1, dims=1) - wanted)
        gradients = stack.gradients(weights, seen, wanted, loss=loss)
        rate = lesson.rate_at(step)
        with torch.no_grad():
            for name, value in weights.items():
                slopes[name].mul_(lesson.momentum).add_(gradients[name]).add_(value, alpha=lesson.decay)
                value.sub_(slopes[name], alpha=rate)
    return weights


def _distorted(how: Augmentation | Siamese | None, seen: Tensor, generator: torch.Generator, shared: torch.Generator) -> Tensor:
    if how is None:
        return seen
    flat = seen.flatten(0, 1)
    if isinstance(how, Siamese):
        kind, _ = how.draw(1, generator=shared)
        rows = torch.rand(len(flat), 8, generator=generator, device=flat.device)
        return how(flat, (kind, rows)).unflatten(0, seen.shape[:2])
    return how(flat, generator=generator).unflatten(0, seen.shape[:2])


@torch.no_grad()
def accuracies(factory: Factory, weights: State, inputs: Any, labels: Any, *, device: torch.device | None = None) -> list[float]:
    """Measure each stacked network on test images: shares of right labels."""
    place = device or next(iter(weights.values())).device
    stack, count = Stack(factory, device=place), len(next(iter(weights.values())))
    inputs, labels = torch.as_tensor(inputs), torch.as_tensor(labels).to(place)
    found = []
    for i in range(count):
        own = {name: value[i].to(place) for name, value in weights.items()}
        given = [stack.scores(own, inputs[j : j + BLOCK].to(place).float()).argmax(dim=1) for j in range(0, len(inputs), BLOCK)]
        found.append((torch.cat(given) == labels).float().mean().item())
    return found
