"""Trajectory matching (Cazenavette et al. 2022; 004, Eqs 4.1-4.3): N steps on the images end
where M epochs of an expert did.

The inner step follows the training loss. (The thesis prints the trajectory loss there, which is not known yet.)
Gradients are exact. Three ways to have them: `plain` keeps all N steps' graphs; `exact` keeps the weights alone and goes back
step by step, one Hessian-vector product each, in the memory of one step; `tesla` (Cui et al. 2023) holds the cotangent still.
No guarantee: experts learn from records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from tutelage.distillation.experts import Experts
from tutelage.distillation.siamese import ALL, Siamese
from tutelage.distillation.stack import Stack, cross_entropy
from tutelage.nets.networks import Factory
from tutelage.nets.training import State
from tutelage.privacy.errors import RecipeError

Progress = Callable[[int, int], None]
Way = Literal["plain", "exact", "tesla"]
Views = Sequence[tuple[Tensor, tuple[str, Tensor]]]  # rows of the images, and how they are distorted, step by step


@final
class Matching:
    """Measure how far N steps on synthetic images end from an expert, and differentiate it by images, step size and labels."""

    def __init__(self, factory: Factory, *, device: torch.device, augmentation: Siamese | None = None) -> None:
        self.stack, self.device, self.augmentation = Stack(factory, device=device), device, augmentation

    def views(self, images: int, steps: int, batch: int, *, generator: torch.Generator, kinds: torch.Generator) -> Views:
        """Draw the batches of all steps, and their distortions, before anything is computed."""
        rows = torch.cat(
            [torch.randperm(images, generator=generator, device=self.device) for _ in range(-(-steps * batch // images))]
        )
        drawn = []
        for step in range(steps):
            own = rows[step * batch : (step + 1) * batch]
            kind, _ = self.augmentation.draw(1, generator=kinds) if self.augmentation else ("", None)
            drawn.append((own, (kind, torch.rand(len(own), 8, generator=generator, device=self.device))))
        return drawn

    def __call__(
        self,
        start: State,
        goal: State,
        images: Tensor,
        labels: Tensor,
        rate: Tensor,
        views: Views,
        *,
        way: Way = "exact",
        segments: int = 0,
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Give the loss ‖θ_N − θ*‖²/‖θ_0 − θ*‖², and its gradients by images, labels and step size.

        With `segments`, `exact` keeps only every so many weights and computes those between again: √N is the least memory.
        """
        begin = self._flat(start).detach()
        aim = self._flat(goal).detach()
        reach = (begin - aim).square().sum()
        if way == "plain":
            return self._plain(begin, aim, reach, images, labels, rate, views)
        kept, every = {0: begin}, max(1, segments)
        weights, total = begin, torch.zeros_like(begin)
        for step, view in enumerate(views):
            slope = self._slope(weights, images, labels, view)
            total = total + slope
            weights = weights - rate.detach() * slope
            if way == "exact" and (step + 1) % every == 0:
                kept[step + 1] = weights
            if way == "tesla":
                kept[step + 1] = weights
        loss = (weights - aim).square().sum() / reach
        back = 2 * (weights - aim) / reach  # dL/dθ_N
        moved = torch.zeros_like(images), torch.zeros_like(labels), torch.zeros_like(rate)
        between: dict[int, Tensor] = {}
        for step in reversed(range(len(views))):
            if step not in kept and step not in between:  # go through the segment again, and keep its weights
                first = step // every * every
                between = {first: kept[first]}
                for i in range(first, step):
                    between[i + 1] = between[i] - rate.detach() * self._slope(between[i], images, labels, views[i])
            here = kept.get(step, between.get(step))
            assert here is not None
            back, parts = self._step_back(here, back, images, labels, rate, views[step], through=way == "exact")
            moved = tuple(a + b for a, b in zip(moved, parts, strict=True))  # type: ignore[assignment]
        return loss.detach(), moved

    def _plain(
        self, begin: Tensor, aim: Tensor, reach: Tensor, images: Tensor, labels: Tensor, rate: Tensor, views: Views
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        given = tuple(tensor.detach().requires_grad_(True) for tensor in (images, labels, rate))
        weights = begin.requires_grad_(True)
        for view in views:
            loss = self._loss(weights, given[0], given[1], view)
            weights = weights - given[2] * torch.autograd.grad(loss, weights, create_graph=True)[0]
        loss = (weights - aim).square().sum() / reach
        return loss.detach(), torch.autograd.grad(loss, given)  # type: ignore[return-value]

    def _loss(self, weights: Tensor, images: Tensor, labels: Tensor, view: tuple[Tensor, tuple[str, Tensor]]) -> Tensor:
        rows, drawn = view
        seen = images[rows]
        if self.augmentation:
            seen = self.augmentation(seen, drawn)
        return cross_entropy(self.stack.scores(self._named(weights), seen), labels[rows])

    def _slope(self, weights: Tensor, images: Tensor, labels: Tensor, view: tuple[Tensor, tuple[str, Tensor]]) -> Tensor:
        own = weights.detach().requires_grad_(True)
        return torch.autograd.grad(self._loss(own, images.detach(), labels.detach(), view), own)[0]

    def _step_back(
        self,
        weights: Tensor,
        back: Tensor,
        images: Tensor,
        labels: Tensor,
        rate: Tensor,
        view: tuple[Tensor, tuple[str, Tensor]],
        *,
        through: bool,
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Take dL/dθ_{i+1} to dL/dθ_i, and what step i adds to the gradients: one Hessian-vector product."""
        own, shown, wanted = (tensor.detach().requires_grad_(True) for tensor in (weights, images, labels))
        slope = torch.autograd.grad(self._loss(own, shown, wanted, view), own, create_graph=True)[0]
        along = (slope * back).sum()
        asked = [shown, wanted, own] if through else [shown, wanted]
        found = torch.autograd.grad(along, asked)
        step = rate.detach()
        before = back - step * found[2] if through else back
        return before, (-step * found[0], -step * found[1], -along.detach().reshape(rate.shape))

    def _flat(self, weights: State) -> Tensor:
        return torch.cat([weights[name].to(self.device).flatten() for name in self.stack.names])

    def _named(self, flat: Tensor) -> State:
        shapes = {name: parameter.shape for name, parameter in self.stack.template.named_parameters()}
        parts = flat.split([shapes[name].numel() for name in self.stack.names])
        return {name: part.view(shapes[name]) for name, part in zip(self.stack.names, parts, strict=True)}


@final
@dataclass(frozen=True, kw_only=True)
class TrajectoryMatching:
    """Say what is matched: M expert epochs from an epoch up to `latest`, by N steps on the images."""

    iterations: int = 1000
    steps: int = 30  # N
    epochs: int = 2  # M
    latest: int = 20  # the last epoch that a match may start from
    batch: int = 250  # images of one inner step, at most
    image_rate: float = 100.0
    rate_rate: float = 1e-5
    start_rate: float = 0.01
    momentum: float = 0.5
    label_rate: float = 0.0  # 0: labels stay as they are
    augmentation: Siamese | None = ALL
    way: Way = "exact"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("iterations", "steps", "epochs", "batch"):
            if not (isinstance(getattr(self, name), int) and getattr(self, name) >= 1):
                raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {getattr(self, name)!r} instead.")
        if self.way not in ("plain", "exact", "tesla"):
            raise RecipeError(f"`way` must be 'plain', 'exact' or 'tesla'. Got {self.way!r} instead.")

    def fit(
        self,
        factory: Factory,
        experts: Experts,
        images: Tensor,
        labels: Tensor,
        *,
        progress: Progress | None = None,
        until: Callable[[], bool] | None = None,
    ) -> tuple[Tensor, Tensor, float]:
        """Move images (n, c, h, w) and soft labels (n, classes): the last iterate, its labels and the learned step size."""
        if experts.epochs < self.epochs:
            raise RecipeError(f"`epochs` must be at most the experts', {experts.epochs}. Got {self.epochs} instead.")
        device = images.device
        matching = Matching(factory, device=device, augmentation=self.augmentation)
        generator = torch.Generator(device=device).manual_seed(self.seed)
        kinds = torch.Generator().manual_seed(self.seed)
        shown, answers = images.detach().clone(), labels.detach().float().clone()
        rate = torch.tensor(self.start_rate, device=device)
        movable = [shown, answers, rate]
        optimizers = [
            torch.optim.SGD([tensor], lr=how, momentum=self.momentum)
            for tensor, how in zip(movable, (self.image_rate, self.label_rate, self.rate_rate), strict=True)
        ]
        latest = min(self.latest, experts.epochs - self.epochs)
        for iteration in range(self.iterations):
            expert = int(torch.randint(experts.count, (1,), generator=kinds))
            epoch = int(torch.randint(latest + 1, (1,), generator=kinds))
            views = matching.views(len(shown), self.steps, min(self.batch, len(shown)), generator=generator, kinds=kinds)
            start, goal = (experts.at(expert, e, device=device) for e in (epoch, epoch + self.epochs))
            loss, slopes = matching(start, goal, shown, answers, rate, views, way=self.way)
            if not math.isfinite(loss.item()):
                break  # a step size that ran away: the images before are the result
            for tensor, slope, optimizer in zip(movable, slopes, optimizers, strict=True):
                tensor.grad = slope
                optimizer.step()
            rate.clamp_(min=1e-5)
            if progress:
                progress(iteration + 1, self.iterations)
            if until and until():
                break
        return shown, answers, rate.item()
