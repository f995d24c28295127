"""Steps of tables: learned from public rows, and the same for everybody afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from tutelage.features.bins import Bins
from tutelage.privacy.errors import RecipeError

RNG = np.random.default_rng(0)
POOL = np.stack([RNG.random(200), RNG.integers(0, 2, 200)], axis=1).astype(np.float32)


def test_numbers_are_cut_at_the_pools_quantiles_and_categories_are_not() -> None:
    seen = Bins.fit(POOL, bins=4)
    assert (seen.columns == 0).all()
    assert np.allclose(seen.cuts, np.quantile(POOL[:, 0], [0.25, 0.5, 0.75]), atol=1e-6)
    assert seen(POOL).shape == (200, 2 + 3)
    steps = seen(np.asarray([[0.6, 0.0]]))[0, 2:] * seen.spread[2:] + seen.mean[2:]
    assert np.allclose(steps, [1, 1, 0], atol=1e-5)


def test_a_row_is_seen_the_same_in_any_company() -> None:
    seen = Bins.fit(POOL)
    strange = np.asarray([[1e9, -5.0]], dtype=np.float32)
    together = seen(np.concatenate([POOL, strange]))
    assert np.array_equal(together[-1:], seen(strange))
    assert np.abs(together).max() <= 4.0  # a stray number does not outweigh all others


def test_arrays_bring_it_back_and_one_bin_is_refused() -> None:
    seen = Bins.fit(POOL)
    assert np.array_equal(Bins(**seen.arrays())(POOL), seen(POOL))
    with pytest.raises(RecipeError, match="`bins` must be a whole number ≥ 2"):
        Bins.fit(POOL, bins=1)
