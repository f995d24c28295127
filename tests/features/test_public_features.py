"""Scattering, random networks, procedural images and whitening: of single records, and all from a seed."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from tutelage.features import scattering
from tutelage.features.procedural import procedural
from tutelage.features.random_networks import RandomNetworks
from tutelage.features.scattering import Scattering
from tutelage.features.whitening import leading, whitening
from tutelage.privacy.errors import DataError


@pytest.fixture(scope="module")
def grey() -> np.ndarray:
    return procedural(40, (1, 16, 16))


def _of_one_order(images: torch.Tensor) -> torch.Tensor:
    """Filter with the whole wavelets and smooth by a whole transform: slow, and without any shortcut."""
    side, found = images.shape[-1], []
    kernel = torch.as_tensor(scattering._smoothing(side, 1))
    smooth = lambda x: (kernel @ x @ kernel.T).float()  # noqa: E731
    for turn in range(8):
        wave = torch.as_tensor(np.fft.fft2(scattering._morlet(side, 1, turn)))
        found.append(smooth(torch.fft.ifft2(torch.fft.fft2(images.double()) * wave).abs().float()))
    return torch.stack(found, 1)


def test_coarse_wavelets_at_half_resolution_are_those_at_full_resolution() -> None:
    images = torch.as_tensor(procedural(6, (1, 32, 32)))[:, 0]
    maps = scattering._scatter(images)
    assert maps.shape == (6, 81, 8, 8)
    slow = _of_one_order(images)
    assert (maps[:, 9:17] - slow).norm() < 0.03 * slow.norm()


def test_scattering_is_of_length_one_and_of_single_images(grey: np.ndarray) -> None:
    found = Scattering()(grey)
    assert found.shape == (40, Scattering().width((1, 16, 16)))
    assert np.allclose(np.linalg.norm(found.astype(float), axis=1), 1, atol=2e-3)
    changed = grey.copy()
    changed[3] = 1 - changed[3]
    again = Scattering()(changed)
    others = np.arange(40) != 3
    assert (again[others] == found[others]).all()
    assert (again[3] != found[3]).any()


def test_mirror_images_are_the_same_where_that_is_declared(grey: np.ndarray) -> None:
    how = Scattering(mirror=True)
    assert np.allclose(how(grey), how(grey[..., ::-1].copy()), atol=2e-3)
    assert not np.allclose(Scattering()(grey), Scattering()(grey[..., ::-1].copy()), atol=2e-3)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
def test_scattering_has_the_width_that_it_says(shape: tuple[int, int, int]) -> None:
    found = Scattering()(procedural(2, shape))
    assert found.shape == (2, Scattering().width(shape))
    assert np.isfinite(found.astype(float)).all()


def test_a_gradient_goes_through_scattering_even_of_an_empty_image() -> None:
    x = torch.zeros(2, 1, 16, 16, requires_grad=True)
    Scattering().tensors(x).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_scattering_refuses_other_shapes() -> None:
    with pytest.raises(DataError, match="square"):
        Scattering()(np.zeros((2, 1, 16, 20)))


def test_random_networks_are_bounded_and_follow_from_their_seed() -> None:
    images = procedural(12, (1, 8, 8))
    found = RandomNetworks(3, 4, seed=5)(images)
    assert found.shape == (12, 3 * RandomNetworks(3, 4).features_of_one((1, 8, 8)))
    assert found.min() >= 0
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-6
    assert (RandomNetworks(3, 4, seed=5)(images) == found).all()
    assert not np.allclose(RandomNetworks(3, 4, seed=6)(images), found)
    weights = RandomNetworks(1, 4, seed=5).built((1, 8, 8))[0].second.weight.numpy()
    assert hashlib.sha256(weights.tobytes()).hexdigest().startswith(SECOND)


#: The weights of a seed are part of what is asked: another NumPy or torch must not draw others.
SECOND = "5726ce982910"


def test_procedural_images_follow_from_their_seed_and_lie_in_the_range() -> None:
    for shape in ((1, 28, 28), (3, 32, 32)):
        images = procedural(20, shape, random_state=1)
        assert images.shape == (20, *shape)
        assert images.min() >= 0
        assert images.max() <= 1
        assert (procedural(20, shape, random_state=1) == images).all()
        assert (procedural(20, shape, random_state=2) != images).any()
        assert images.std(axis=(1, 2, 3)).min() > 0.005  # none of them is empty


def test_whitening_gives_its_own_images_equal_spread() -> None:
    features = np.random.default_rng(0).standard_normal((800, 30)) * np.arange(1, 31)
    how = whitening(features, 10)
    assert how.spread[0] == pytest.approx(30, rel=0.1)
    assert (np.diff(how.spread) <= 0).all()
    rows = (features - how.centre) @ how.axes / how.spread
    assert np.allclose(np.cov(rows.T), np.eye(10), atol=0.05)
    found = how(features)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-4)
    tapered = how.tapered(5)(features)
    assert np.allclose(tapered[:, 5] / tapered[:, 0], found[:, 5] / found[:, 0] / 2, rtol=1e-3)


def test_leading_axes_are_those_of_the_whole_decomposition() -> None:
    rows = torch.as_tensor(np.random.default_rng(1).standard_normal((300, 150)) * 0.97 ** np.arange(150)).float()
    scatter = rows.T @ rows
    values, axes = leading(scatter, 5)
    assert torch.allclose(values, torch.linalg.eigvalsh(scatter).flip(0)[:5], rtol=1e-3)
    assert torch.allclose(axes.T @ axes, torch.eye(5), atol=1e-4)
