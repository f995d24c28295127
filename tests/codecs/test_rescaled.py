"""Stretching codes by variance^(-1/4) buys accuracy at the same price, by as much as the theory says."""

from __future__ import annotations

import numpy as np
import pytest
from tests.codecs.conftest import ellipses

from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.rescaled import Rescaled
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import DataError, RecipeError


def noisy_error(codec, masks: np.ndarray, ratio: float) -> float:
    """Squared error per mask when the noise is `ratio` times the sensitivity: the price is then the same for every codec."""
    codes = codec.encode(masks[None])[0]
    noise = np.random.default_rng(0).normal(0, ratio * codec.bound.sensitivity(), codes.shape)
    return float(((codec.decode(codes + noise, masks) - masks) ** 2).sum() / len(masks))


def test_it_beats_the_plain_code_at_the_same_price(public: Public) -> None:
    masks = ellipses(500, (16, 12), seed=9)
    for plain in (PCA.fit(public, components=30), DCT.fit(public, kept=30)):
        assert noisy_error(Rescaled.fit(plain, public), masks, 0.2) < 0.8 * noisy_error(plain, masks, 0.2)


def test_the_noise_falls_as_the_formula_says(public: Public) -> None:
    codec = PCA.fit(public, components=20, norm=100.0)
    scaled = Rescaled.fit(codec, public, floor=1e-9)
    variances = codec.encode(public.targets[None])[0].var(axis=0)
    assert np.allclose(scaled.variances, variances)
    stretched = (variances * scaled.weights**2).sum()
    assert stretched == pytest.approx(variances.sum())  # the same mean square, so the same clip and the same σ …
    ratio = (1 / scaled.weights**2).sum() / 20  # … and so much of the noise is left after undoing the stretch
    assert ratio == pytest.approx(np.sqrt(variances).sum() ** 2 / (20 * variances.sum()))
    for _ in range(50):  # no other weights of that mean square do better
        other = scaled.weights * np.random.default_rng(_).lognormal(0, 0.3, 20)
        other *= np.sqrt(variances.sum() / (variances * other**2).sum())
        assert (1 / other**2).sum() >= (1 / scaled.weights**2).sum()


def test_without_noise_nothing_is_lost(public: Public) -> None:
    codec = DCT.fit(public, kept=40, quantile=1.0)
    scaled = Rescaled.fit(codec, public, quantile=1.0)
    answers = [one.decode(one.encode(public.targets[None])[0], public.inputs) for one in (codec, scaled)]
    assert np.allclose(*answers, atol=1e-4)


def test_shrinking_helps_under_noise(public: Public) -> None:
    codec = PCA.fit(public, components=30)
    masks = ellipses(500, (16, 12), seed=9)
    plain = Rescaled.fit(codec, public)
    shrunk = Rescaled.fit(codec, public, noise=0.3 * plain.bound.sensitivity())
    assert noisy_error(shrunk, masks, 0.3) < 0.7 * noisy_error(plain, masks, 0.3)


def test_non_negative_codes_stay_so(public: Public) -> None:
    scaled = Rescaled.fit(Pixels.fit(public), public)
    assert type(scaled.bound).__name__ == "Orthant"
    assert (scaled.encode(public.targets[None]) >= 0).all()


def test_a_core_that_never_varies_still_fills_the_clip() -> None:
    # Codes that are measured from 0 have a mean square where they have no variance; weights by variance alone would blow it up.
    rng = np.random.default_rng(0)
    masks = np.zeros((900, 16, 16), np.uint8)
    masks[:, 3:13, 3:13] = 1
    masks[:, 3:5] = rng.integers(0, 2, (900, 2, 16))
    public, fresh = Public.of(np.zeros((600, 1)), masks[:600]), masks[600:]
    plain = Pixels.fit(public)
    assert noisy_error(Rescaled.fit(plain, public), fresh, 0.05) < 0.8 * noisy_error(plain, fresh, 0.05)


class Raw:
    """A codec that hands on what it is given."""

    bound = Ball(192, 100.0)

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        return predictions.reshape(*predictions.shape[:2], -1)

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        return codes.reshape(-1, 16, 12)


def test_what_it_is_given_stays_as_it_was(public: Public) -> None:
    scaled, masks = Rescaled.fit(Raw(), public), ellipses(5, (16, 12), seed=9)[None]
    given = masks.astype(float)
    codes = scaled.encode(given)
    assert np.array_equal(given, masks)
    assert np.array_equal(scaled.encode(masks), codes)  # whole numbers in, the same codes out


def test_codes_of_linear_codecs_stay_measurements_with_white_noise(public: Public) -> None:
    masks = ellipses(4, (16, 12), seed=9)
    for inner in (DCT((16, 12), 20, 100.0), PCA.fit(public, components=8, norm=100.0)):
        scaled = Rescaled.fit(inner, public, norm=1000.0, noise=0.3)
        noise = np.random.default_rng(0).normal(0, 0.3, (4, scaled.bound.dimension))
        found = scaled.measured(scaled.encode(masks[None])[0] + noise)
        assert np.allclose(masks.reshape(4, -1) @ found.matrix.T + noise, found.values, atol=1e-4)


def test_other_codes_are_no_measurements(public: Public) -> None:
    whole = Flips.fit(DCT.fit(public, kept=192), public)  # as many numbers as pixels: lengths alone do not tell it apart
    for inner in (Pixels.fit(public), Flips.fit(DCT.fit(public, kept=9), public), whole):
        scaled = Rescaled.fit(inner, public)
        with pytest.raises(DataError, match="`codec` must be DCT, PCA, Blocks or Wavelet"):
            scaled.measured(scaled.encode(public.targets[None, :3])[0])


def test_a_clip_may_be_given(public: Public) -> None:
    assert Rescaled.fit(DCT.fit(public, kept=9), public, norm=3.0).bound == Ball(9, 3.0)


def test_refusals(public: Public) -> None:
    with pytest.raises(RecipeError, match="`codec` must have a Ball or Orthant"):
        Rescaled.fit(Pixels((16, 12)), public)
    with pytest.raises(RecipeError, match="`codec` must not shrink"):
        Rescaled.fit(PCA.fit(public, components=3, noise=0.1), public)
    with pytest.raises(RecipeError, match=r"must leave most public codes whole.* Got a norm of 0\.1, which cuts \d+ of"):
        Rescaled.fit(DCT((16, 12), 9, 0.1), public)
    shrinking = Flips.fit(PCA.fit(public, components=3, noise=0.1), public)
    for nested in (shrinking, Rescaled.fit(DCT.fit(public, kept=9), public, noise=0.1)):
        with pytest.raises(RecipeError, match="`codec` must not shrink"):
            Rescaled.fit(nested, public, noise=0.1)
    with pytest.raises(RecipeError, match="`public` must hold masks whose codes differ"):
        Rescaled.fit(Pixels((16, 12), 1.0, "orthant"), Public.of(np.zeros((3, 1)), np.zeros((3, 16, 12))))
