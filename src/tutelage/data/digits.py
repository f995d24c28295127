"""scikit-learn's embedded digits: 1,797 real 8x8 images that need no file and no network."""

from __future__ import annotations

import numpy as np

from tutelage.data.dataset import Private, Public

PRIVATE, POOL = 1000, 400


def digits(*, seed: int = 0) -> tuple[Private, Public, Public]:
    """Give 1,000 private records, a public pool of 400 and 397 for testing, divided at random by the seed."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    inputs, targets = (bunch.images / 16.0).astype(np.float32), bunch.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(inputs))
    hidden, pool, rest = order[:PRIVATE], order[PRIVATE : PRIVATE + POOL], order[PRIVATE + POOL :]
    return (
        Private.of(inputs[hidden], targets[hidden], source="digits"),  # no ids: the rows are the roster
        Public.of(inputs[pool], targets[pool], source="digits, public pool"),
        Public.of(inputs[rest], targets[rest], source="digits, test"),
    )
