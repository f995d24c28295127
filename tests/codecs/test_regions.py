from __future__ import annotations

import numpy as np
import pytest

from tutelage.codecs.regions import Regions
from tutelage.codecs.segments import level_sets, superpixels
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Binary, OneHot, Orthant
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.mechanisms import GNMax, NoisyMean
from tutelage.privacy.sealed import Sealed

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


def test_one_region_by_noisy_max() -> None:
    public = scenes()
    codec = Regions.fit(public, shape=SHAPE, regions=6, vote="one", method="levels")
    assert codec.bound == OneHot(7)
    rng = np.random.default_rng(1)
    ragged = (public.targets ^ (rng.random((40, *public.targets.shape)) < 0.2)).astype(
        np.uint8
    )  # teachers err on every fifth pixel
    ragged[:5] = 0  # some see nothing
    released = GNMax(7, 2.0).contribute(Sealed(codec.encode(ragged)))
    assert np.array_equal(codec.decode(released, public.inputs), public.targets)
    nothing = codec.decode(np.full(6, 6), public.inputs)
    assert not nothing.any()


def test_every_region_by_noisy_mean() -> None:
    public = scenes()
    for norm, kind in ((None, Binary), (4.0, Orthant)):
        codec = Regions.fit(public, shape=SHAPE, regions=20, norm=norm)
        assert isinstance(codec.bound, kind)
        ballots = codec.encode(np.repeat(public.targets[None], 50, axis=0))
        answer = codec.decode(NoisyMean(codec.bound, 2.0, 50).contribute(Sealed(ballots)), public.inputs)
        assert ((answer > 0.5) == public.targets).mean() > 0.97


def test_pixels_averaged_over_regions_need_no_pool() -> None:
    public = scenes()
    codec = Regions.fit(public, shape=SHAPE, regions=20, vote="pixels")
    assert codec.bound == Orthant(480, codec.norm)
    codes = codec.encode(public.targets[None, 2:4])[0]
    noisy = codes + np.random.default_rng(2).normal(0, 0.5, codes.shape)
    answer = codec.decode(noisy, public.inputs[2:4])
    raw = noisy.reshape(2, *SHAPE)
    assert ((answer - public.targets[2:4]) ** 2).mean() < 0.25 * ((raw - public.targets[2:4]) ** 2).mean()
    for painted, image in zip(answer, public.inputs[2:4], strict=True):
        labels = superpixels(image, 20)
        assert all(np.ptp(painted[labels == label]) == 0 for label in np.unique(labels))


def test_a_pool_is_asked_whole_and_in_order() -> None:
    public = scenes()
    codec = Regions.fit(public, shape=SHAPE, regions=6)
    with pytest.raises(DataError, match="`predictions` must be about the whole pool"):
        codec.encode(public.targets[None, :3])
    codes = codec.encode(public.targets[None])[0]
    with pytest.raises(DataError, match="`inputs` must be the pool"):
        codec.decode(codes, public.inputs[::-1])
    with pytest.raises(DataError, match="`codes` must"):
        codec.decode(codes[:, :3], public.inputs)


def test_refusals() -> None:
    public = scenes()
    with pytest.raises(RecipeError, match="`vote` must"):
        Regions.fit(public, shape=SHAPE, regions=4, vote="both")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="`method` must"):
        Regions(SHAPE, 4, "pixels", "slic", 1.0)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="`norm` must be given"):
        Regions(SHAPE, 4, "pixels")
    with pytest.raises(RecipeError, match="`norm` must be given"):
        Regions.fit(public, shape=SHAPE, regions=4, vote="one", norm=1.0)
    with pytest.raises(RecipeError, match="`pool` must"):
        Regions(SHAPE, 4, "each")
    with pytest.raises(DataError, match="no image twice"):
        Regions.fit(public[[0, 1, 0]], shape=SHAPE, regions=4)
    with pytest.raises(DataError, match="`inputs` must be images"):
        Regions.fit(public, shape=(5, 5), regions=4)
