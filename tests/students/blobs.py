"""Bright ellipses in noise, and noisy answers about them: 16×16, so that a student is trained in a second."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tutelage.answers import Answers
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import Warp

NETWORK = UNet(shape=(1, 16, 16), widths=(8, 16))
BENT = Warp(rotation=15, scale=0.15, shift=2, elastic=1.0, noise=0.1)
TRAINING = Training(steps=100, batch=8, rate=3e-3, augmentation=BENT)
QUICK = Training(steps=3, batch=4, rate=3e-3, augmentation=BENT)
CODEC = Flips(DCT((16, 16), 50, 1.0), np.zeros(256, bool), 12.0)


def blobs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw images (count, 1, 16, 16) and masks (count, 16, 16)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:16, :16]
    middle, radius = 8 + rng.normal(0, 1.2, (count, 2)), 4 + rng.normal(0, 0.9, (count, 2))
    down, across = ((y - middle[:, :1, None]) / radius[:, :1, None]), ((x - middle[:, 1:, None]) / radius[:, 1:, None])
    masks = down**2 + across**2 < 1
    return (masks + rng.normal(0, 0.4, masks.shape))[:, None].astype(np.float32), masks.astype(np.uint8)


def answered(masks: np.ndarray, sigma: float, *, seed: int = 0, chosen: Any = None, codec: Any = CODEC) -> Answers:
    """Answer with the truth and noise of this deviation on every coordinate of a code."""
    chosen = np.arange(len(masks)) if chosen is None else np.asarray(chosen)
    codes = codec.encode(masks[None, chosen])[0]
    codes = codes + np.random.default_rng(seed).normal(0, sigma, codes.shape)
    return Answers(chosen, codec.decode(codes, masks[chosen]), codes, sigma, codec)


class Watched:
    """A public pool whose targets nobody may read."""

    def __init__(self, inputs: np.ndarray) -> None:
        self.inputs = inputs

    @property
    def targets(self) -> np.ndarray:
        pytest.fail("the student read public targets")

    def __len__(self) -> int:
        return len(self.inputs)
