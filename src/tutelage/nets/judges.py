"""Classifiers that judge generated images: trained on these alone, for a fixed number of steps, then tested on real ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]


def cnn(shape: tuple[int, ...], classes: int, width: int = 64) -> nn.Module:
    """Build four convolutions and two linear layers."""

    def block(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]

    side = shape[1] // 4
    body = [*block(shape[0], width), *block(width, width), nn.MaxPool2d(2)]
    body += [*block(width, 2 * width), *block(2 * width, 2 * width), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3)]
    return nn.Sequential(*body, nn.Linear(2 * width * side**2, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, classes))


def small_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a network that a processor trains in seconds."""
    side = shape[1] // 4
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 5, stride=2, padding=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * side**2, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, classes),
    )  # fmt: skip


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build two hidden layers."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(shape), 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, classes),
    )  # fmt: skip


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a linear model of pixels."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


class _Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        same = before == after and stride == 1
        self.skip = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


def resnet18(shape: tuple[int, ...], classes: int, width: int = 64) -> nn.Module:
    """Build ResNet-18 for small images: a first convolution of 3×3 and no first pooling."""
    layers: list[nn.Module] = [nn.Conv2d(shape[0], width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for stage in range(4):
        for number in range(2):
            after = width * 2**stage
            layers.append(_Residual(before, after, 2 if stage and not number else 1))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


JUDGES: dict[str, Callable[..., nn.Module]] = {"CNN": cnn, "ResNet-18": resnet18, "MLP": mlp}


def train_judge(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    steps: int,
    batch: int = 256,
    learning_rate: float = 3e-3,
    warp: float = 1.0,
    mirror: bool = False,
    random_state: int = 0,
    progress: Progress | None = None,
) -> nn.Module:
    """Train on images (n, c, h, w) in 0…1 and labels (n,) or shares (n, classes); keep the last step's weights.

    `warp` scales small random turns, sizes and shifts (0: none). There is no validation set, so nothing is chosen.
    """
    if len(images) != len(labels):
        raise DataError(f"`labels` must have one entry per image, {len(images)}. Got {len(labels)} instead.")
    place = images.device
    gpu = place.type == "cuda"
    with torch.random.fork_rng(devices=[place] if gpu else []):
        torch.manual_seed(random_state)
        network = network.to(place, memory_format=torch.channels_last).train()
        network.apply(_begun)
        optimiser = torch.optim.AdamW(network.parameters(), learning_rate, weight_decay=5e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, learning_rate, total_steps=steps)
        for step in range(steps):
            chosen = torch.randint(len(images), (batch,), device=place)
            x = images[chosen].float()
            if mirror:
                x = torch.where(torch.rand(len(x), 1, 1, 1, device=place) < 0.5, x.flip(3), x)
            if warp:
                x = warped(x, warp)
            with torch.autocast(place.type, torch.bfloat16, enabled=gpu):
                logits = network(x.contiguous(memory_format=torch.channels_last)).float()
            wanted = labels[chosen]
            loss = F.cross_entropy(logits, wanted, label_smoothing=0.0 if wanted.is_floating_point() else 0.05)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
            if progress is not None:
                progress(step + 1, steps)
    return network.eval()


def _begun(layer: nn.Module) -> None:
    """Draw fresh weights, so that they follow from the seed."""
    if hasattr(layer, "reset_parameters"):
        layer.reset_parameters()


def warped(x: Tensor, much: float = 1.0) -> Tensor:
    """Turn, scale, slant and shift every image a little, each on its own."""
    count, place = len(x), x.device

    def drawn(most: float, *more: int) -> Tensor:
        return (torch.rand(count, *more, device=place) * 2 - 1) * most * much

    angle, size, slant, shift = drawn(12 * math.pi / 180), 1 + drawn(0.12), drawn(0.15), drawn(0.16, 2)
    rows = [
        torch.stack([size * angle.cos(), size * (slant - angle.sin()), shift[:, 0]], 1),
        torch.stack([size * angle.sin(), size * angle.cos(), shift[:, 1]], 1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def logits_of(network: nn.Module, images: Tensor, size: int = 2000) -> Tensor:
    """Give a judge's logits (n, classes)."""
    with torch.inference_mode():
        return torch.cat([network(part.float()).float() for part in images.split(size)])


def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Give the share of images that a judge gets right."""
    return float((logits_of(network, images).argmax(1) == labels).float().mean())


def balanced_accuracy(predicted: Array, labels: Array) -> float:
    """Give the mean over classes of the share that is right."""
    return float(np.mean([np.mean(predicted[labels == one] == one) for one in np.unique(labels)]))
