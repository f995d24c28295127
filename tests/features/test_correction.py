"""Corrections: the slope of how likely the labels are, and a guess that follows it."""

from __future__ import annotations

import numpy as np

from tutelage.features.correction import Descent, correction, shares

RNG = np.random.default_rng(0)
SEEN, TARGETS = RNG.normal(size=(40, 3)).astype(np.float32), RNG.integers(0, 4, 40)


def likelihood(weights: np.ndarray) -> float:
    return float(np.log(shares(SEEN.astype(np.float64), weights)[np.arange(40), TARGETS]).sum())


def test_a_correction_is_the_slope_of_the_likelihood() -> None:
    weights = RNG.normal(size=(3, 4))
    slope = SEEN.T @ correction(SEEN, TARGETS, weights)
    for place in np.ndindex(3, 4):
        step = np.zeros((3, 4))
        step[place] = 1e-4
        measured = (likelihood(weights + step) - likelihood(weights - step)) / 2e-4
        assert abs(measured - slope[place]) < 1e-3


def test_the_later_half_of_the_guesses_is_averaged() -> None:
    descent = Descent(1, 2, rounds=4)
    assert np.array_equal(descent.weights, [[0, 0]])
    for step in (1.0, 2.0, 3.0, 4.0):
        descent.follow(np.asarray([[step, -step]]))
    assert np.array_equal(descent.guess, [[10, -10]])
    assert np.array_equal(descent.weights, [[8, -8]])  # of 6 and 10
