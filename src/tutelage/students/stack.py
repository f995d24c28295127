"""Several students of masks at once: on a GPU side by side, on a CPU one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tutelage.data.dataset import Public
from tutelage.nets.masks import MaskModel
from tutelage.nets.networks import Factory
from tutelage.nets.recorded import train_recorded
from tutelage.nets.training import State, Training, train_one

Progress = Callable[[int, int], None]


def train_masks(
    factory: Factory,
    images: Tensor,
    masks: Sequence[Any],
    *,
    training: Training,
    seed: int,
    start: Sequence[State] | None = None,
    progress: Progress | None = None,
) -> list[State]:
    """Train one network per set of masks (records, *space), all on the same images (records, channels, *space)."""
    done, total = 0, training.steps * len(masks)

    def tick(steps: int) -> None:
        nonlocal done
        done += steps
        if progress:
            progress(done, total)

    device = images.device
    given = [torch.from_numpy(np.array(some, dtype=np.float32)).to(device) for some in masks]
    if device.type == "cuda" and training.optimizer == "adam":  # the only one that is recorded
        rows = [torch.arange(len(images), device=device) + number * len(images) for number in range(len(given))]
        state = train_recorded(
            factory,
            images.repeat(len(given), *[1] * (images.ndim - 1)),
            torch.cat(given),
            rows,
            training=training,
            seed=seed,
            teachers=range(len(given)),
            tick=tick,
            start=start,
        )
        return [{name: tensor[number] for name, tensor in state.items()} for number in range(len(given))]
    return [
        train_one(
            factory,
            images,
            some,
            training=training,
            seed=seed,
            teacher=number,
            tick=tick,
            start=None if start is None else start[number],
        )
        for number, some in enumerate(given)
    ]


def starting(threshold: float | Public) -> float:
    """Give the number that a model is made with, before public masks say better."""
    return 0.5 if isinstance(threshold, Public) else threshold


def settled(models: list[MaskModel], threshold: float | Public) -> list[MaskModel]:
    """Choose the thresholds of models, and of those they began as, where public masks are to say."""
    return [model.settle(threshold) for model in models] if isinstance(threshold, Public) else models
