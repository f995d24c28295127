"""What distilled images are before they are matched: noise, generated images, or (to reproduce papers) private records."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tutelage.privacy.errors import DataError, RecipeError


def noise(classes: int, ipc: int, shape: tuple[int, ...], *, seed: int = 0, spread: float = 0.25) -> Tensor:
    """Draw grey images with noise around one half: (classes, ipc, c, h, w) in [0, 1]."""
    if classes < 2 or ipc < 1:
        raise RecipeError(f"`ipc` must be ≥ 1 and `classes` ≥ 2. Got {ipc!r} and {classes!r} instead.")
    generator = torch.Generator().manual_seed(seed)
    return (0.5 + spread * torch.randn(classes, ipc, *shape, generator=generator)).clamp(0, 1)


def chosen(images: Any, labels: Any, classes: int, ipc: int, *, seed: int = 0) -> Tensor:
    """Pick `ipc` images of every class at random: (classes, ipc, c, h, w). Of private records: a look, ε = ∞."""
    images, labels = torch.as_tensor(images), torch.as_tensor(labels)
    generator = torch.Generator().manual_seed(seed)
    picked = []
    for place in classes_of(labels, classes):
        if len(place) < ipc:
            raise DataError(f"`images` must hold at least {ipc} of every class. Got fewer of one instead.")
        picked.append(images[place[torch.randperm(len(place), generator=generator)[:ipc].to(place.device)]])
    return torch.stack(picked).float()


def classes_of(labels: Tensor, classes: int) -> list[Tensor]:
    """List the rows of every class; of an empty one, all rows."""
    found = [torch.nonzero(labels == c).flatten() for c in range(classes)]
    everyone = torch.arange(len(labels), device=labels.device)
    return [rows if len(rows) else everyone for rows in found]
