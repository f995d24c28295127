"""Match images to class means that were released once: post-processing, for as long as one likes.

The squared distance to a noisy mean is the distance to the true one plus a constant that no image changes: the loss is unbiased
as it is. What noise can do is be fitted; more networks than pixels keep that small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from tutelage.distillation.embedding import Part
from tutelage.distillation.formations import expand
from tutelage.privacy.errors import RecipeError

Progress = Callable[[int, int], None]


@final
@dataclass(frozen=True, kw_only=True)
class ReleasedMatching:
    """Say how many steps, on how many networks each, at which rate."""

    steps: int = 600
    drawn: int = 2  # networks in one step
    rate: float = 0.2  # of Adam, on the pixels' logits
    formation: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.steps, self.drawn) < 1 or not self.rate > 0:
            raise RecipeError(f"`steps`, `drawn` and `rate` must be > 0. Got {self.steps}, {self.drawn}, {self.rate} instead.")

    def fit(
        self, parts: Sequence[Part], means: Sequence[Tensor], start: Tensor, *, progress: Progress | None = None
    ) -> tuple[Tensor, float]:
        """Move `start` (classes, ipc, c, h, w) in [0, 1] until its class means are `means`, one (classes, features) a network.

        Gives images of the same shape and the last mean distance. Where networks count mirror images as the same, one side
        of each image is taken at random: its mean is that of both.
        """
        classes = len(start)
        generator = torch.Generator().manual_seed(self.seed)
        device = start.device
        logits = torch.logit(start.flatten(0, 1).clamp(0.02, 0.98)).detach().requires_grad_(True)
        optimizer = torch.optim.Adam([logits], lr=self.rate, betas=(0.9, 0.99))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        far = torch.zeros((), device=device)
        for step in range(self.steps):
            shown = expand(logits.sigmoid(), self.formation)
            if parts[0].mirror:
                turn = torch.rand(len(shown), generator=generator).to(device) < 0.5
                shown = torch.where(turn[:, None, None, None], shown.flip(3), shown)
            far = torch.zeros((), device=device)
            for j in torch.randint(len(parts), (self.drawn,), generator=generator).tolist():
                found = parts[j].shifted(parts[j].sided(shown)).unflatten(0, (classes, -1)).mean(dim=1)
                far = far + (found - means[j]).square().sum()
            optimizer.zero_grad()
            far.backward()
            optimizer.step()
            schedule.step()
            if progress:
                progress(step + 1, self.steps)
        return logits.detach().sigmoid().unflatten(0, start.shape[:2]), far.item() / self.drawn
