"""The mean shape out of noisy answers: of all smooth shapes the one that they make most likely."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]
WAVES = 10  # per axis that a field is made of
SPREAD, FALL = 20.0, 3.5  # how large its slow waves may be before any answer, and how fast faster ones are smaller
RAREST = 1e-4  # of all pixels that a field begins with
LEVEL = 3.0  # how far the field as a whole may go from there before any answer
STEPS = 150
HALF = 0.5  # where a share becomes a mask
FAINT = 1 / 3  # of the volume that was let out: with less than this above one half, students learned that there is nothing
MISFIT = 2.0  # mean square distance to what was told, in deviations: noise alone gives 1, and decoding adds another 1
FINEST = 1e-3  # of what was told: noise below this makes no difference, and sums of 32 bits would drown in it
ALIKE = 1e-5  # of the largest: directions of measurements below this are rounding
LITTLE = 0.02  # of a shape's length, which is rounding, too


def mean_shape(matrix: Tensor, told: Tensor, deviation: float, decoded: Tensor) -> Array:
    """Give the mean mask in [0, 1], (*shape) float32, of which `matrix` · mask was told as `told`, with so much noise on each.

    `decoded` (*shape) is what the codec makes of it: one that was fitted to public masks also says what it did not measure.

    The mask is the logistic function of a smooth field: a sum of cosines that are small before anything is told, fast ones more
    than slow ones. The field is where likelihood and that prior are largest together. Noise has no edges and no inside, so that
    little of it survives; a linear filter that takes as much away takes the shape away, too. Where that shape is further from
    what was told than noise would be, the answers are clear and no smooth shape is the truth: then it is what they decode to.
    """
    deviation = max(deviation, FINEST * float(told.abs().max()), torch.finfo(told.dtype).tiny)
    smooth, plain = likeliest(matrix, told, deviation, decoded), decoded.to(told).clamp(0, 1)
    off = [float(((matrix @ one.flatten() - told) / deviation).square().mean()) for one in (smooth, plain)]
    believed = smooth if bool(torch.isfinite(smooth).all()) and off[0] <= max(MISFIT, off[1]) else plain
    found = np.asarray(believed.cpu().numpy(), dtype=np.float32)
    return as_large(found, float(decoded.sum()), deviation * math.sqrt(decoded.numel())).astype(np.float32)


def likeliest(matrix: Tensor, told: Tensor, deviation: float, decoded: Tensor) -> Tensor:
    """Find the smooth shape (*shape) where likelihood and prior are largest together."""
    beside, (waves, prior) = known_beside(matrix, told, decoded), _waves(decoded.shape, matrix.device)
    free = torch.zeros(prior.shape, device=matrix.device, requires_grad=True)
    begin = torch.logit(decoded.mean().clamp(RAREST, 0.5)).to(matrix)  # a sum over all pixels is the best-told number of all
    level = begin.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([free, level], max_iter=STEPS, line_search_fn="strong_wolfe", history_size=20)

    def drawn() -> Tensor:
        field = free * prior
        for wave in waves:
            field = torch.tensordot(field, wave, dims=([0], [0]))  # the axis done goes to the end, and the next comes up
        return (field + level).sigmoid()

    def unlikely() -> Tensor:
        optimizer.zero_grad()
        mask = drawn().flatten()
        seen = matrix @ mask
        loss = ((seen - told) / deviation).square().sum() / 2 + free.square().sum() / 2
        loss = loss + ((level - begin) / LEVEL).square() / 2
        if beside is not None:
            unseen = mask - matrix.T @ (beside[1] @ seen)
            loss = loss + ((unseen - beside[0]) / deviation).square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(unlikely)  # type: ignore[no-untyped-call]
    return drawn().detach()


def as_large(shape: Array, volume: float, deviation: float) -> Array:
    """Scale a faint shape until as much of it lies above one half as the released mean volume says; others stay as they are.

    What is small beside its noise is best told as faint, but no label. A volume of less than two of its own deviations may be
    none.
    """
    if volume < max(1.0, 2 * deviation) or np.count_nonzero(shape > HALF) >= FAINT * volume:
        return shape
    level = np.sort(shape, axis=None)[::-1][min(int(volume), shape.size) - 1]
    return np.minimum(shape * (HALF / level), 1.0) if level > 0 else shape


def known_beside(matrix: Tensor, told: Tensor, decoded: Tensor) -> tuple[Tensor, Tensor] | None:
    """Give what a codec says about a mask beside what it measures, and the inverse of matrix · matrixᵀ; None if it says nothing.

    A cosine transform decodes what it did not measure as zero, which nobody knows; principal components, as the public mean.
    """
    values, axes = torch.linalg.eigh((matrix @ matrix.T).double())
    inverse = torch.where(values > ALIKE * values.max(), 1 / values.clamp(min=torch.finfo(values.dtype).tiny), 0.0)
    inverse = ((axes * inverse) @ axes.T).to(matrix.dtype)
    rest = decoded.flatten().to(matrix)
    for seen in (told, None):  # once more: a codec that shrinks what it measured left some of it over
        seen = matrix @ rest if seen is None else seen
        rest = rest - matrix.T @ (inverse @ seen)
    return (rest, inverse) if rest.norm() > LITTLE * decoded.norm() else None


def freedoms(shape: tuple[int, ...]) -> int:
    """Count the waves of a smooth shape's field."""
    return math.prod(min(WAVES, size) for size in shape)


def _waves(shape: torch.Size, place: torch.device) -> tuple[list[Tensor], Tensor]:
    """Give the cosines along every side, (waves, size) each, and how large each product of them may be, (*waves)."""
    waves = [_cosines(size, min(WAVES, size)).to(place) for size in shape]
    middle = math.prod(shape) ** (1 / len(shape))  # a wave is as fast as it is short, whatever the side it runs along
    speeds = [(torch.arange(len(wave), device=place) * (middle / size)) ** 2 for wave, size in zip(waves, shape, strict=True)]
    fast = torch.stack(torch.meshgrid(*speeds, indexing="ij")).sum(0)
    return waves, SPREAD / (1 + fast) ** (FALL / 2)


def _cosines(size: int, count: int) -> Tensor:
    """Tabulate the slowest cosines along a side, each of mean square 1 (the first: 1)."""
    places = (torch.arange(size) + 0.5) * (math.pi / size)
    return torch.cos(torch.arange(count)[:, None] * places) * torch.where(torch.arange(count) == 0, 1.0, math.sqrt(2))[:, None]
