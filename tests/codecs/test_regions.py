from __future__ import annotations

import numpy as np
import pytest

from tutelage.codecs.regions import Regions
from tutelage.codecs.segments import level_sets, superpixels
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
