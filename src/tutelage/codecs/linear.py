"""What a linear codec measures of a mask, as one matrix: for a student that learns from codes and never decodes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.passes import slices

Array = npt.NDArray[Any]


class Linear(Protocol):
    """To a code and back, both up to a constant linear."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Give the shape of a mask."""

    def forward(self, rows: Array) -> Array:
        """Turn masks (rows, pixels) into codes (rows, dimension)."""

    def backward(self, codes: Array) -> Array:
        """Turn codes (rows, dimension) into masks (rows, pixels)."""


@final
@dataclass(frozen=True, eq=False)
class Measurement:
    """Say that `matrix` · mask is `values`, up to the noise of the release on every coordinate."""

    matrix: Array  # (dimension, pixels) float32
    values: Array  # (questions, dimension)
    stretch: float = 1.0  # how much longer masks' deviations from their mean are in `values` than where rows are orthonormal


def measurement(codec: Linear, codes: Array) -> Measurement:
    """Write out a codec's `forward` as a matrix. It must be the transpose of the way back: no codec here shrinks (`noise` 0)."""
    dimension, pixels = codes.shape[1], math.prod(codec.shape)
    middle = codec.backward(np.zeros((1, dimension)))[0]
    matrix = np.empty((dimension, pixels), dtype=np.float32)
    for part in slices(dimension, max(dimension, pixels)):
        matrix[part] = codec.backward(np.eye(dimension)[part]) - middle  # far fewer rows than pixels: cheaper than forward
    return Measurement(matrix, codes - codec.forward(np.zeros((1, pixels)))[0])
