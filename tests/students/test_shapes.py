"""The mean shape: the noise of many answers, mostly taken off."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.students.blobs import answered, blobs

from tutelage.answers import Answers
from tutelage.codecs.dct import DCT
from tutelage.students.shapes import as_large, mean_shape

EVERYTHING = DCT((16, 16), 256, 1e3)  # all frequencies: noise on a code is as much noise on every pixel


def off(shape: Callable[[Answers], np.ndarray], answers: Answers, truth: np.ndarray) -> float:
    """Give the distance to the true mean shape."""
    return float(np.linalg.norm(np.clip(shape(answers), 0, 1) - truth))


def plain(answers: Answers) -> np.ndarray:
    """The twin: a mean whose noise nobody takes off."""
    return answers.mean


def shrinks(shape: Callable[[Answers], np.ndarray]) -> bool:
    """Tell whether a shape from noisy answers is much nearer to the truth than their mean is, at every noise."""
    _, masks = blobs(100, 0)
    truth = masks.mean(axis=0)
    pairs = []
    for sigma in (1.0, 3.0, 10.0):
        answers = answered(masks, sigma, codec=EVERYTHING)
        pairs.append((off(shape, answers, truth), off(plain, answers, truth)))
    return all(one < 0.75 * other for one, other in pairs)


def test_the_noise_of_the_mean_shape_shrinks() -> None:
    assert shrinks(mean_shape)
    assert not shrinks(plain)


def test_more_answers_less_noise() -> None:
    _, masks = blobs(400, 0)
    errors = [off(mean_shape, answered(masks[:count], 5.0, codec=EVERYTHING), masks[:count].mean(axis=0)) for count in (25, 400)]
    assert errors[1] < 0.6 * errors[0]


def test_where_there_is_nothing_but_noise_there_is_no_shape() -> None:
    nothing = np.zeros((50, 16, 16), np.uint8)
    answers = answered(nothing, 3.0, codec=EVERYTHING)
    assert np.linalg.norm(mean_shape(answers)) < 0.5 * np.linalg.norm(np.clip(plain(answers), 0, 1))
    silent = Answers(np.arange(50), nothing.astype(np.float32), np.zeros((50, 256)), 3.0, EVERYTHING)
    assert not mean_shape(silent).any()


# ── faint shapes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def still(shape: np.ndarray, *_: float) -> np.ndarray:
    """The twin: a shape as faint as it came."""
    return shape


def balls(count: int) -> np.ndarray:
    """Draw balls (count, 20, 20, 20): of a small thing in a volume much is in frequencies that strong noise hides."""
    rng, places = np.random.default_rng(0), np.stack(np.mgrid[:20, :20, :20])
    middle, radius = 10 + rng.normal(0, 1.2, (count, 3, 1, 1, 1)), 4 + rng.normal(0, 0.5, (count, 1, 1, 1))
    return (np.square(places - middle).sum(axis=1) < radius**2).astype(np.uint8)


def seen(scaled: Callable[..., np.ndarray], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the voxels above one half of shapes that noise made faint, as shares of the true mean volume."""
    monkeypatch.setattr("tutelage.students.shapes.as_large", scaled)
    masks, codec = balls(40), DCT((20, 20, 20), 1000, 1e3)
    shapes = [mean_shape(answered(masks, 5.0, codec=codec, seed=seed)) for seed in range(5)]
    return [np.count_nonzero(shape > 0.5) / masks.mean(axis=0).sum() for shape in shapes]


def test_a_faint_shape_is_scaled_to_the_released_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(0.8 < share < 1.4 for share in seen(as_large, monkeypatch))
    assert all(share < 0.3 for share in seen(still, monkeypatch))


def test_a_shape_that_can_be_seen_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    _, masks = blobs(40, 0)
    answers = answered(masks, 2.0, codec=EVERYTHING)
    found = mean_shape(answers)
    monkeypatch.setattr("tutelage.students.shapes.as_large", still)
    assert np.array_equal(found, mean_shape(answers))


def test_scaling_follows_the_volume_alone() -> None:
    shape = np.linspace(0, 0.4, 100)
    scaled = as_large(shape, 30.0, 1.0)
    assert abs(np.count_nonzero(scaled > 0.5) - 30) <= 1
    assert np.array_equal(np.argsort(scaled), np.argsort(shape))
    assert scaled.max() <= 1
    assert np.array_equal(as_large(shape, 30.0, 16.0), shape)  # a volume that may be noise
    assert np.array_equal(as_large(shape, -5.0, 0.1), shape)
    assert not as_large(np.zeros(100), 30.0, 1.0).any()
    assert np.array_equal(as_large(shape * 2, 30.0, 1.0), shape * 2)  # a third and more of it is above one half


def test_exact_masks_keep_their_mean() -> None:
    _, masks = blobs(30, 0)
    assert np.allclose(mean_shape(Answers.exact(masks)), masks.mean(axis=0))


@pytest.mark.parametrize("shape", [(16, 12), (7, 6, 5)])
def test_shapes_are_shares_of_any_size(shape: tuple[int, ...]) -> None:
    masks = np.random.default_rng(0).random((20, *shape)) < 0.4
    codec = DCT(shape, 60, 1e3)
    found = mean_shape(answered(masks, 2.0, codec=codec))
    assert found.shape == shape
    assert found.dtype == np.float32
    assert 0 <= found.min() < found.max() <= 1
    assert np.array_equal(found, mean_shape(answered(masks, 2.0, codec=codec)))
