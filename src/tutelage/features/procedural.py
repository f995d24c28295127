"""Draw images that are nobody's data: strokes and dead leaves, by random numbers alone.

Pictures of the world have edges, textures and things that hide things. So have these, and a whitening that was fitted to them
needs no public pool (Lee, Mumford & Huang, 2001, on dead leaves; Baradad et al., 2021, on learning from noise).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
_POINTS = 28  # on a stroke
_BLOCK = 500  # images drawn at once


def procedural(n: int, shape: tuple[int, int, int], *, random_state: int = 0) -> Array:
    """Draw images (n, channels, side, side) in 0…1: of grey ones half are strokes and half leaves, colour ones are leaves."""
    channels, side, other = shape
    if channels not in (1, 3) or side != other or side < 8:
        raise DataError(f"`shape` must be (1 or 3, side, side) with a side of at least 8. Got {shape} instead.")
    if n < 1:
        raise DataError(f"`n` must be at least 1. Got {n} instead.")
    rng = np.random.Generator(np.random.PCG64([random_state, channels, side]))
    parts = []
    for start in range(0, n, _BLOCK):
        count = min(_BLOCK, n - start)
        if channels == 3:
            parts.append(leaves(count, side, 3, rng))
        else:
            strokes = drawn(count - count // 2, side, rng)[:, None]
            parts.append(np.concatenate([strokes, leaves(count // 2, side, 1, rng)]))
    return np.concatenate(parts)


def drawn(n: int, side: int, rng: np.random.Generator) -> Array:
    """Draw one to four curved strokes an image (n, side, side), white on black."""
    unit, grid = side / 28, np.arange(side, dtype=np.float32)
    strokes, time = 4, np.linspace(0, 1, _POINTS)
    kept = np.arange(strokes)[None] < rng.integers(1, strokes + 1, n)[:, None]
    degree = rng.integers(1, 4, (n, strokes))  # lines, parabolas, cubics
    corners = rng.uniform(3 * unit, 25 * unit, (n, strokes, 4, 2))
    basis = np.stack([[_bernstein(m, j, time) for j in range(4)] for m in range(1, 4)])  # (degree, corner, time)
    path = np.einsum("nsjx,nsjt->nstx", corners, basis[degree - 1]).astype(np.float32)
    path = np.where(kept[:, :, None, None], path, 1e4)  # a stroke that is not drawn is far away
    width = (rng.uniform(0.7, 1.8, (n, strokes)) * unit).astype(np.float32)
    out = np.zeros((n, side, side), dtype=np.float32)
    for stroke in range(strokes):
        down = (grid - path[:, stroke, :, :1]) ** 2  # (n, points, side)
        right = (grid - path[:, stroke, :, 1:]) ** 2
        nearest = np.full((n, side, side), np.inf, dtype=np.float32)
        for point in range(_POINTS):
            np.minimum(nearest, down[:, point, :, None] + right[:, point, None, :], out=nearest)
        np.maximum(out, np.clip(width[:, stroke, None, None] + 0.5 - np.sqrt(nearest), 0, 1), out=out)
    return out


def _bernstein(degree: int, corner: int, time: Array) -> Array:
    if corner > degree:
        return np.zeros_like(time)
    return math.comb(degree, corner) * time**corner * (1 - time) ** (degree - corner)


def leaves(n: int, side: int, channels: int, rng: np.random.Generator) -> Array:
    """Draw striped ellipses and boxes on top of each other (n, channels, side, side), some of them blurred."""
    unit = side / (28 if channels == 1 else 32)
    fewest, most = (2, 12) if channels == 1 else (3, 25)
    grid = np.arange(side, dtype=np.float32)
    ground = rng.uniform(0, 1, (n, channels, 1, 1)) if channels == 3 else np.zeros((n, 1, 1, 1))
    out = np.broadcast_to(ground, (n, channels, side, side)).astype(np.float32)
    many = rng.integers(fewest, most, n)
    for number in range(most - 1):
        place, radius = rng.uniform(0, side, (2, n, 1, 1)), rng.uniform(2 * unit, 13.5 * unit, (2, n, 1, 1))
        angle, shade = rng.uniform(0, math.pi, (n, 1, 1)), rng.uniform(0, 1, (n, channels, 1, 1))
        contrast, pitch, phase = (rng.uniform(low, high, (n, 1, 1)) for low, high in ((0, 0.3), (0.2, 3.0), (0, 6.0)))
        slope = rng.uniform(-0.02, 0.02, (n, 1, 1)) * (channels == 3)
        round_ = rng.random((n, 1, 1)) < 0.5
        down, right = grid[:, None] - place[0], grid[None, :] - place[1]
        u = (down * np.cos(angle) + right * np.sin(angle)).astype(np.float32)
        v = (right * np.cos(angle) - down * np.sin(angle)).astype(np.float32)
        inside = np.where(round_, (u / radius[0]) ** 2 + (v / radius[1]) ** 2 < 1, (abs(u) < radius[0]) & (abs(v) < radius[1]))
        inside &= (number < many)[:, None, None]
        stripes = contrast * np.sin(pitch / unit * u + phase) + slope * v / unit
        out = np.where(inside[:, None], np.clip(shade + stripes[:, None], 0, 1).astype(np.float32), out)
    blurred = rng.random(n) < (0.5 if channels == 1 else 0.6)
    out = _blurred(out, np.where(blurred, rng.uniform(0, 1.1, n), 0.0) * unit)
    if channels == 3:  # the grain of a camera
        grain = rng.uniform(0, 0.05, (n, 1, 1, 1)).astype(np.float32)
        out = np.clip(out + grain * rng.standard_normal(out.shape, dtype=np.float32), 0, 1)
    return np.asarray(out, dtype=np.float32)


def _blurred(images: Array, width: Array) -> Array:
    """Blur every image by its own Gaussian."""
    side = images.shape[-1]
    away = (np.arange(side)[:, None] - np.arange(side)[None, :]) ** 2
    kernel = np.exp(-away / (2 * np.maximum(width, 1e-2)[:, None, None] ** 2))
    kernel = (kernel / kernel.sum(axis=2, keepdims=True)).astype(np.float32)[:, None]
    return np.asarray(kernel @ images @ kernel.swapaxes(2, 3))
