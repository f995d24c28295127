"""What a student of masks is given: only what was let out, and how far off it is."""

from __future__ import annotations

import numpy as np
import pytest

from tutelage.answers import Answers
from tutelage.codecs.dct import DCT
from tutelage.codecs.pixels import Pixels
from tutelage.privacy.errors import DataError

MASKS = np.random.default_rng(0).integers(0, 2, (6, 8, 8)).astype(np.float32)
CODEC = DCT((8, 8), 20, 5.0)


def noisy(sigma: float = 0.5, codec: object = CODEC) -> Answers:
    codes = np.random.default_rng(1).normal(size=(6, 20))
    return Answers(np.arange(3, 9), MASKS, codes, sigma, codec)


def test_one_mask_per_question() -> None:
    with pytest.raises(DataError, match=r"`values` must be one mask per question\. Got \(6, 8, 8\) for 5 instead"):
        Answers(np.arange(5), MASKS)
    with pytest.raises(DataError, match=r"Got \(6, 64\) for 6 instead"):
        Answers(np.arange(6), MASKS.reshape(6, -1))


def test_exact_masks_have_no_codes() -> None:
    exact = Answers.exact(MASKS)
    assert exact.chosen.tolist() == list(range(6))
    assert (len(exact), exact.codes, exact.noisy) == (6, None, False)
    with pytest.raises(DataError, match="`codec` must be linear"):
        exact.measured()


def test_answers_are_noisy_where_codes_are() -> None:
    assert noisy().noisy
    assert not noisy(sigma=0.0).noisy
    assert not Answers(np.arange(6), MASKS, sigma=1.0).noisy


def test_only_a_linear_codec_measures() -> None:
    found = noisy().measured()
    assert found.matrix.shape == (20, 64)
    assert np.allclose(found.values, noisy().codes)
    for codec in (Pixels((8, 8)), None):
        with pytest.raises(DataError, match="`codec` must be linear"):
            noisy(codec=codec).measured()
    with pytest.raises(DataError, match="`codec` must be linear"):
        noisy(sigma=0.0).measured()


def test_the_average_answers_every_question_alike_and_has_no_codes_left() -> None:
    answers = noisy()
    same = answers.averaged()
    assert np.allclose(answers.mean, MASKS.mean(axis=0))
    assert same.values.shape == MASKS.shape
    assert (same.values == same.values[0]).all()
    assert np.allclose(same.values[0], answers.mean)
    assert np.array_equal(same.chosen, answers.chosen)
    assert not same.noisy


def test_printed_it_tells_its_size_and_noise_alone() -> None:
    assert repr(noisy()) == "Answers(6 masks of (8, 8), sigma=0.5)"
