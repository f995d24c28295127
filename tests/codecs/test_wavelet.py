from __future__ import annotations

import math

import numpy as np
import pytest

from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public
from tutelage.privacy.errors import RecipeError


@pytest.mark.parametrize(("shape", "wavelet", "levels"), [((16, 12), "haar", 2), ((13, 10), "db2", 1), ((8, 7, 9), "haar", 3)])
def test_all_coefficients_are_a_rotation(shape: tuple[int, ...], wavelet: str, levels: int) -> None:
    padded = math.prod(-(-size // 2**levels) * 2**levels for size in shape)
    codec = Wavelet(shape, np.arange(padded), 1e3, wavelet, levels)
    assert codec.coefficients == padded
    rows = np.random.default_rng(0).normal(size=(5, math.prod(shape)))
    codes = codec.forward(rows)
    assert np.allclose(codes @ codes.T, rows @ rows.T)
    assert np.allclose(codec.backward(codes), rows)


def test_coarse_comes_first() -> None:
    codec = Wavelet((16, 16), np.arange(256), 1e3, "haar", 2)
    flat = codec.forward(np.ones((1, 256)))[0]
    assert np.allclose(flat[:16], 4.0)
    assert np.allclose(flat[16:], 0.0)
    checks = np.indices((16, 16)).sum(axis=0) % 2  # the finest pattern: half its energy is in the finest bands, listed last
    fine = codec.forward(checks.reshape(1, -1).astype(float))[0]
    assert (fine[64:] ** 2).sum() == pytest.approx(0.5 * (fine**2).sum())


def test_the_public_choice_is_the_best_of_its_size(public: Public) -> None:
    codec = Wavelet.fit(public, kept=30, quantile=1.0)
    codes = codec.encode(public.targets[None])[0]
    error = ((codec.decode(codes, codes) - public.targets) ** 2).sum()
    first = Wavelet(codec.shape, np.arange(30), 100.0)
    codes = first.encode(public.targets[None])[0]
    assert error <= ((first.decode(codes, codes) - public.targets) ** 2).sum()


def test_refusals(public: Public) -> None:
    with pytest.raises(RecipeError, match="`wavelet` must"):
        Wavelet((8, 8), np.arange(4), 1.0, "bior2.2")
    with pytest.raises(RecipeError, match="`wavelet` must"):
        Wavelet((8, 8), np.arange(4), 1.0, "nonsense")
    with pytest.raises(RecipeError, match="`levels` must be at most"):
        Wavelet((8, 8), np.arange(4), 1.0, "db4", 2)
    with pytest.raises(RecipeError, match="`kept` must number"):
        Wavelet((8, 8), np.array([64]), 1.0)
    with pytest.raises(RecipeError, match="`kept` must be at most"):
        Wavelet.fit(public, kept=1000)
