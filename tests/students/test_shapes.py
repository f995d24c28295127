"""The mean shape: the noise of many answers, mostly taken off."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.students.blobs import answered, blobs

from tutelage.answers import Answers
from tutelage.codecs.dct import DCT
from tutelage.students.shapes import mean_shape

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
