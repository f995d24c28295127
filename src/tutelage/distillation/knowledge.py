"""Knowledge transfer on distilled images (004, Eqs 4.4-4.7): a teacher's softened scores beside the images' own labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.distillation.lessons import BLOCK, Lesson, learn
from tutelage.distillation.stack import Stack
from tutelage.nets.networks import Factory
from tutelage.nets.training import State
from tutelage.privacy.errors import RecipeError


@final
@dataclass(frozen=True, kw_only=True)
class KnowledgeTransfer:
    """Say how a student weighs a teacher: loss = α·τ²·KL(teacher_τ ‖ student_τ) + (1 − α)·cross-entropy with the labels.

    004 uses α = 0.9 and does not state τ; the thesis' Eq. 4.4 lacks the exponential in its denominator.
    """

    temperature: float = 4.0
    alpha: float = 0.9
    lesson: Lesson = field(default_factory=Lesson)

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise RecipeError(f"`temperature` must be > 0. Got {self.temperature!r} instead.")
        if not 0 <= self.alpha <= 1:
            raise RecipeError(f"`alpha` must lie in [0, 1]. Got {self.alpha!r} instead.")

    def fit(
        self,
        factory: Factory,
        images: Tensor,
        labels: Tensor,
        teacher: Callable[[Tensor], Tensor],
        *,
        seeds: tuple[int, ...] = (0, 1),
        start: State | None = None,
    ) -> State:
        """Train one student a seed, from `start` where it was warmed up on synthetic images: stacked weights.

        The teacher is asked once about every image as it is stored; both targets travel side by side: (n, 2·classes).
        """
        with torch.no_grad():
            scores = torch.cat([teacher(images[i : i + BLOCK]) for i in range(0, len(images), BLOCK)])
        both = torch.cat([(scores / self.temperature).softmax(dim=1), labels], dim=1)
        return learn(factory, images, both, lesson=self.lesson, seeds=seeds, start=start, loss=self.loss)

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Measure scores (batch, classes) against a teacher's shares and labels side by side (batch, 2·classes)."""
        soft, labels = targets.chunk(2, dim=1)
        softened = (scores / self.temperature).log_softmax(dim=1)
        from_teacher = F.kl_div(softened, soft, reduction="none").sum(dim=1).mean()
        own = -(labels * scores.log_softmax(dim=1)).sum(dim=1).mean()
        return self.alpha * self.temperature**2 * from_teacher + (1 - self.alpha) * own


def asks(factory: Factory, weights: State, *, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Turn one network's weights into a teacher: images (n, c, h, w) → scores (n, classes)."""
    stack = Stack(factory, device=device)
    own = {name: value.to(device) for name, value in weights.items()}
    return lambda images: stack.scores(own, images.to(device).float())
