"""Masks are non-negative: releasing flips whole and filtering when decoding costs √2·C in place of 2·C, for the same noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.codecs.conftest import ellipses

from tutelage.codecs.blocks import Blocks
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public
from tutelage.privacy.errors import DataError, RecipeError

MAKERS = {
    "dct": lambda public: DCT.fit(public, kept=12, quantile=1.0),
    "pca": lambda public: PCA.fit(public, components=12, noise=0.5, norm=50.0),
    "blocks": lambda public: Blocks.fit(public, block=(4, 4), components=2, norm=50.0),
    "wavelet": lambda public: Wavelet.fit(public, kept=12, quantile=1.0),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_two_ways_give_one_answer_and_one_noise(name: str, public: Public) -> None:
    codec = MAKERS[name](public)
    for reference in (np.zeros((16, 12)), public.targets.mean(axis=0) > 0.5):
        flips = Flips(codec, reference, 50.0)
        clean = [one.decode(one.encode(public.targets[None])[0], public.inputs) for one in (codec, flips)]
        assert np.allclose(*clean, atol=1e-5)
        rng, spread = np.random.default_rng(0), []
        for one, answer in zip((codec, flips), clean, strict=True):
            codes = np.repeat(one.encode(public.targets[None, :1])[0], 5000, axis=0)
            noisy = one.decode(codes + rng.normal(0, 0.5, codes.shape), codes) - answer[0]
            spread.append(np.cov(noisy.reshape(5000, -1), rowvar=False))
        # Same mean and covariance, and both are Gaussian: the same law.
        assert np.trace(spread[0]) == pytest.approx(np.trace(spread[1]), rel=0.02)
        assert np.linalg.norm(spread[0] - spread[1]) < 0.15 * np.linalg.norm(spread[0])


def test_flips_from_the_majority_cost_least(public: Public) -> None:
    codec = MAKERS["dct"](public)
    whole = Flips.fit(codec, public, reference="nothing", quantile=0.9)
    majority = Flips.fit(codec, public, quantile=0.9)
    assert whole.bound.sensitivity() == pytest.approx(math.sqrt(2) * whole.norm)
    assert majority.bound.sensitivity() < 0.85 * whole.bound.sensitivity()
    # The deviation from a mean in a ball pays twice its length; that from a majority mask √2 times a length hardly larger.
    deviations = public.targets.reshape(200, -1) - public.targets.mean(axis=0).reshape(-1)
    assert majority.bound.sensitivity() < 0.95 * 2 * np.quantile(np.linalg.norm(deviations, axis=1), 0.9)


@pytest.mark.parametrize("wins", [False, True])
def test_flips_win_iff_their_norm_is_below_root_two_times_the_codes(public: Public, wins: bool) -> None:
    # Two components hold too little of the norm; all frequencies hold all of it.
    codec = DCT.fit(public, kept=192) if wins else PCA.fit(public, components=2)
    flips, masks = Flips.fit(codec, public), ellipses(2000, (16, 12), seed=6)
    assert (flips.norm < math.sqrt(2) * codec.norm) == wins
    assert (flips.bound.sensitivity() < codec.bound.sensitivity()) == wins
    spread = []
    for one in (codec, flips):  # at the same price the noise is proportional to the sensitivity
        codes = one.encode(masks[None])[0]
        noise = np.random.default_rng(0).normal(0, one.bound.sensitivity(), codes.shape)
        spread.append(float(((one.decode(codes + noise, masks) - one.decode(codes, masks)) ** 2).sum()))
    assert (spread[1] < spread[0]) == wins
    assert spread[1] / spread[0] == pytest.approx((flips.bound.sensitivity() / codec.bound.sensitivity()) ** 2, rel=0.1)


def test_reflection_is_an_isometry_into_the_orthant(public: Public) -> None:
    flips = Flips.fit(DCT.fit(public, kept=12), public)
    masks = public.targets.reshape(200, -1).astype(float)
    flipped = flips.flipped(masks)
    assert (flipped >= 0).all()
    assert np.allclose(flips.flipped(flipped), masks)
    for one, other in ((0, 1), (5, 9)):
        assert np.linalg.norm(flipped[one] - flipped[other]) == pytest.approx(np.linalg.norm(masks[one] - masks[other]))
    assert np.array_equal(flipped.sum(axis=1), np.abs(masks - flips.reference).sum(axis=1))


def test_a_soft_reference_would_not_do(public: Public) -> None:
    # Around a mean between 0 and 1 deviations have both signs: no orthant holds them.
    deviations = public.targets - public.targets.mean(axis=0)
    assert (deviations < -0.1).any(axis=0)[8, 6]
    assert (deviations > 0.1).any()
    for soft in (np.full((16, 12), 0.3), public.targets.mean(axis=0), np.full((16, 12), 2), np.full((16, 12), np.nan)):
        with pytest.raises(RecipeError, match="`reference` must hold zeros and ones"):
            Flips(DCT((16, 12), 5, 1.0), soft, 1.0)
    assert Flips(DCT((16, 12), 5, 1.0), np.ones((16, 12)), 1.0).reference.all()
    with pytest.raises(RecipeError, match="`reference` must"):
        Flips(DCT((16, 12), 5, 1.0), np.zeros(5), 1.0)


def test_the_clip_pulls_towards_the_reference(public: Public) -> None:
    flips = Flips.fit(DCT.fit(public, kept=192), public, norm=1e-6)
    answer = flips.decode(flips.encode(public.targets[None, :3])[0], public.inputs[:3])
    assert np.allclose(answer, flips.reference.reshape(16, 12), atol=1e-4)


def test_the_mean_shape_needs_no_components(public: Public) -> None:
    masks = ellipses(300, (16, 12), seed=4)
    bare = Flips(DCT((16, 12), 6, 1.0), np.zeros((16, 12)), 50.0)
    fitted = Flips.fit(DCT((16, 12), 6, 1.0), public, norm=50.0)
    errors = [((one.decode(one.encode(masks[None])[0], masks) - masks) ** 2).mean() for one in (bare, fitted)]
    assert errors[1] < 0.9 * errors[0]


def test_a_ball_around_nothing_must_pay_for_opposites() -> None:
    # Two disjoint masks are √2·C apart; but a ball must allow −v for every v, so it pays 2·C.
    codec = DCT((4, 4), 16, 2.0)
    left, right = np.zeros((2, 1, 1, 4, 4))
    left[..., :1], right[..., 3:] = 1.0, 1.0
    apart = np.linalg.norm(codec.encode(left) - codec.encode(right))
    assert apart == pytest.approx(math.sqrt(2) * 2.0)
    assert apart < codec.bound.sensitivity()


def test_clipping_a_cut_code_in_pixel_space_is_no_substitute() -> None:
    # The tempting bound «decode, drop negatives, encode again» moves honest codes: cut frequencies ring below zero.
    codec = DCT((8, 8), 6, 10.0)
    mask = np.zeros((1, 1, 8, 8))
    mask[..., 2:4, 2:4] = 1.0
    honest = codec.encode(mask)[0]
    again = codec.forward(np.maximum(codec.backward(honest), 0.0))
    assert np.linalg.norm(again - honest) > 0.05 * np.linalg.norm(honest)


def test_refusals(public: Public) -> None:
    codec = DCT((16, 12), 5, 1.0)
    with pytest.raises(RecipeError, match="`reference` must be 'majority'"):
        Flips.fit(codec, public, reference="mean")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="`public` must hold masks of shape"):
        Flips.fit(DCT((4, 4), 5, 1.0), public)
    with pytest.raises(RecipeError, match="`mean` must"):
        Flips(codec, np.zeros((16, 12)), 1.0, np.zeros(3))
