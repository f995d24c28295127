"""Public images laid over each other: by what they show, never by a mask, and the same way again when a run goes on."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from tutelage.data.dataset import Private, Public
from tutelage.features.alignment import Aligning, Alignment, aligned
from tutelage.metrics import dice
from tutelage.privacy.errors import DataError, RecipeError

SIDE, FAST = 24, Aligning(steps=30, window=5)


def organs(count: int = 12, *, axes: int = 2, seed: int = 0) -> Public:
    """Draw the same bright organ with a dark hole beside it, in another place and size every time, and its mask."""
    rng, grid = np.random.default_rng(seed), np.stack(np.meshgrid(*[np.arange(SIDE) - SIDE / 2] * axes, indexing="ij"))
    images, masks = [], []
    for _ in range(count):
        middle, sizes = rng.uniform(-3, 3, axes), 5 * rng.uniform(0.8, 1.25, axes)
        far = np.sqrt(sum(((grid[axis] - middle[axis]) / sizes[axis]) ** 2 for axis in range(axes)))
        near = np.sqrt(sum(((grid[axis] - middle[axis] - 0.4 * sizes[axis]) / sizes[axis]) ** 2 for axis in range(axes)))
        images.append(1 / (1 + np.exp(4 * (far - 1))) - np.exp(-8 * near**2) + 0.02 * rng.normal(size=far.shape))
        masks.append(far < 1)
    return Public.of(np.asarray(images, np.float32)[:, None], np.asarray(masks, np.uint8), source="drawn")


def mean_shape_dice(masks: np.ndarray) -> float:
    return float(dice(np.broadcast_to(masks.mean(axis=0) > 0.5, masks.shape), masks).mean())


@pytest.mark.parametrize("axes", [2, 3])
def test_one_mean_shape_says_more_about_images_that_lie_over_each_other(axes: int) -> None:
    pool = organs(axes=axes)
    laid = aligned(pool, settings=FAST, device="cpu")
    assert pool.targets is not None
    assert laid.targets is not None
    before, after = mean_shape_dice(pool.targets), mean_shape_dice(laid.targets)
    assert before < 0.8
    assert after > before + 0.1
    assert laid.inputs.shape == pool.inputs.shape
    assert set(np.unique(laid.targets)) == {0, 1}
    assert "aligned" in laid.source


def test_masks_are_not_looked_at() -> None:
    pool = organs()
    other = Public.of(pool.inputs, 1 - np.asarray(pool.targets), source="drawn")
    assert np.array_equal(aligned(pool, settings=FAST, device="cpu").inputs, aligned(other, settings=FAST, device="cpu").inputs)
    assert aligned(pool.unlabelled(), settings=FAST, device="cpu").targets is None


def test_private_images_are_not_made_public_by_moving_them() -> None:
    pool = organs(4)
    private = Private.of(pool.inputs, pool.targets)
    with pytest.raises(DataError, match="`public` must be Public: what is learned of it is released"):
        aligned(private, settings=FAST, device="cpu")  # type: ignore[arg-type]
    found = Alignment.fit(pool.inputs, settings=Aligning(steps=1), device="cpu")
    with pytest.raises(DataError, match="`public` must be Public: a moved image is still an image"):
        found.pool(private)  # type: ignore[arg-type]


def test_all_images_together_go_nowhere() -> None:
    found = Alignment.fit(organs().inputs, settings=FAST, device="cpu")
    assert np.allclose(found.matrices.mean(axis=0), np.eye(2), atol=1e-5)
    assert np.allclose(found.shifts.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(found.knots.mean(axis=0), 0, atol=1e-5)
    assert np.abs(found.shifts).max() > 1  # and yet they moved


def test_brightness_and_contrast_of_an_image_do_not_matter() -> None:
    pool = organs()
    seen = pool.inputs.copy()
    seen[::2] = 3 * seen[::2] + 1
    moved = [Alignment.fit(images, settings=FAST, device="cpu").shifts for images in (pool.inputs, seen)]
    assert np.abs(moved[0] - moved[1]).mean() < 0.35 * np.abs(moved[0]).mean()


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 1000.0), (1000.0, -1000.0), (300.0, 4000.0), (0.001, 0.0)])
def test_units_of_brightness_do_not_matter(scale: float, offset: float) -> None:
    """As a scanner writes them: without a common unit a window's variance drowned in rounding, and nothing was a number."""
    pool = organs()
    raw = Public.of(scale * pool.inputs + offset, pool.targets, source="drawn")
    assert pool.targets is not None
    laid = aligned(raw, settings=FAST, device="cpu")
    assert laid.targets is not None
    assert mean_shape_dice(laid.targets) > mean_shape_dice(pool.targets) + 0.1


def test_a_channel_that_shows_nothing_does_no_harm() -> None:
    pool = organs()
    four = np.concatenate([pool.inputs, -pool.inputs, np.zeros_like(pool.inputs), np.full_like(pool.inputs, 7)], axis=1)
    found = Alignment.fit(four, settings=FAST, device="cpu")
    assert found.images(four).shape == four.shape
    assert np.allclose(found.images(four)[:, 3], 7)
    assert mean_shape_dice(found.masks(pool.targets)) > mean_shape_dice(np.asarray(pool.targets)) + 0.1


def test_images_keep_their_layout_and_masks_their_values() -> None:
    pool = organs(4)
    flat = pool.inputs[:, 0]
    found = Alignment.fit(flat, settings=Aligning(steps=2), device="cpu")
    assert found.images(flat).shape == flat.shape
    colour = np.repeat((255 * np.clip(flat, 0, 1)).astype(np.uint8)[..., None], 3, axis=-1)
    assert found.images(colour).shape == colour.shape
    assert 0 <= found.images(colour).min() <= found.images(colour).max() <= 1
    loud = found.masks(255 * np.asarray(pool.targets))
    assert set(np.unique(loud)) == {0, 255}
    assert loud.dtype == np.uint8
    assert found.masks(np.asarray(pool.targets, bool)).dtype == bool
    with pytest.raises(DataError, match="`masks` must be one mask per image"):
        found.masks(np.zeros((4, 3, SIDE, SIDE)))


def test_what_is_no_number_is_refused_and_moves_nothing() -> None:
    pool = organs(4).inputs.copy()
    pool[2, 0, 3, 3] = np.nan
    with pytest.raises(DataError, match="`images` must hold numbers alone"):
        Alignment.fit(pool, settings=FAST, device="cpu")
    found = Alignment.fit(organs(4).inputs, settings=Aligning(steps=1), device="cpu").arrays()
    for broken in ({"shifts": found["shifts"][:1]}, {"knots": found["knots"][:, :1]}, {"matrices": found["matrices"] * np.nan}):
        with pytest.raises(DataError, match="must be"):
            Alignment(**{**found, **broken})


def test_many_images_at_a_time_or_few_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, few = organs().inputs, Aligning(steps=3)  # rounding grows with every step
    whole = Alignment.fit(pool, settings=few, device="cpu")
    monkeypatch.setattr("tutelage.features.alignment._PIXELS", {"cpu": 5 * SIDE * SIDE})
    parts = Alignment.fit(pool, settings=few, device="cpu")
    assert np.abs(whole.shifts).max() > 0.3
    assert np.allclose(whole.shifts, parts.shifts, atol=1e-2)
    assert np.allclose(whole.images(pool), parts.images(pool), atol=2e-2)


def test_arrays_bring_it_back_to_the_byte() -> None:
    pool = organs()
    found = Alignment.fit(pool.inputs, settings=FAST, device="cpu")
    assert found.pool(pool).sha256 == Alignment(**found.arrays()).pool(pool).sha256


def test_steps_are_counted() -> None:
    told: list[tuple[int, int]] = []
    Alignment.fit(organs(3).inputs, settings=Aligning(steps=2), device="cpu", progress=lambda *step: told.append(step))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "`steps` must be a whole number ≥ 1"),
        ({"knots": 2}, "`knots` must be a whole number ≥ 3"),
        ({"window": 8}, "`window` must be odd"),
        ({"stiffness": -1.0}, "`stiffness` must be ≥ 0"),
    ],
)
def test_settings_without_sense_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Aligning(**settings)  # type: ignore[arg-type]


def test_one_image_and_other_images_are_refused() -> None:
    pool = organs().inputs
    with pytest.raises(DataError, match="`images` must be two images or volumes"):
        Alignment.fit(pool[:1])
    with pytest.raises(DataError, match="`images` must be two images or volumes"):
        Alignment.fit(np.zeros((5, 7), np.float32))
    with pytest.raises(DataError, match="`images` must be the 12 that were aligned"):
        Alignment.fit(pool, settings=Aligning(steps=1), device="cpu").images(pool[:5])
