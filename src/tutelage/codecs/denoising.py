"""How an autoencoder is trained: to give masks back although their codes were bounded and noised (Fay et al. 2022, Eq. 15)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.codecs.bottleneck import Coder
from tutelage.codecs.passes import masks
from tutelage.nets.compiling import Replayed
from tutelage.nets.seeded import seeded

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]


def learn(
    build: Callable[[], Coder],
    targets: Array,
    *,
    noise: float,
    steps: int,
    batch: int,
    rate: float,
    place: torch.device,
    seed: int,
    progress: Progress | None,
) -> dict[str, Array]:
    """Train on public masks (records, *shape), which are read a batch at a time; give the weights.

    The noise drawn here teaches the decoder and protects nobody, so it may be seeded. The same seed gives the same weights
    on the same machine.
    """
    rng = np.random.default_rng(seed)
    with seeded(seed, place):
        coder = build().to(place).train()
        generator = torch.Generator(device=place).manual_seed(seed)
        step_of = Step(coder, min(batch, len(targets)), noise=noise, rate=rate, place=place)
        replayed = Replayed(step_of, place=place)
        for step in range(steps):
            some = np.sort(rng.choice(len(targets), len(step_of.given), replace=False))  # in order: they may be on disk
            step_of.load(masks(targets[some]), generator=generator, rate=rate_at(step, steps=steps, peak=rate))
            replayed()
            if progress and ((step + 1) % 20 == 0 or step + 1 == steps):
                progress(step + 1, steps)
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in coder.state_dict().items()}


def rate_at(step: int, *, steps: int, peak: float) -> float:
    """Climb linearly over a twentieth of the steps, then follow half a cosine to zero."""
    return peak * min(1.0, (step + 1) / max(1.0, 0.05 * steps)) * 0.5 * (1 + math.cos(math.pi * step / steps))


@final
class Step:
    """Hold what a step reads and writes in fixed places, so that its kernels can be recorded once and replayed."""

    def __init__(self, coder: Coder, batch: int, *, noise: float, rate: float, place: torch.device) -> None:
        self.coder, self.noise = coder, noise
        self.given = torch.zeros(batch, *coder.shape, device=place)
        self.drawn = torch.zeros(batch, coder.dim, device=place)
        self.rate = torch.tensor(rate, device=place)
        self.optimizer = torch.optim.Adam(coder.parameters(), lr=self.rate, fused=True, capturable=place.type == "cuda")

    def load(self, rows: Array, *, generator: torch.Generator, rate: float) -> None:
        """Take the next masks (batch, pixels), and draw the noise that their codes will meet."""
        self.given.copy_(torch.from_numpy(rows).reshape(self.given.shape))
        self.drawn.normal_(generator=generator)
        self.rate.fill_(rate)

    def __call__(self) -> None:
        """Encode, bound, add noise, decode; move the weights."""
        codes = self.coder.bounded(self.coder.encode(self.given))
        loss = distance(self.coder.decode(codes + self.noise * self.drawn), self.given)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def distance(logits: Tensor, truth: Tensor) -> Tensor:
    """Add cross-entropy to one minus the soft Dice of each mask. One pixel is added above and below: empty on empty is right."""
    found, real = logits.flatten(1), truth.flatten(1)
    shares = found.sigmoid()
    overlap = (2 * (shares * real).sum(dim=1) + 1) / (shares.sum(dim=1) + real.sum(dim=1) + 1)
    return F.binary_cross_entropy_with_logits(found, real) + (1 - overlap).mean()
