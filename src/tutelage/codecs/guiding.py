"""How a decoder learns to look at the public image: to draw the mask although all it is told of it is a noised code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tutelage.codecs.denoising import rate_at
from tutelage.codecs.passes import masks
from tutelage.nets.inputs import as_float
from tutelage.nets.losses import dice_and_entropy
from tutelage.nets.pieces import Source
from tutelage.nets.seeded import seeded
from tutelage.nets.warps import Warp
from tutelage.privacy.curator import Codec

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]
GENTLE = Warp(rotation=10, scale=0.1, shift=2, keep=0.1)  # what is right for all images


def learn(
    build: Callable[[], nn.Module],
    codec: Codec,
    images: Source,
    targets: Array,
    *,
    noise: float,
    scale: float,
    steps: int,
    batch: int,
    rate: float,
    augmentation: Warp | None,
    place: torch.device,
    seed: int,
    progress: Progress | None,
) -> dict[str, Array]:
    """Train on public images (records, channels, *shape) and their masks, read a batch at a time; give the weights.

    The noise drawn here teaches the decoder and protects nobody, so it may be seeded. The same seed gives the same weights
    on the same machine.
    """
    rng, batch = np.random.default_rng(seed), min(batch, len(targets))
    with seeded(seed, place):
        network = build().to(place).train()
        optimizer = torch.optim.Adam(network.parameters(), lr=rate)
        bends = torch.Generator(device=place).manual_seed(seed)
        for step in range(steps):
            some = np.sort(rng.choice(len(targets), batch, replace=False))  # in order: they may be on disk
            shown = as_float(images[torch.from_numpy(some)].to(place))
            wanted = torch.from_numpy(masks(targets[some])).to(place, torch.float32).reshape(batch, *targets.shape[1:])
            if augmentation is not None:
                shown, wanted = augmentation.both(shown, wanted, augmentation.draw(batch, generator=bends))
            told = heard(codec, wanted.cpu().numpy(), shown.cpu().numpy(), noise=noise, rng=rng)
            loss = dice_and_entropy(network(beside(shown, told, scale)), wanted)
            optimizer.zero_grad()
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, steps=steps, peak=rate)
            optimizer.step()
            if progress and ((step + 1) % 20 == 0 or step + 1 == steps):
                progress(step + 1, steps)
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()}


def heard(codec: Codec, drawn: Array, images: Array, *, noise: float, rng: np.random.Generator) -> Array:
    """Send public masks (records, *shape) through the codec and noise of this deviation: what an answer about them is like."""
    codes = np.asarray(codec.encode(drawn[None])[0], dtype=np.float64)
    return codec.decode(codes + noise * rng.standard_normal(codes.shape), images)


def beside(images: Tensor, told: Array, scale: float) -> Tensor:
    """Lay what was told (records, *shape) beside the channels of its image, at about the same size."""
    answer = torch.from_numpy(np.asarray(told, dtype=np.float32)).to(images.device) * scale
    return torch.cat([images, answer[:, None]], dim=1)
