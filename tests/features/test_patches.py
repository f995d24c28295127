"""Patches of images: filters from public images, answers that do not depend on a picture's brightness."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
from tutelage.features.patches import Patches
from tutelage.privacy.errors import RecipeError


def stripes(count: int, *, across: bool, seed: int) -> np.ndarray:
    """Draw 12x12 images with stripes one way or the other, at any phase and strength."""
    rng = np.random.default_rng(seed)
    waves = np.sin(np.arange(12)[None] * 1.6 + rng.uniform(0, 6, (count, 1)))[:, :, None].repeat(12, axis=2)
    images = 0.5 + rng.uniform(0.1, 0.4, (count, 1, 1)) * (waves if across else waves.transpose(0, 2, 1))
    return (images + rng.normal(0, 0.02, images.shape)).astype(np.float32)


POOL = np.concatenate([stripes(40, across=True, seed=0), stripes(40, across=False, seed=1)])
SEEN = Patches.fit(POOL, filters=8, patch=4, grid=2, device="cpu")


def test_filters_tell_stripes_apart_that_no_pixel_does() -> None:
    one, other = SEEN(stripes(30, across=True, seed=2)), SEEN(stripes(30, across=False, seed=3))
    assert one.shape == (30, 2 * 8 * 4)
    gap = np.abs(one.mean(axis=0) - other.mean(axis=0)) / (one.std(axis=0) + other.std(axis=0))
    assert gap.max() > 3
    raw = np.abs(stripes(30, across=True, seed=2).mean(axis=0) - stripes(30, across=False, seed=3).mean(axis=0))
    assert raw.max() < 0.25


def test_what_is_learned_is_the_same_again_and_comes_back_from_arrays() -> None:
    again = Patches.fit(POOL, filters=8, patch=4, grid=2, device="cpu")
    assert np.array_equal(again(POOL), SEEN(POOL))
    assert np.array_equal(Patches(**SEEN.arrays(), device="cpu")(POOL), SEEN(POOL))
    assert not np.array_equal(Patches.fit(POOL, filters=8, patch=4, grid=2, seed=1, device="cpu").filters, SEEN.filters)


def test_colour_and_bytes_are_images_too() -> None:
    colour = np.random.default_rng(0).integers(0, 256, (20, 3, 12, 12), dtype=np.uint8)
    seen = Patches.fit(colour, filters=4, patch=3, grid=1, device="cpu")
    assert seen(colour).shape == (20, 8)
    assert seen.filters.shape == (4, 3, 3, 3)


def test_patches_larger_than_an_image_and_too_many_filters_are_refused() -> None:
    with pytest.raises(RecipeError, match="`patch` must be between 2 and the images' size, 12"):
        Patches.fit(POOL, patch=13)
    with pytest.raises(RecipeError, match="`filters` must be fewer"):
        Patches.fit(np.zeros((3, 12, 12), dtype=np.float32), filters=8, patch=4)
