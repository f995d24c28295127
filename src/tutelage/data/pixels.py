"""Pixels as every loader hands them on: float32 in [0, 1], channels first."""

from __future__ import annotations

import numpy as np


def scale(pixels: np.ndarray) -> np.ndarray:
    """Turn bytes into float32 in [0, 1]; 255 becomes exactly 1."""
    # A fixed constant, never the mean or range of the images at hand: those would be fitted on private data.
    return np.asarray(np.divide(pixels, np.float32(255.0), dtype=np.float32, order="C"))
