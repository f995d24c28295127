"""A toy that any baseline can learn: small noisy images with one bright square, and the square as a mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tutelage.privacy.ledger import Budget, Ledger  # noqa: E402


def squares(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (count, 8, 8) and masks (count, 8, 8)."""
    chance = np.random.default_rng(seed)
    images, masks = chance.uniform(0, 0.4, (count, 8, 8)).astype(np.float32), np.zeros((count, 8, 8), np.uint8)
    for mask, (row, column) in zip(masks, chance.integers(0, 5, (count, 2)), strict=True):
        mask[row : row + 4, column : column + 4] = 1
    return images + 0.6 * masks, masks


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def toy() -> Callable[[int, int], tuple[np.ndarray, np.ndarray]]:
    return squares


@pytest.fixture
def book(tmp_path: Path) -> Callable[..., Ledger]:
    """Open a fresh book for patients."""

    def opened(epsilon: float, **told: Any) -> Ledger:
        number = len(list(tmp_path.iterdir()))
        return Ledger(tmp_path / f"book{number}.db", Budget(epsilon, 1e-5, told.pop("unit", "patient"), **told))

    return opened
