"""The mean shape out of noisy answers: bands of frequencies, each shrunk by how much of it is noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import fft

from tutelage.answers import Answers

Array = npt.NDArray[Any]
HALF = 0.5  # where a share becomes a mask
FAINT = 1 / 3  # of the volume that was let out: with less than this above one half, students learned that there is nothing


def mean_shape(answers: Answers) -> Array:
    """Give the mean of all answers in [0, 1], (*shape) float32, with its noise taken down.

    The noise on a decoded mask is at most `sigma` in every direction, and the mean of N has a √N-th of it. Of each band of
    frequencies the part that noise explains is taken off (Wiener's filter with the power that is seen). That makes a shape
    faint where noise is strong; one that is too faint to be a label is scaled up to the volume that the answers tell.
    """
    mean = answers.mean
    if not answers.noisy:
        return np.clip(mean, 0, 1).astype(np.float32)
    spectrum = fft.dctn(mean, norm="ortho")
    radius = np.sqrt(sum(np.ix_(*[(np.arange(size) / size) ** 2 for size in mean.shape])))
    order = np.argsort(radius, axis=None, kind="stable")
    gains = np.ones(spectrum.size)
    noise = answers.sigma**2 / len(answers)
    flat = spectrum.reshape(-1)
    for band in np.array_split(order, _edges(len(order))):
        power = float(np.square(flat[band]).mean())
        gains[band] = max(0.0, 1 - noise / power) if power > 0 else 0.0
    shape = np.clip(fft.idctn(spectrum * gains.reshape(spectrum.shape), norm="ortho"), 0, 1)
    return as_large(shape, float(mean.sum()), np.sqrt(noise * mean.size)).astype(np.float32)


def as_large(shape: Array, volume: float, deviation: float) -> Array:
    """Scale a faint shape until as much of it lies above one half as the released mean volume says; others stay as they are.

    A sum over all pixels is the best-told number of all. But a volume of less than two of its own deviations may be none.
    """
    if volume < max(1.0, 2 * deviation) or np.count_nonzero(shape > HALF) >= FAINT * volume:
        return shape
    level = np.sort(shape, axis=None)[::-1][min(int(volume), shape.size) - 1]
    return np.minimum(shape * (HALF / level), 1.0) if level > 0 else shape


def _edges(count: int) -> list[int]:
    """Cut sorted frequencies into bands that double in size: the low ones matter one by one, the high ones in crowds."""
    edges, edge = [], 8.0
    while edge < count:
        edges.append(int(edge))
        edge *= 1.6
    return edges
