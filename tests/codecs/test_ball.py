"""The activation of Fay et al. 2020, Eq. 5, is uniform on the ball; without its root it is not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from tutelage.codecs.ball import uniform_ball
from tutelage.privacy.errors import DataError

COUNT = 40_000


def unevenness(points: np.ndarray) -> tuple[float, float]:
    """How far radius^dimension is from uniform (Kolmogorov), and the largest mean direction cosine or its square's excess."""
    dimension = points.shape[1]
    radius = np.linalg.norm(points, axis=1)
    directions = points / radius[:, None]
    tilt = np.abs(directions.mean(axis=0)).max()
    squeeze = np.abs((directions**2).mean(axis=0) * dimension - 1).max()
    return float(stats.kstest(radius**dimension, "uniform").statistic), float(max(tilt, squeeze))


@pytest.mark.parametrize("dimension", [1, 2, 8, 64])
@pytest.mark.parametrize("exact", [False, True])
def test_it_is_uniform(dimension: int, exact: bool) -> None:
    normal = np.random.default_rng(dimension).normal(size=(COUNT, dimension + 1))
    points = uniform_ball(normal, exact=exact)
    assert points.shape == (COUNT, dimension)
    assert np.linalg.norm(points, axis=1).max() <= 1 + 1e-12
    radial, directional = unevenness(points)
    noise = 1.63 / np.sqrt(COUNT)  # Kolmogorov's 1 % point
    assert radial < noise + (0.0 if exact else 0.0181)  # the logistic curve's own distance from the normal one
    assert directional < 0.05


@pytest.mark.parametrize("dimension", [2, 8])
def test_twins_are_caught(dimension: int) -> None:
    normal = np.random.default_rng(0).normal(size=(COUNT, dimension + 1))
    rest = normal[:, 1:] / np.linalg.norm(normal[:, 1:], axis=1, keepdims=True)
    without_root = rest * special.expit(np.sqrt(8 / np.pi) * normal[:, :1])
    unscaled = rest * special.expit(normal[:, :1]) ** (1 / dimension)
    cube = np.tanh(normal[:, 1:]) / np.sqrt(dimension)
    for twin in (without_root, unscaled, cube):
        assert unevenness(twin)[0] > 0.05


def test_the_curve_is_off_by_what_it_says() -> None:
    grid = np.linspace(-6, 6, 100_001)
    assert 0.017 < np.abs(special.expit(np.sqrt(8 / np.pi) * grid) - special.ndtr(grid)).max() < 0.018


def test_it_is_total_and_needs_two_numbers() -> None:
    extreme = uniform_ball(np.array([[1e4, 0.0, 0.0], [-1e4, 1.0, 0.0], [1e4, 3.0, 4.0]]))
    assert np.allclose(extreme, [[0, 0], [0, 0], [0.6, 0.8]])
    with pytest.raises(DataError, match="`values` must"):
        uniform_ball(np.ones((3, 1)))
