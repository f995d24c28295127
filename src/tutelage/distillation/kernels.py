"""Kernel inducing points (KIP, Nguyen et al. 2021), small: the closed-form tangent kernel of a wide fully connected network.

No guarantee: every step reads records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor


def tangent_kernel(left: Tensor, right: Tensor, *, depth: int = 2, bias: float = 0.1) -> Tensor:
    """Give the infinite-width NTK of a ReLU network with `depth` hidden layers between rows: (n, d), (m, d) → (n, m)."""
    left, right = left.flatten(1), right.flatten(1)
    width = left.shape[1]
    both = left @ right.T / width + bias
    own_left = left.square().sum(1) / width + bias
    own_right = right.square().sum(1) / width + bias
    tangent = both
    for _ in range(depth):
        scale = (own_left[:, None] * own_right[None]).sqrt()
        cosine = (both / scale).clamp(-1 + 1e-6, 1 - 1e-6)
        angle = torch.arccos(cosine)
        both = scale * (angle.sin() + (math.pi - angle) * cosine) / math.pi + bias  # He scaling: E[2·relu·relu]
        tangent = both + tangent * (math.pi - angle) / math.pi
        own_left, own_right = own_left + bias, own_right + bias
    return tangent


@final
@dataclass(frozen=True, kw_only=True)
class KernelPoints:
    """Say how long images and labels are moved until ridge regression on them predicts the records."""

    steps: int = 1000
    batch: int = 500
    rate: float = 0.04
    ridge: float = 1e-6
    depth: int = 2
    learn_labels: bool = True
    seed: int = 0

    def fit(self, images: Tensor, labels: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Move `start` (classes, ipc, c, h, w): images of that shape and their labels (classes·ipc, classes), centred at zero."""
        device, classes = start.device, len(start)
        generator = torch.Generator(device=device).manual_seed(self.seed)
        shown = start.detach().clone().requires_grad_(True)
        answers = F.one_hot(torch.arange(classes, device=device).repeat_interleave(start.shape[1]), classes).float() - 1 / classes
        answers.requires_grad_(self.learn_labels)
        optimizer = torch.optim.Adam([shown, answers] if self.learn_labels else [shown], lr=self.rate)
        for _ in range(self.steps):
            rows = torch.randint(len(images), (self.batch,), generator=generator, device=device)
            wanted = F.one_hot(labels[rows], classes).float() - 1 / classes
            given = self.predict(shown.flatten(0, 1), answers, images[rows].float())
            loss = 0.5 * (given - wanted).square().sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return shown.detach(), answers.detach()

    def predict(self, images: Tensor, answers: Tensor, queries: Tensor) -> Tensor:
        """Predict by kernel ridge regression on the distilled images: (queries, classes)."""
        own = tangent_kernel(images, images, depth=self.depth)
        weight = self.ridge * own.diagonal().mean() * torch.eye(len(own), device=own.device)
        coefficients = torch.linalg.solve((own + weight).double(), answers.double()).float()
        return tangent_kernel(queries, images, depth=self.depth) @ coefficients
