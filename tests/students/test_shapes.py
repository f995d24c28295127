"""The mean shape: of all smooth shapes the one that noisy answers make most likely."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.students.blobs import answered, blobs

from tutelage.answers import Answers
from tutelage.codecs.dct import DCT
from tutelage.codecs.pca import PCA
from tutelage.data.dataset import Public
from tutelage.metrics import dice
from tutelage.students.latent import measured, told_shape
from tutelage.students.shapes import _waves, as_large, freedoms, mean_shape

EVERYTHING = DCT((16, 16), 256, 1e3)  # all frequencies: noise on a code is as much noise on every pixel


def found(answers: Answers) -> np.ndarray:
    return told_shape(answers, measured([answers])[0], torch.device("cpu"))


def plain(answers: Answers) -> np.ndarray:
    """The twin: a mean whose noise nobody takes off."""
    return np.clip(answers.mean, 0, 1)


def off(shape: Callable[[Answers], np.ndarray], answers: Answers, truth: np.ndarray) -> float:
    """Give the distance to the true mean shape."""
    return float(np.linalg.norm(shape(answers) - truth))


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
    assert shrinks(found)
    assert not shrinks(plain)


def test_more_answers_less_noise() -> None:
    _, masks = blobs(400, 0)
    errors = [off(found, answered(masks[:count], 5.0, codec=EVERYTHING), masks[:count].mean(axis=0)) for count in (25, 400)]
    assert errors[1] < 0.6 * errors[0]


def test_where_there_is_nothing_but_noise_there_is_next_to_no_shape() -> None:
    nothing = np.zeros((50, 16, 16), np.uint8)
    answers = answered(nothing, 3.0, codec=EVERYTHING)
    assert np.linalg.norm(found(answers)) < 0.5 * np.linalg.norm(plain(answers))
    silent = Answers(np.arange(50), nothing.astype(np.float32), np.zeros((50, 256)), 0.3, EVERYTHING)
    assert found(silent).max() < 0.05


def balls(count: int) -> np.ndarray:
    """Draw balls (count, 20, 20, 20): of a small thing in a volume much is in frequencies that strong noise hides."""
    rng, places = np.random.default_rng(0), np.stack(np.mgrid[:20, :20, :20])
    middle, radius = 10 + rng.normal(0, 1.2, (count, 3, 1, 1, 1)), 4 + rng.normal(0, 0.5, (count, 1, 1, 1))
    return (np.square(places - middle).sum(axis=1) < radius**2).astype(np.uint8)


def filtered(answers: Answers) -> np.ndarray:
    """The twin: a linear filter that takes down what noise explains, over all frequencies alike."""
    noise = answers.codec.bound.dimension * answers.sigma**2 / len(answers)
    power = float(np.square(answers.mean).sum())
    return np.clip(answers.mean * max(0.0, 1 - noise / power), 0, 1)


def small(side: int, radius: float, axes: int) -> np.ndarray:
    rng, places = np.random.default_rng(0), np.stack(np.mgrid[(slice(0, side),) * axes])
    middle = side / 2 + rng.normal(0, 0.6, (40, axes, *(1,) * axes))
    return (np.square(places - middle).sum(axis=1) < radius**2).astype(np.uint8)


@pytest.mark.parametrize(("side", "radius", "axes"), [(24, 2.5, 3), (64, 5.0, 2), (64, 3.0, 2)])
@pytest.mark.parametrize("sigma", [0.1, 0.3])
def test_an_organ_of_less_than_a_hundredth_of_the_image_is_found(side: int, radius: float, axes: int, sigma: float) -> None:
    """A field that began at any other level than the told volume's sank until nothing was left to learn from."""
    masks = small(side, radius, axes)
    answers = answered(masks, sigma, codec=DCT((side,) * axes, 1000, 1e3))
    truth = masks.mean(axis=0)
    assert truth.mean() < 0.02
    assert float(dice(found(answers)[None], truth[None] > 0.5).mean()) > 0.85


def test_what_is_small_and_faint_is_still_a_label() -> None:
    masks = small(64, 3.0, 2)
    answers = answered(masks, 1.0, codec=DCT((64, 64), 1000, 1e3))
    assert float(dice(found(answers)[None], masks.mean(axis=0)[None] > 0.5).mean()) > 0.6


@pytest.mark.parametrize("sigma", [1e-8, 1e-5, 1e-3, 1e-2])
def test_clear_answers_are_believed(sigma: float) -> None:
    """Squares have corners, which no smooth shape has: what the answers decode to is nearer, and is taken."""
    masks = np.zeros((20, 16, 16), np.uint8)
    masks[:, 4:9, 6:13] = 1
    answers = answered(masks, sigma, codec=EVERYTHING)
    assert np.allclose(found(answers), masks[0], atol=0.05)


def test_measurements_may_repeat_each_other_or_say_nothing() -> None:
    _, masks = blobs(40, 0)
    rows = torch.from_numpy(measured([answered(masks, 1.0)])[0][0])
    mean = torch.from_numpy(masks.mean(axis=0)).float()
    for matrix in (torch.cat([rows, rows, rows[:3] * 1e-4]), torch.zeros_like(rows)):
        told = matrix @ mean.flatten()
        shape = mean_shape(matrix, told, 0.1, mean)
        assert np.isfinite(shape).all()
        assert np.linalg.norm(shape - mean.numpy()) < 0.35 * float(mean.norm())


@pytest.mark.parametrize("sigma", [3.0, 5.0])
def test_what_is_much_fainter_than_its_noise_still_has_its_size(sigma: float) -> None:
    masks, codec = balls(40), DCT((20, 20, 20), 1000, 1e3)
    truth = masks.mean(axis=0)
    answers = [answered(masks, sigma, codec=codec, seed=seed) for seed in range(4)]
    scores = {shape: [float(dice(shape(one)[None], truth[None] > 0.5).mean()) for one in answers] for shape in (found, filtered)}
    assert min(scores[found]) > 0.7
    assert max(scores[filtered]) < 0.6


def test_what_a_codec_knows_of_public_masks_is_not_forgotten() -> None:
    """Four numbers an answer cannot draw a shape. The mean of public masks, which the codec carries, can."""
    images, masks = blobs(60, 0)
    answers = answered(masks, 1.0, codec=PCA.fit(Public.of(images, masks), components=4, norm=1e3))
    truth = masks.mean(axis=0)
    assert off(found, answers, truth) < 0.3 * np.linalg.norm(truth)
    told = measured([answers])[0]
    nothing = torch.zeros(answers.mean.shape)
    twin = mean_shape(torch.from_numpy(told[0]), torch.from_numpy(told[1].mean(axis=0)).float(), 0.2, nothing)
    assert np.linalg.norm(twin - truth) > 0.5 * np.linalg.norm(truth)


@pytest.mark.parametrize("shape", [(16, 12), (7, 6, 5)])
def test_shapes_are_shares_of_any_size(shape: tuple[int, ...]) -> None:
    masks = np.random.default_rng(0).random((20, *shape)) < 0.4
    codec = DCT(shape, 60, 1e3)
    seen = found(answered(masks, 2.0, codec=codec))
    assert seen.shape == shape
    assert seen.dtype == np.float32
    assert 0 <= seen.min() < seen.max() <= 1
    assert np.array_equal(seen, found(answered(masks, 2.0, codec=codec)))


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


@pytest.mark.parametrize(("shape", "count"), [((32, 48, 32), 1000), ((16, 16), 100), ((4, 12), 40)])
def test_a_field_has_as_many_freedoms_as_waves(shape: tuple[int, ...], count: int) -> None:
    assert freedoms(shape) == _waves(torch.Size(shape), torch.device("cpu"))[1].numel() == count
