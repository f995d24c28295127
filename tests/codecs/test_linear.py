"""A linear codec is one matrix: what a student that never decodes holds its masks against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.codecs.conftest import ellipses

from tutelage.codecs.blocks import Blocks
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.linear import measurement
from tutelage.codecs.pca import PCA
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public

SHAPES = {2: (16, 12), 3: (10, 9, 7)}
CODECS: dict[str, Callable[[Public, int], Any]] = {
    "dct": lambda public, axes: DCT.fit(public, kept=20),
    "pca": lambda public, axes: PCA.fit(public, components=8),
    "pca that shrinks": lambda public, axes: PCA.fit(public, components=8, noise=0.5),
    "pca, paper": lambda public, axes: PCA.fit(public, components=8, centre=False),
    "blocks": lambda public, axes: Blocks.fit(public, block=(4,) * axes, components=3),
    "blocks that shrink and do not fit": lambda public, axes: Blocks.fit(public, block=(5,) * axes, components=3, noise=0.3),
    "wavelet": lambda public, axes: Wavelet.fit(public, kept=20),
    "wavelet of odd sizes": lambda public, axes: Wavelet.fit(public, kept=40, wavelet="db2", levels=1),
}


@pytest.fixture(params=SHAPES)
def masks(request: pytest.FixtureRequest) -> Public:
    return Public.of(np.zeros((40, 1)), ellipses(40, SHAPES[request.param]), source="ellipses")


@pytest.mark.parametrize("name", CODECS)
def test_the_matrix_measures_what_the_codec_measures(name: str, masks: Public) -> None:
    codec = CODECS[name](masks, masks.targets.ndim - 1)
    fresh = ellipses(6, masks.targets.shape[1:], seed=9).reshape(6, -1).astype(np.float64)
    found = codec.measured(codec.forward(fresh))
    assert found.matrix.shape == (codec.bound.dimension, fresh.shape[1])
    assert found.matrix.dtype == np.float32
    assert np.abs(found.values).max() > 0.5  # or equality would say nothing
    assert np.allclose(fresh @ found.matrix.T, found.values, atol=1e-4)
    constant = codec.forward(np.zeros((1, fresh.shape[1])))
    assert np.allclose(fresh @ found.matrix.T + constant, codec.forward(fresh), atol=1e-4)


@pytest.mark.parametrize("reference", ["majority", "nothing"])
@pytest.mark.parametrize("name", CODECS)
def test_flips_are_measured_through_their_filter(name: str, reference: Any, masks: Public) -> None:
    codec = Flips.fit(CODECS[name](masks, masks.targets.ndim - 1), masks, reference=reference, norm=1e3)
    fresh = ellipses(6, masks.targets.shape[1:], seed=9)
    found = codec.measured(codec.encode(fresh[None])[0])
    assert np.allclose(fresh.reshape(6, -1) @ found.matrix.T, found.values, atol=1e-4)


@pytest.mark.parametrize("name", ["dct", "pca that shrinks", "blocks", "wavelet"])
def test_noise_on_flips_is_white_on_what_is_measured(name: str) -> None:
    public = Public.of(np.zeros((40, 1)), ellipses(40, (16, 16)), source="ellipses")  # whole blocks: nothing is padded
    codec = Flips.fit(CODECS[name](public, 2), public, norm=1e3)
    codes = np.repeat(codec.encode(public.targets[None, :1])[0], 4000, axis=0)
    noisy = codes + np.random.default_rng(0).normal(0, 0.7, codes.shape)
    off = codec.measured(noisy).values - codec.measured(codes[:1]).values
    spread = np.cov(off, rowvar=False)
    assert np.allclose(np.diag(spread), 0.49, rtol=0.15)
    assert np.abs(spread - np.diag(np.diag(spread))).max() < 0.06
    assert np.abs(off.mean(axis=0)).max() < 0.06


def test_a_codec_that_shrinks_on_the_way_back_would_be_measured_wrongly() -> None:
    public = Public.of(np.zeros((40, 1)), ellipses(40, (16, 12)), source="ellipses")
    codec = PCA.fit(public, components=8, noise=0.5)
    rows = public.targets[:6].reshape(6, -1).astype(np.float64)
    twin, honest = measurement(codec, codec.forward(rows)), codec.measured(codec.forward(rows))
    assert not np.allclose(rows @ twin.matrix.T, twin.values, atol=0.05)  # the tests above would see it
    assert np.array_equal(honest.matrix, measurement(replace(codec, noise=0.0), codec.forward(rows)).matrix)
