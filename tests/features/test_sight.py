"""Sight: axes of the pool, equally long, a constant beside them."""

from __future__ import annotations

import numpy as np
import pytest

from tutelage.data.dataset import Public
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.privacy.errors import DataError, RecipeError

TABLE = (np.random.default_rng(0).normal(size=(300, 6)) * [5, 1, 1, 1, 0.1, 3]).astype(np.float32)
HOW = Seeing(axes=5, bins=4)


def test_the_pool_is_seen_on_axes_of_one_length() -> None:
    seen = Sight.learn(Public.of(TABLE), HOW)(TABLE)
    assert seen.shape == (300, HOW.width) == (300, 6)
    assert np.allclose(seen[:, 0], 1 / np.sqrt(6))
    spread = np.cov(seen[:, 1:].T) * 6
    assert np.allclose(spread - np.diag(np.diag(spread)), 0, atol=0.02)
    assert ((np.diag(spread) > 0.85) & (np.diag(spread) < 1.02)).all()
    assert np.linalg.norm(seen, axis=1).mean() == pytest.approx(1, abs=0.1)


def test_labels_are_never_looked_at() -> None:
    with_labels = Sight.learn(Public.of(TABLE, np.arange(300)), HOW)
    without = Sight.learn(Public.of(TABLE), HOW)
    assert all(np.array_equal(one, without.arrays()[name]) for name, one in with_labels.arrays().items())


@pytest.mark.parametrize("images", [False, True])
def test_arrays_bring_it_back(images: bool) -> None:
    inputs = np.random.default_rng(1).random((60, 8, 8)).astype(np.float32) if images else TABLE
    if images:
        pytest.importorskip("torch")
    learned = Sight.learn(Public.of(inputs), Seeing(axes=5, filters=4, patch=3, grid=2, bins=4), device="cpu")
    assert np.array_equal(Sight.of(learned.arrays(), device="cpu")(inputs), learned(inputs))


def test_more_axes_than_the_pool_has_are_refused() -> None:
    with pytest.raises(DataError, match="`axes` must not exceed what the pool has"):
        Sight.learn(Public.of(TABLE), Seeing(axes=200))
    with pytest.raises(RecipeError, match="`axes` must be a whole number ≥ 1"):
        Seeing(axes=0)
