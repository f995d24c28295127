from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tutelage.codecs.regions import Regions
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.codecs.segments import level_sets, sampled, superpixels
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Orthant
from tutelage.privacy.errors import DataError, RecipeError

SHAPE = (24, 20)


def scenes(count: int = 6) -> Public:
    """A grey box on black, half over a brighter one."""
    masks = np.zeros((count, *SHAPE), np.uint8)
    images = np.zeros((count, 1, *SHAPE), np.float32)
    for number in range(count):
        images[number, 0, 2:9, 2 : 12 + number] = 0.9
        images[number, 0, 6 + number : 14 + number, 4:11] = 0.4
        masks[number, 6 + number : 14 + number, 4:11] = 1
    return Public.of(images, masks, source="boxes")


def test_superpixels_cover_the_image_and_keep_its_edges() -> None:
    public = scenes(1)
    for regions in (1, 7, 40):
        labels = superpixels(public.inputs[0], regions)
        assert labels.shape == SHAPE
        assert labels.max() < regions
    labels = superpixels(public.inputs[0], 40)
    inside = np.array([public.targets[0][labels == label].mean() for label in np.unique(labels)])
    assert ((inside < 0.02) | (inside > 0.98)).mean() > 0.9  # regions do not straddle the object's edge
    assert np.array_equal(superpixels(public.inputs[0], 40), labels)
    flat = superpixels(np.zeros((1, 8, 8, 8)), 8)
    assert np.bincount(flat.reshape(-1)).tolist() == [64] * 8


# ── superpixels of large images ───────────────────────────────────────────────────────────────────────────────────────

LONG = (80, 72, 60)  # 345,600 voxels


def head() -> np.ndarray:
    """A bright ball in a grey one, in noise: (1, *LONG)."""
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, size) for size in LONG), indexing="ij"))
    far = np.sqrt((grid**2).sum(axis=0))
    return ((far < 0.9) + 1.0 * (far < 0.5) + np.random.default_rng(0).normal(0, 0.1, LONG))[None].astype(np.float32)


def scatter(image: np.ndarray, labels: np.ndarray) -> float:
    """Mean square distance to the centres of regions, in brightness and in places alike."""
    cell = (labels.size / 60) ** (1 / 3)
    columns, flat = [image[0] / image.std(), *(np.indices(LONG) * (0.5 / cell))], labels.reshape(-1)
    means = [np.bincount(flat, column.reshape(-1)) / np.maximum(np.bincount(flat), 1) for column in columns]
    return sum(float(((column.reshape(-1) - mean[flat]) ** 2).mean()) for column, mean in zip(columns, means, strict=True))


def test_some_pixels_find_centres_as_good_as_all_of_them_do() -> None:
    image = head()
    assert sampled(LONG, 60) == 2
    some, every, seeds = (superpixels(image, 60, every=every, steps=steps) for every, steps in ((None, 10), (1, 10), (1, 1)))
    assert np.array_equal(superpixels(image, 60), some)
    assert not np.array_equal(some, every)
    assert len(np.unique(some)) == len(np.unique(every))
    assert scatter(image, some) < 1.01 * scatter(image, every)
    assert scatter(image, seeds) > 1.05 * scatter(image, every)  # where centres were not looked for, it shows


def test_large_images_are_cut_as_their_centres_say_at_both_ends() -> None:
    labels = superpixels(np.zeros((1, *LONG), np.uint8), 8)
    sizes = np.bincount(labels.reshape(-1))
    assert len(sizes) == 8
    assert sizes.min() > 0.9 * labels.size / 8


def test_small_images_are_cut_by_all_their_pixels() -> None:
    assert [sampled(shape, 4) for shape in ((64, 64), (32, 48, 32), (511, 512), (512, 512))] == [1, 1, 1, 11]
    assert [sampled((240, 240, 155), regions) for regions in (100, 500, 20_000)] == [5, 3, 1]
    with pytest.raises(RecipeError, match="`every` must"):
        superpixels(np.zeros((1, 8, 8)), 4, every=0)


@pytest.mark.parametrize(
    "make", [lambda shape, method: Regions(shape, 60, 1.0, method), lambda *told: RegionVotes(told[0], 60, told[1])]
)
def test_a_name_says_by_which_pixels_regions_were_found(make: Callable[..., Any]) -> None:
    assert "method='superpixels/2'" in repr(make(LONG, "superpixels"))
    assert "method='levels'" in repr(make(LONG, "levels"))
    assert "method='superpixels'" in repr(make(SHAPE, "superpixels"))
    assert eval(repr(make(SHAPE, "levels"))) == make(SHAPE, "levels")


def test_level_sets_find_flat_objects() -> None:
    public = scenes(1)
    labels = level_sets(public.inputs[0], 5)
    assert labels[0, 0] == 0  # the largest piece comes first
    assert len(np.unique(labels)) == 3
    assert len(np.unique(labels[public.targets[0] > 0])) == 1
    assert (labels == labels[10, 5]).sum() == public.targets[0].sum()
    assert level_sets(np.random.default_rng(0).random((1, 9, 9)), 4).max() == 3


def test_pixels_are_averaged_over_regions() -> None:
    public = scenes()
    codec = Regions.fit(public, regions=20)
    assert codec.bound == Orthant(480, codec.norm)
    codes = codec.encode(public.targets[None, 2:4])[0]
    noisy = codes + np.random.default_rng(2).normal(0, 0.5, codes.shape)
    answer = codec.decode(noisy, public.inputs[2:4])
    raw = noisy.reshape(2, *SHAPE)
    assert ((answer - public.targets[2:4]) ** 2).mean() < 0.25 * ((raw - public.targets[2:4]) ** 2).mean()
    for painted, image in zip(answer, public.inputs[2:4], strict=True):
        labels = superpixels(image, 20)
        assert all(np.ptp(painted[labels == label]) == 0 for label in np.unique(labels))


def test_any_image_may_be_asked_about_in_any_order() -> None:
    public = scenes()
    codec = Regions.fit(public, regions=12, method="levels")
    codes = codec.encode(public.targets[None])[0]
    answers = codec.decode(codes, public.inputs)
    assert np.array_equal(codec.decode(codes[::-1], public.inputs[::-1]), answers[::-1])
    assert np.array_equal(codec.decode(codes[4:5], public.inputs[4:5, 0]), answers[4:5])
    assert codec.provenance is not None
    assert codec.provenance.records == 6


def test_refusals() -> None:
    public = scenes()
    with pytest.raises(RecipeError, match="`method` must"):
        Regions(SHAPE, 4, 1.0, "slic")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="`norm` must"):
        Regions(SHAPE, 4, 0.0)
    with pytest.raises(RecipeError, match="`regions` must"):
        Regions.fit(public, regions=0)
    with pytest.raises(DataError, match="`inputs` must be images"):
        Regions.fit(Public.of(np.zeros((6, 1)), public.targets), regions=4)
