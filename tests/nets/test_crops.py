"""Regions become crops: which, in what order, how large, and back to a choice per image."""

from __future__ import annotations

import numpy as np
import pytest

from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.scenes import Scenes
from tutelage.nets.crops import SIDE, Crops, crops_of
from tutelage.privacy.errors import DataError, RecipeError

CUT = RegionVotes((16, 16), 4)


@pytest.fixture(scope="module")
def scenes() -> tuple[np.ndarray, np.ndarray]:
    return Scenes(size=16, target="cat").draw(40, seed=3)


def square(size: tuple[int, int], *places: tuple[int, int, int, int]) -> np.ndarray:
    """Draw one image of background 0 and filled boxes (top, bottom, left, right) numbered from 1."""
    labels = np.zeros((1, *size), dtype=np.uint8)
    for number, (top, bottom, left, right) in enumerate(places, 1):
        labels[0, top:bottom, left:right] = number
    return labels


def test_every_region_but_the_background_in_the_order_of_the_images(scenes: tuple[np.ndarray, np.ndarray]) -> None:
    labels = CUT.seeing(scenes[0]).labels
    crops = Crops.of(labels, 4, device="cpu")
    rims = [np.concatenate([one[0], one[-1], one[1:-1, 0], one[1:-1, -1]]) for one in labels]
    backs = [np.bincount(rim).argmax() for rim in rims]
    wanted = [(n, region) for n, one in enumerate(labels) for region in np.unique(one) if region != backs[n]]
    assert list(zip(crops.owners, crops.places, strict=True)) == wanted
    assert crops.pictures.shape == (len(wanted), 2, SIDE, SIDE)
    assert crops.pictures.dtype == np.uint8
    assert len(crops) == len(wanted)
    assert 0 < len(wanted) < 120


def test_a_crop_is_its_region_scaled_and_what_else_is_there() -> None:
    one = Crops.of(square((40, 30), (4, 12, 5, 13), (4, 12, 13, 17)), 3, side=16, device="cpu")
    moved = Crops.of(square((40, 30), (14, 22, 9, 17), (14, 22, 17, 21)), 3, side=16, device="cpu")
    assert np.array_equal(one.pictures, moved.pictures)  # wherever it lies, also where frames are not square
    region, others = one.pictures[0]
    assert region[8, 8] == 255
    assert 0.3 < (region > 127).mean() < 0.7  # a margin around it
    assert others[8, 14] > 127  # its neighbour, to the right
    assert not others[8, :8].any()  # the background is nothing
    larger = Crops.of(square((40, 30), (4, 20, 5, 21)), 3, side=16, device="cpu").pictures[0, 0] > 127
    alone = Crops.of(square((40, 30), (4, 12, 5, 13)), 3, side=16, device="cpu").pictures[0, 0] > 127
    assert abs(larger.mean() - alone.mean()) < 0.25
    assert larger.sum() < 3 * alone.sum()  # a region of four times the size fills hardly more


def test_cutting_is_total_and_a_picture_does_not_hang_on_its_company(scenes: tuple[np.ndarray, np.ndarray]) -> None:
    blank = Crops.of(np.zeros((3, 16, 16), dtype=np.uint8), 4, device="cpu")
    assert (len(blank), blank.images) == (0, 3)
    assert list(blank.chosen(np.zeros((2, 0)), 0.5)[1]) == [4, 4, 4]
    nobody, names = crops_of(CUT, scenes[0][:0], [(np.arange(0), scenes[1][:0])], device="cpu")
    assert (len(nobody), nobody.images, len(names[0])) == (0, 0, 0)
    labels = CUT.seeing(scenes[0]).labels
    whole = Crops.of(labels, 4, device="cpu")
    parts = Crops.joined([Crops.of(part, 4, device="cpu") for part in (labels[:7], labels[7:8], labels[8:])])
    for name in ("pictures", "owners", "places", "images"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))
    dot = np.zeros((1, 16, 16), dtype=np.uint8)
    dot[0, 5, 5] = 1
    assert Crops.of(dot, 4, device="cpu").pictures[0, 0].max() > 0


def test_what_was_said_is_named_as_the_codec_would(
    scenes: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, masks = scenes
    rows = np.array([31, 2, 17, 9])
    monkeypatch.setattr("tutelage.nets.crops._IMAGES", 8)  # several passes
    crops, names = crops_of(CUT, images, [(np.arange(40), masks), (rows, masks[rows] * 0.8)], device="cpu")
    assert np.array_equal(names[0], CUT.seeing(images).encode(masks[None])[0].argmax(axis=-1))
    assert np.array_equal(names[1], names[0][rows])
    assert np.array_equal(crops.pictures, Crops.of(CUT.seeing(images).labels, 4, device="cpu").pictures)


def test_lessons_are_the_crops_of_their_images_and_never_empty(scenes: tuple[np.ndarray, np.ndarray]) -> None:
    images, masks = scenes
    crops, [names] = crops_of(CUT, images, [(np.arange(40), masks)], device="cpu")
    bare = np.setdiff1d(np.arange(40), crops.owners)
    assert len(bare)
    some = np.array([12, 5, 30])
    pictures, labels, shards = crops.lessons([(some, names[some]), (bare, names[bare]), (np.arange(40), names)])
    mine = np.concatenate([np.flatnonzero(crops.owners == image) for image in some])
    assert np.array_equal(pictures[shards[0]], crops.pictures[mine])
    assert np.array_equal(labels[shards[0]], crops.places[mine] == names[crops.owners[mine]])
    assert len(shards[1]) == 1
    assert not pictures[shards[1]].any()
    assert not labels[shards[1]].any()
    assert np.array_equal(pictures[shards[2]], crops.pictures)
    assert labels[shards[2]].sum() == (names < 4).sum()  # whoever is there has one crop that is it
    assert np.array_equal(np.concatenate(shards), np.arange(len(pictures)))


def test_the_surest_region_is_chosen_or_none() -> None:
    blank = np.zeros((5, 2, 4, 4), dtype=np.uint8)
    crops = Crops(blank, np.array([0, 0, 1, 3, 3]), np.array([1, 2, 3, 0, 2]), 4, 4)
    sure = np.array([[0.6, 0.7, 0.4, 0.5, 0.2], [0.9, 0.7, 0.6, 0.1, 0.2]])
    assert crops.chosen(sure, 0.5).tolist() == [[2, 4, 4, 0], [1, 3, 4, 4]]
    assert crops.chosen(sure[0], 0.7).tolist() == [2, 4, 4, 4]


@pytest.mark.parametrize(
    ("labels", "side", "kind", "message"),
    [
        (np.zeros((2, 8)), 8, DataError, "`labels` must be whole numbers below 4 of shape"),
        (np.full((2, 8, 8), 4), 8, DataError, "`labels` must be whole numbers below 4"),
        (np.zeros((2, 8, 8), dtype=int), 3, RecipeError, "`side` must be a whole number ≥ 4. Got 3 instead"),
    ],
)
def test_what_cannot_be_cut_is_refused(labels: np.ndarray, side: int, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Crops.of(labels, 4, side=side, device="cpu")
