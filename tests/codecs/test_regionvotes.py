"""Votes for regions of the public image: exact where teachers agree, one vote each, refused before the charge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance.suites import check_codec

from tutelage.codecs.regionvotes import RegionVotes
from tutelage.codecs.segments import greys
from tutelage.data.scenes import Scenes
from tutelage.metrics import dice
from tutelage.planning import Aggregation
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.curator import Curator, Sighted
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.sealed import Sealed

SHAPE, REGIONS = (32, 32), 4
CODEC = RegionVotes(SHAPE, REGIONS)


@pytest.fixture(scope="module")
def scenes() -> tuple[np.ndarray, np.ndarray]:
    return Scenes(size=32).draw(60, seed=4)


# ── greys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_grey_level_is_one_region_wherever_it_lies() -> None:
    image = np.full((1, 8, 9), 0.2)
    image[0, :3, :2] = image[0, 5:, 6:] = 0.7  # two pieces
    image[0, 4, 4] = 0.9
    labels = greys(image, 4)
    assert np.array_equal(labels, np.where(image[0] == 0.2, 0, np.where(image[0] == 0.7, 1, 2)))
    assert not greys(np.zeros((1, 5, 5)), 3).any()
    assert greys(np.arange(64.0).reshape(1, 4, 4, 4) // 16, 4).shape == (4, 4, 4)


def test_greys_are_found_through_noise() -> None:
    for noise, least in ((3.0, 0.97), (10.0, 0.93)):  # 185 and 210 lie 2.5 deviations apart at 10
        images, masks = Scenes(noise=noise).draw(40, seed=2)
        seen = RegionVotes((64, 64), 6).seeing(images)
        answers = seen.decode(seen.encode(masks[None])[0].argmax(axis=-1), images)
        dogs = masks.any(axis=(1, 2))
        assert dice(answers, masks)[dogs].mean() > least
        assert seen.labels.max() < 6


@pytest.mark.parametrize("regions", [1, 2, 5])
def test_there_are_never_more_regions_than_asked_for(regions: int) -> None:
    rng = np.random.default_rng(0)
    for image in (rng.random((1, 16, 16)), rng.integers(0, 9, (1, 16, 16)), np.ones((1, 16, 16)), rng.random((2, 6, 5, 4))):
        labels = greys(image, regions)
        assert labels.shape == image.shape[1:]
        assert 0 <= labels.min() <= labels.max() < regions


# ── the codec ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_choice_by_its_number_is_the_vote_of_its_mask(scenes: tuple[np.ndarray, np.ndarray]) -> None:
    seen = CODEC.seeing(scenes[0])
    chosen = seen.encode(scenes[1][None])[0].argmax(axis=-1)
    assert np.array_equal(seen.encode(chosen[None].astype(np.uint8)), seen.encode(seen.decode(chosen, scenes[0])[None]))
    odd = np.full((2, len(chosen)), [[-1], [99]])
    assert (seen.encode(odd).argmax(axis=-1) == CODEC.regions).all()
    assert CODEC.bound.dimension == seen.encode(odd).shape[-1]


def test_what_is_true_goes_through_exactly(scenes: tuple[np.ndarray, np.ndarray]) -> None:
    images, masks = scenes
    assert isinstance(CODEC, Sighted)
    assert CODEC.bound == OneHot(REGIONS + 1)
    seen = CODEC.seeing(images)
    ballots = seen.encode(masks[None])
    assert ballots.dtype == bool
    assert (ballots.sum(axis=-1) == 1).all()
    chosen = ballots[0].argmax(axis=-1)
    assert np.array_equal(seen.decode(chosen, images), masks)
    assert np.array_equal(chosen == REGIONS, ~masks.any(axis=(1, 2)))
    assert seen.decode(chosen, images).dtype == np.uint8


def test_a_vote_is_for_what_overlaps_best() -> None:
    image = np.zeros((1, 1, 4, 8), dtype=np.float32)
    image[0, 0, :, 3:6], image[0, 0, :, 6:] = 0.4, 0.9  # 12, 12 and 8 pixels
    seen = RegionVotes((4, 8), 3).seeing(image)
    middle = (image[0, 0] == np.float32(0.4)).astype(float)
    right = (image[0, 0] == np.float32(0.9)).astype(float)
    numbers = [int(seen.labels[0, 0, column]) for column in (0, 3, 6)]
    for mask, wanted in (
        (middle, numbers[1]),
        (0.6 * middle, numbers[1]),
        (0.4 * middle, 3),  # not sure enough
        (middle + 0.9 * right, numbers[1]),  # 12 / 19.2
        (right + 0.7 * middle, 3),  # no region is half of the union
        (np.ones((4, 8)), 3),
        (np.zeros((4, 8)), 3),
        (1e-9 * middle, 3),
        (np.full((4, 8), np.nan), 3),
        (np.where(right > 0, np.inf, -np.inf), numbers[2]),
    ):
        assert seen.encode(mask[None, None])[0, 0].argmax() == wanted
    keen = RegionVotes((4, 8), 3, share=0.3).seeing(image)
    assert keen.encode((0.4 * middle)[None, None])[0, 0].argmax() == numbers[1]


@pytest.mark.parametrize("method", ["greys", "levels", "superpixels"])
def test_conformance(method: Any, scenes: tuple[np.ndarray, np.ndarray]) -> None:
    images, masks = scenes[0][:5], scenes[1][:5]
    seen = RegionVotes(SHAPE, REGIONS, method).seeing(images)
    rng = np.random.default_rng(1)
    drawn = np.clip(masks + rng.normal(0, 0.3, (6, *masks.shape)), 0, 1).astype(np.float16)
    check_codec(seen, drawn, images, np.arange(5))
    wild = rng.choice([np.nan, np.inf, -np.inf, 1e308, -1.0, 0.5, 1.0], drawn.shape)
    assert (seen.encode(wild).sum(axis=-1) == 1).all()
    assert seen.encode(drawn[:0]).shape == (0, 5, REGIONS + 1)
    with pytest.raises(DataError, match="`predictions` must"):
        seen.encode(drawn[:, :4])


def test_volumes_and_images_without_channels() -> None:
    images = np.zeros((2, 6, 5, 4))
    images[:, 2:4, 1:3] = 1
    codec = RegionVotes((6, 5, 4), 2)
    for given in (images, images[:, None]):
        seen = codec.seeing(given)
        assert np.array_equal(seen.decode(seen.encode(images[None])[0].argmax(axis=-1), given), images)


def test_its_words_name_everything() -> None:
    assert repr(CODEC) == "RegionVotes(shape=(32, 32), regions=4, method='greys', share=0.5)"
    assert repr(RegionVotes([32, 32], np.int64(4), share=np.float64(0.5))) == repr(CODEC)  # type: ignore[arg-type]
    others = [RegionVotes(SHAPE, 5), RegionVotes(SHAPE, 4, "levels"), RegionVotes(SHAPE, 4, share=0.4)]
    assert len({repr(codec) for codec in (CODEC, *others)}) == 4


def test_refusals() -> None:
    for wrong in (0, True, 2.5):
        with pytest.raises(RecipeError, match="`regions` must"):
            RegionVotes(SHAPE, wrong)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="`method` must"):
        RegionVotes(SHAPE, 4, "slic")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="`share` must"):
        RegionVotes(SHAPE, 4, share=0.0)
    seen = CODEC.seeing(np.zeros((3, 1, *SHAPE)))
    for codes in (np.zeros(2, int), np.zeros(3), np.zeros((3, 5), int)):
        with pytest.raises(DataError, match="`codes` must"):
            seen.decode(codes, np.zeros((3, 1, *SHAPE)))


# ── the door ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Painters:
    """Teachers of whom four in five know the mask; a question's first pixels say which scene it is."""

    def __init__(self, images: np.ndarray, masks: np.ndarray, teachers: int = 200) -> None:
        self.masks = {image.tobytes(): mask for image, mask in zip(images, masks, strict=True)}
        self.teachers, self.calls = teachers, 0

    def vote(self, inputs: np.ndarray) -> Sealed:
        self.calls += 1
        masks = np.stack([self.masks[image.tobytes()] for image in inputs])
        wrong = np.random.default_rng(0).random((self.teachers, len(inputs), 1, 1)) < 0.2
        return Sealed(np.where(wrong, 1 - masks, masks).astype(np.float16))


def test_through_the_door(scenes: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    shown = np.flatnonzero(np.ptp(scenes[0].reshape(60, -1), axis=1) > 0)[:16]  # an empty frame is easily asked about twice
    images, masks = scenes[0][shown], scenes[1][shown]
    teachers, budget = Painters(images, masks), Budget(8.0, 1e-6)
    mechanism, screen = Aggregation("gnmax").built(budget, len(images), teachers.teachers, CODEC.bound)
    assert screen is None
    with Ledger(tmp_path / "book.sqlite", budget) as ledger:
        curator = Curator(teachers, CODEC, mechanism, ledger)
        answers = curator.answer(images)
        assert np.array_equal(answers, masks)  # a lead of 120 votes or more against a deviation of 5
        assert np.array_equal(curator.answer(images[::-1]), masks[::-1])  # again, in another order, free
        assert teachers.calls == 1
        assert curator.affordable() == 0
        assert np.array_equal(curator.decode(curator.codes(images), images), masks)


@pytest.mark.parametrize(
    "inputs",
    [
        np.zeros((2, 1, 8, 8)),
        np.full((2, 1, *SHAPE), np.nan),
        np.zeros((2, 0, *SHAPE)),
        np.zeros((2, 7)),
        np.full((2, *SHAPE), "a"),
    ],
    ids=["shape", "nan", "channels", "table", "words"],
)
def test_what_it_refuses_costs_nothing(inputs: np.ndarray, scenes: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    teachers, budget = Painters(*scenes), Budget(8.0, 1e-6)
    mechanism, _ = Aggregation("gnmax").built(budget, 4, teachers.teachers, CODEC.bound)
    with Ledger(tmp_path / "book.sqlite", budget) as ledger:
        curator = Curator(teachers, CODEC, mechanism, ledger)
        before = ledger.length
        with pytest.raises(DataError, match="`inputs` must"):
            curator.answer(inputs)
        assert ledger.length == before
        assert curator.affordable() == 4
        assert teachers.calls == 0


# ── broken twins ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Twin:
    """Votes for regions, broken in one place."""

    fault: str
    images: Any = None

    @property
    def bound(self) -> OneHot:
        return CODEC.bound

    def seeing(self, inputs: np.ndarray) -> Twin:
        return Twin(self.fault, inputs)

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        given = np.asarray(predictions, dtype=float)
        if self.fault == "cut from all teachers' masks":
            # Regions of the teachers' mean: one teacher then moves everybody's vote.
            return CODEC.seeing(np.round(given.mean(axis=0), 1)[:, None]).encode(given)
        ballots = CODEC.seeing(self.images).encode(given).astype(float)
        if self.fault == "two votes":
            ballots[..., 0] = 1.0
        return ballots if self.fault != "loud" else 100 * ballots

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        return CODEC.seeing(inputs).decode(codes, inputs)


def test_the_suite_lets_the_whole_twin_pass(scenes: tuple[np.ndarray, np.ndarray]) -> None:
    drawn = np.repeat(scenes[1][None, :5], 4, axis=0)
    check_codec(Twin("").seeing(scenes[0][:5]), drawn, scenes[0][:5], np.arange(5))


@pytest.mark.parametrize("fault", ["cut from all teachers' masks", "two votes", "loud"])
def test_the_suite_refuses(fault: str, scenes: tuple[np.ndarray, np.ndarray]) -> None:
    images = scenes[0][:5]
    rng = np.random.default_rng(3)
    drawn = np.where(rng.random((4, 5, 1, 1)) < 0.5, scenes[1][:5], rng.random((4, 5, *SHAPE)))
    with pytest.raises(AssertionError):
        check_codec(Twin(fault).seeing(images), drawn, images, np.arange(5))


@pytest.mark.parametrize("fault", ["two votes", "loud"])
def test_the_clip_leaves_one_vote(fault: str, scenes: tuple[np.ndarray, np.ndarray]) -> None:
    ballots = Twin(fault).seeing(scenes[0][:8]).encode(scenes[1][None, :8])
    clipped = CODEC.bound.clip(ballots)
    assert (clipped.sum(axis=-1) == 1).all()
    assert set(np.unique(clipped)) == {0.0, 1.0}
