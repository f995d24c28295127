"""Wavelet coefficients that masks choose themselves: the published choice, and the one that is paid for."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("pywt")

from tutelage.codecs.pca import PCA
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public
from tutelage.data.scenes import Scenes
from tutelage.privacy import accounting
from tutelage.reproduction import compression, sparse
from tutelage.reproduction.prices import FIRST


@pytest.fixture(scope="module")
def public() -> Public:
    _, masks = Scenes(16).draw(120, seed=3)
    masks = masks[masks.any(axis=(1, 2))]
    return Public.of(np.zeros((len(masks), 1)), masks)


def off(answers: np.ndarray, masks: np.ndarray) -> float:
    return float(np.square(answers - masks).mean())


def test_each_mask_keeps_its_own_largest_coefficients(public: Public) -> None:
    masks = np.asarray(public.targets)
    everything = sparse.whole(public, levels=3)
    wide = Wavelet(everything.shape, everything.kept, 1e9, levels=3)
    np.testing.assert_allclose(compression.behind(sparse.Largest(wide, 256), masks, 0.0, 0), masks, atol=1e-5)
    codes, few = wide.encode(masks[None])[0], sparse.Largest(wide, 12).encode(masks[None])[0]
    for all_of, some in zip(codes, few, strict=True):
        dropped = np.abs(all_of[some == 0])
        assert np.abs(some[some != 0]).min() > dropped.max(initial=0.0) or dropped.max() == 0
    own = compression.behind(sparse.Largest(wide, 12), masks, 0.0, 0)
    common = compression.behind(compression.linears("Wavelet", public, [12])[12], masks, 0.0, 0)
    assert off(own, masks) < off(common, masks)  # as published: the free choice is the better one


def test_the_paid_choice_is_the_free_one_where_noise_is_nothing_and_none_where_it_is_not(public: Public) -> None:
    masks = np.asarray(public.targets)[:24]
    chosen = sparse.Chosen.fit(public, kept=8, levels=3)
    silent = chosen.released(masks, 1e-7)
    above = np.abs(chosen.wavelet.encode(masks[None])[0]) >= chosen.threshold
    first = above & (np.cumsum(above, axis=1) <= 8)
    expected = chosen.wavelet.decode(np.where(first, chosen.wavelet.encode(masks[None])[0], 0.0), masks)
    np.testing.assert_allclose(silent, expected, atol=1e-3)
    assert off(chosen.released(masks, 0.3), masks) > 5 * off(silent, masks)
    np.testing.assert_array_equal(compression.behind(chosen, masks, 0.0, 0), chosen.released(masks, 0.0))


@pytest.mark.parametrize("sigma", [0.025, 0.075, 0.3, FIRST.point])
def test_all_choices_and_values_cost_together_what_the_gaussian_answers_cost(
    sigma: float, public: Public, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, (epsilon, delta) = [], sparse.budget(sigma)
    assert (epsilon, delta) == ((8.0, 1e-5) if sigma == FIRST.point else (FIRST.epsilon(sigma), 1e-2))
    for name in ("AboveThreshold", "NoisyMean"):
        kind = getattr(sparse, name)
        monkeypatch.setattr(sparse, name, lambda *given, kind=kind: (seen.append(kind(*given).event()), kind(*given))[1])
    sparse.Chosen.fit(public, kept=8, levels=3).released(np.asarray(public.targets)[:2], sigma)
    choice, _, values = seen  # the one between was made to ask how far it reaches
    first = 62 * (choice.epsilon_threshold + choice.epsilon_answers)
    second = accounting.gaussian_epsilon(math.sqrt(62) * values.sensitivity, values.sigma, delta)
    assert first == pytest.approx(epsilon / 2)
    assert first + second == pytest.approx(epsilon, rel=1e-6)  # pure ε and (ε, δ) add up


def test_codecs_of_many_sizes_are_those_that_are_fitted_one_by_one(public: Public) -> None:
    masks = np.asarray(public.targets)
    found = compression.linears("Wavelet", public, [4, 16])
    for kept in (4, 16):
        alone = Wavelet.fit(public, kept=kept, levels=3)
        assert np.array_equal(found[kept].kept, alone.kept)
        assert found[kept].norm == pytest.approx(alone.norm, rel=1e-5)
    found = compression.linears("PCA", public, [4, 16, 10_000])
    for kept in (4, 16):
        alone = PCA.fit(public, components=kept, centre=False)
        assert found[kept].norm == pytest.approx(alone.norm, rel=1e-6)
        np.testing.assert_allclose(
            compression.behind(found[kept], masks, 0.0, 0), compression.behind(alone, masks, 0.0, 0), atol=1e-4
        )
    assert found[10_000].components <= len(masks)  # few masks have few components
