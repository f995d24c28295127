from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tutelage.codecs import blocks
from tutelage.codecs.blocks import Blocks
from tutelage.data.dataset import Public
from tutelage.privacy.errors import DataError, RecipeError


@pytest.mark.parametrize(("shape", "block"), [((7, 5), (3, 2)), ((10, 9, 7), (4, 4, 3)), ((6, 6), (6, 6)), ((4,), (3,))])
def test_cutting_and_joining_loses_nothing(shape: tuple[int, ...], block: tuple[int, ...]) -> None:
    rows = np.random.default_rng(0).normal(size=(3, math.prod(shape)))
    cut = blocks.cut(rows, shape, block)
    places = math.prod(-(-size // part) for size, part in zip(shape, block, strict=True))
    assert cut.shape == (3, places, math.prod(block))
    assert np.array_equal(blocks._join(cut, shape, block), rows)
    assert np.linalg.norm(cut) == pytest.approx(np.linalg.norm(rows))
    first = rows.reshape(3, *shape)[(slice(None), *(slice(part) for part in block))]
    assert np.array_equal(cut[:, 0], first.reshape(3, -1))


def test_all_components_give_the_mask_back(volumes: Public) -> None:
    codec = Blocks.fit(volumes, block=(5, 3, 4), components=58, norm=100.0)
    codes = codec.encode(volumes.targets[None])[0]
    assert np.allclose(codec.decode(codes, codes), volumes.targets, atol=1e-5)


def test_block_clips_add_up_to_the_norm_and_cost_as_much(volumes: Public) -> None:
    paper = Blocks.fit(volumes, block=(5, 3, 4), components=4, centre=False, clip="block")
    mine = Blocks.fit(volumes, block=(5, 3, 4), components=4, centre=False)
    places = paper.variances.shape[0]
    huge = np.ones((1, 1, 10, 9, 7))
    codes = paper.encode(huge).reshape(places, 4)
    assert (np.linalg.norm(codes, axis=1) <= paper.norm / math.sqrt(places) * (1 + 1e-9)).all()
    assert np.linalg.norm(codes) <= paper.norm * (1 + 1e-12)
    assert paper.bound.sensitivity() == mine.bound.sensitivity()
    answers = [codec.decode(codec.encode(volumes.targets[None])[0], volumes.inputs) for codec in (paper, mine)]
    errors = [((answer - volumes.targets) ** 2).mean() for answer in answers]
    assert errors[1] < 0.85 * errors[0]  # the same price buys more when the whole volume is clipped at once


def test_places_that_never_change_are_trusted_to_the_mean(volumes: Public) -> None:
    codec = Blocks.fit(volumes, block=(2, 2, 2), components=3, noise=2.0)
    noise = np.random.default_rng(1).normal(0, 2.0, (1, codec.bound.dimension))
    still = codec.variances.sum(axis=1) == 0
    assert still.any()
    answer = blocks.cut(codec.decode(noise, noise).reshape(1, -1).astype(float), codec.shape, codec.block)
    mean = blocks.cut(codec.mean[None], codec.shape, codec.block)
    assert np.allclose(answer[0, still], mean[0, still], atol=1e-6)


def test_few_masks_flatter_the_components_of_their_blocks() -> None:
    """Blocks of one mask are alike: nearly a hundred of them from 12 masks promise far less error than there is."""
    rng = np.random.default_rng(4)

    def drawn(count: int) -> np.ndarray:
        found, axes = np.zeros((count, 12, 12, 12), dtype=np.uint8), np.indices((12, 12, 12))
        for mask in found:
            middle, radii = rng.uniform(3, 9, (3, 1, 1, 1)), rng.uniform(2, 5, (3, 1, 1, 1))
            mask[(((axes - middle) / radii) ** 2).sum(axis=0) <= 1] = 1
        return found

    few, fresh, noise = Public.of(np.zeros((12, 1)), drawn(12)), drawn(400), 0.3
    ratios, kept, errors = {}, {}, {}
    for folds in (0, 6):
        codec = Blocks.fit(few, block=(6, 6, 6), noise=noise, norm=1e6, folds=folds, centre=False)
        flat = replace(codec, noise=0.0)
        codes = flat.encode(fresh[None])[0]
        noisy = codes + np.random.default_rng(1).normal(0, noise, codes.shape)
        kept[folds] = codec.variances.shape[1]
        errors[folds] = float(((flat.decode(noisy, noisy) - fresh) ** 2).sum() / len(fresh))
        ratios[folds] = errors[folds] / (8 * codec.spectrum.predicted_error(kept[folds], noise))
        assert ("folds=6" in repr(codec)) == bool(folds)
    assert ratios[0] > 1.5
    assert 0.85 < ratios[6] < 1.15
    assert kept[6] < kept[0]
    assert errors[6] < errors[0]


def test_refusals(volumes: Public) -> None:
    with pytest.raises(RecipeError, match="`block` must have 3 sizes"):
        Blocks.fit(volumes, block=(4, 4), components=1)
    with pytest.raises(RecipeError, match=r"`folds` must be 0, or from 2 to the 40 masks\. Got 1"):
        Blocks.fit(volumes, block=(4, 4, 4), components=1, folds=1)
    two = Public.of(np.zeros((2, 1)), np.eye(8, dtype=np.uint8).reshape(2, 4, 4, 2))
    with pytest.raises(DataError, match=r"`folds` must leave 2 masks or more, whichever part is left out\. Got 2 in 2 parts"):
        Blocks.fit(two, block=(4, 4, 2), components=1, folds=2)
    Blocks.fit(two, block=(2, 2, 2), components=1, folds=2, centre=False)  # one mask has several such blocks
    with pytest.raises(RecipeError, match="`noise` must be given"):
        Blocks.fit(volumes, block=(4, 4, 4))
    with pytest.raises(RecipeError, match="`rank` must"):
        Blocks.fit(volumes, block=(4, 4, 4), components=1, rank=0)
    with pytest.raises(RecipeError, match="`noise` must be a finite"):
        Blocks.fit(volumes, block=(4, 4, 4), noise=float("nan"))
    with pytest.raises(RecipeError, match="`components` must be at most"):
        Blocks.fit(volumes, block=(2, 2, 2), components=9)
    with pytest.raises(RecipeError, match="`clip` must be"):
        Blocks.fit(volumes, block=(4, 4, 4), components=1, clip="both")
