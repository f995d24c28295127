"""Small real images, unequal shards, one torch thread."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
import torch

from tutelage.nets.augmentation import Augmentation
from tutelage.nets.networks import ConvNet
from tutelage.teachers.training import Training


class Task(NamedTuple):
    inputs: np.ndarray  # (records, 8, 8)
    targets: np.ndarray
    shards: list[np.ndarray]
    network: ConvNet
    training: Training


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


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
