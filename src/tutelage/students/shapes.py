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
OUTSIDE = -3.0  # where the field begins: nothing is there
STEPS = 150
EDGE = 1e-6  # added to a matrix that is divided by
LITTLE = 0.02  # of a shape's length, which is rounding


def mean_shape(matrix: Tensor, told: Tensor, deviation: float, decoded: Tensor) -> Array:
    """Give the mean mask in [0, 1], (*shape) float32, of which `matrix` · mask was told as `told`, with so much noise on each.

    `decoded` (*shape) is what the codec makes of it: one that was fitted to public masks also says what it did not measure.

    The mask is the logistic function of a smooth field: a sum of cosines that are small before anything is told, fast ones more
    than slow ones. The field is where likelihood and that prior are largest together. Noise has no edges and no inside, so that
    little of it survives; a linear filter that takes as much away takes the shape away, too.
    """
    place, shape, axes = matrix.device, decoded.shape, decoded.ndim
    beside = known_beside(matrix, told, decoded)
    waves = [_cosines(size, min(WAVES, size)).to(place) for size in shape]  # (waves, size) each
    middle = math.prod(shape) ** (1 / axes)  # a wave is as fast as it is short, whatever the side it runs along
    speeds = [(torch.arange(len(wave), device=place) * (middle / size)) ** 2 for wave, size in zip(waves, shape, strict=True)]
    fast = torch.stack(torch.meshgrid(*speeds, indexing="ij")).sum(0)
    prior = SPREAD / (1 + fast) ** (FALL / 2)
    free = torch.zeros(prior.shape, device=place, requires_grad=True)
    level = torch.tensor(OUTSIDE, device=place, requires_grad=True)
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
        if beside is not None:
            unseen = mask - matrix.T @ torch.cholesky_solve(seen[:, None], beside[1])[:, 0]
            loss = loss + ((unseen - beside[0]) / deviation).square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(unlikely)  # type: ignore[no-untyped-call]
    return np.asarray(drawn().detach().cpu().numpy(), dtype=np.float32)


def known_beside(matrix: Tensor, told: Tensor, decoded: Tensor) -> tuple[Tensor, Tensor] | None:
    """Give what a codec says about a mask beside what it measures, and the factor of matrix · matrixᵀ; None if it says nothing.

    A cosine transform decodes what it did not measure as zero, which nobody knows; principal components, as the public mean.
    """
    gram = matrix @ matrix.T
    factor = torch.linalg.cholesky(gram + EDGE * gram.diagonal().mean() * torch.eye(len(gram), device=gram.device))
    rest = decoded.flatten().to(matrix)
    for seen in (told, None):  # once more: a codec that shrinks what it measured left some of it over
        seen = matrix @ rest if seen is None else seen
        rest = rest - matrix.T @ torch.cholesky_solve(seen[:, None], factor)[:, 0]
    return (rest, factor) if rest.norm() > LITTLE * decoded.norm() else None


def _cosines(size: int, count: int) -> Tensor:
    """Tabulate the slowest cosines along a side, each of mean square 1 (the first: 1)."""
    places = (torch.arange(size) + 0.5) * (math.pi / size)
    return torch.cos(torch.arange(count)[:, None] * places) * torch.where(torch.arange(count) == 0, 1.0, math.sqrt(2))[:, None]
