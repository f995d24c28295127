"""Public masks that need no file."""

from __future__ import annotations

import numpy as np
import pytest

from tutelage.data.dataset import Public


def ellipses(count: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Draw filled ellipses around the middle: (count, *shape) of zeros and ones."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij"))  # (axes, *shape)
    spread = (count, len(shape), *(1 for _ in shape))
    centre, radius = rng.uniform(-0.3, 0.3, spread), rng.uniform(0.3, 0.6, spread)
    return (((grid - centre) / radius) ** 2).sum(axis=1).__le__(1.0).astype(np.uint8)


@pytest.fixture(scope="session")
def public() -> Public:
    """Two hundred public masks of 16×12."""
    return Public.of(np.zeros((200, 1)), ellipses(200, (16, 12)), source="ellipses")


@pytest.fixture(scope="session")
def volumes() -> Public:
    """Forty public masks of 10×9×7."""
    return Public.of(np.zeros((40, 1)), ellipses(40, (10, 9, 7)), source="ellipsoids")
