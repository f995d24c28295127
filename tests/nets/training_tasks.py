"""What networks are trained on in tests: small real images and drawn masks, in unequal shards."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest

from tutelage.nets.augmentation import Augmentation
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import Warp


class Task(NamedTuple):
    inputs: np.ndarray  # (records, 8, 8)
    targets: np.ndarray
    shards: list[np.ndarray]
    network: ConvNet
    training: Training


@pytest.fixture(scope="session")
def task() -> Task:
    from sklearn.datasets import load_digits

    digits = load_digits()
    ends = np.cumsum([0, 90, 7, 61, 120, 80])  # unequal on purpose; one is smaller than a batch
    return Task(
        (digits.images / 16).astype(np.float32),
        digits.target,
        [np.arange(start, end) for start, end in itertools.pairwise(ends)],
        ConvNet(shape=(1, 8, 8), widths=(8, 8), hidden=16, groups=4),
        Training(steps=20, batch=16, augmentation=Augmentation(rotation=10, scale=0.1, shift=0.5, elastic=0.2)),
    )


class MaskTask(NamedTuple):
    inputs: np.ndarray  # (records, 1, *space)
    targets: np.ndarray  # (records, *space) of bytes 0 and 1
    shards: list[np.ndarray]
    network: UNet
    training: Training


def balls(space: tuple[int, ...], count: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw a bright ball in noise, and which pixels are its."""
    rng = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(*(np.arange(size) for size in space), indexing="ij"), axis=-1)
    middles = rng.uniform(2, np.array(space) - 3, (count, len(space))).reshape(count, *(1,) * len(space), -1)
    masks = ((places - middles) ** 2).sum(-1) < rng.uniform(4, 8, (count, *(1,) * len(space)))
    images = masks + 0.3 * rng.normal(size=masks.shape)
    return images[:, None].astype(np.float32), masks.astype(np.uint8)


@pytest.fixture(scope="session", params=[(10, 12), (6, 8, 7)], ids=["images", "volumes"])
def masks(request: pytest.FixtureRequest) -> MaskTask:
    ends = np.cumsum([0, 20, 3, 17])  # unequal on purpose; one is smaller than a batch
    return MaskTask(
        *balls(request.param, 60),
        [np.arange(start, end) for start, end in itertools.pairwise(ends)],
        UNet(shape=(1, *request.param), widths=(4, 8), groups=2),
        Training(steps=12, batch=4, rate=5e-3, augmentation=Warp(rotation=10, shift=1, elastic=0.3, noise=0.05, keep=0.1)),
    )
