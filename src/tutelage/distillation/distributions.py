"""Distribution matching (Zhao & Bilen 2023): class means in the features of networks with random weights, a new one every step.

No guarantee: every step reads the records. The private way asks for the means once, see `released`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from tutelage.distillation.formations import expand
from tutelage.distillation.siamese import ALL, Siamese
from tutelage.distillation.starts import classes_of
from tutelage.nets.classics import NormedConvNet

Progress = Callable[[int, int], None]


@final
@dataclass(frozen=True, kw_only=True)
class DistributionMatching:
    """Say how long to match, and with how many real images of a class at a time."""

    steps: int = 5000
    batch: int = 256  # real images of a class in one step
    rate: float = 1.0  # as in the paper: 1 fits 10 images a class, and is multiplied as they grow in number
    momentum: float = 0.5
    width: int = 128
    depth: int = 3
    formation: int = 1
    augmentation: Siamese | None = ALL
    half: bool = False
    seed: int = 0

    def fit(self, images: Tensor, labels: Tensor, start: Tensor, *, progress: Progress | None = None) -> Tensor:
        """Match synthetic images, `start` (classes, ipc, c, h, w), to real ones (n, c, h, w): images of the same shape."""
        device, classes = start.device, len(start)
        generator = torch.Generator(device=device).manual_seed(self.seed)
        kinds = torch.Generator().manual_seed(self.seed)
        places = classes_of(labels, classes)
        shown = start.detach().clone().requires_grad_(True)
        # A pixel of the paper is one of ours, divided by its spread of 1/4; an image's gradient falls with their number.
        each = self.rate / 16 * start.shape[1] * self.formation**2 / 10
        optimizer = torch.optim.SGD([shown], lr=each, momentum=self.momentum)
        for step in range(self.steps):
            net = random_network(tuple(start.shape[2:]), self.width, self.depth, seed=self.seed * 1_000_003 + step, device=device)
            real = torch.cat([_some(place, self.batch, generator) for place in places])
            fake = expand(shown.flatten(0, 1), self.formation)
            seen = images[real].float()
            if self.augmentation:
                kind, _ = self.augmentation.draw(1, generator=kinds)
                drawn = (kind, torch.rand(1, 8, generator=generator, device=device))  # Siamese: both are distorted alike
                seen, fake = self.augmentation(seen, drawn), self.augmentation(fake, drawn)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.half):
                with torch.no_grad():
                    wanted = net(seen).float().unflatten(0, (classes, -1)).mean(dim=1)
                given = net(fake).float().unflatten(0, (classes, -1)).mean(dim=1)
            loss = (given - wanted).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if progress:
                progress(step + 1, self.steps)
        return shown.detach()


def random_network(shape: tuple[int, ...], width: int, depth: int, *, seed: int, device: torch.device) -> torch.nn.Module:
    """Build the features of ConvNet-3 with the weights of this seed: (n, c, h, w) → (n, features)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        factory = NormedConvNet(shape=(shape[0], shape[1], shape[2]), width=width, depth=depth)
        network = torch.nn.Sequential(*list(factory())[:-1])
    return network.to(device).requires_grad_(False)


def _some(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return rows[torch.randint(len(rows), (count,), generator=generator, device=generator.device).to(rows.device)]
