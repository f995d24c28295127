"""The exact Gaussian against fifty digits of mpmath, at random points over the whole promised range."""

import mpmath
import numpy as np
import pytest

from tutelage.privacy import accounting

GENERATOR = np.random.default_rng(20180523)
POINTS = [
    (float(sensitivity), float(epsilon), float(delta))
    for sensitivity, epsilon, delta in zip(
        10 ** GENERATOR.uniform(-3, 3, 40), 10 ** GENERATOR.uniform(-3, 3, 40), 10 ** GENERATOR.uniform(-15, -1, 40), strict=True
    )
]


def log_delta(mu: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    """Balle & Wang 2018, Theorem 8, written as printed."""
    return mpmath.log(mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize(("sensitivity", "epsilon", "delta"), POINTS)
def test_sigma_is_exact(sensitivity: float, epsilon: float, delta: float) -> None:
    sigma = accounting.gaussian_sigma(sensitivity, epsilon, delta)
    with mpmath.workdps(50):
        target = mpmath.log(mpmath.mpf(delta))

        def miss(mu: mpmath.mpf) -> mpmath.mpf:
            return log_delta(mu, mpmath.mpf(epsilon)) - target

        mu = mpmath.mpf(sensitivity) / mpmath.mpf(sigma)
        true = mpmath.findroot(miss, (mu, mu * (1 + mpmath.mpf("1e-8"))))
        assert abs(mpmath.mpf(sensitivity) / true / mpmath.mpf(sigma) - 1) < 1e-12


@pytest.mark.parametrize(("sensitivity", "epsilon", "delta"), POINTS)
def test_delta_and_epsilon_are_exact(sensitivity: float, epsilon: float, delta: float) -> None:
    sigma = float(accounting.gaussian_sigma(sensitivity, epsilon, delta) * 1.25)  # anywhere, not only on the calibrated curve
    with mpmath.workdps(50):
        mu = mpmath.mpf(sensitivity) / mpmath.mpf(sigma)
        here = log_delta(mu, mpmath.mpf(epsilon))
        ours = accounting.gaussian_delta(sensitivity, sigma, epsilon)
        if here > -690:
            assert abs(mpmath.mpf(ours) / mpmath.exp(here) - 1) < 1e-10
        else:  # below what a float can hold
            assert ours < 1e-299
        found = accounting.gaussian_epsilon(sensitivity, sigma, delta)
        if found > 0:
            slope = mpmath.diff(lambda e: log_delta(mu, e), mpmath.mpf(found))
            error = (log_delta(mu, mpmath.mpf(found)) - mpmath.log(mpmath.mpf(delta))) / slope  # one Newton step from the truth
            assert abs(error) < 1e-10 * mpmath.mpf(found) + mpmath.mpf("1e-14")
        else:
            assert log_delta(mu, mpmath.mpf(0)) <= mpmath.log(mpmath.mpf(delta))


@pytest.mark.parametrize(("mu", "fpr"), [(0.268, 1e-3), (2.0, 1e-3), (0.01, 0.5), (6.0, 1e-9)])
def test_the_attackers_best_is_exact(mu: float, fpr: float) -> None:
    with mpmath.workdps(50):
        quantile = -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(fpr))
        true = mpmath.ncdf(mpmath.mpf(mu) + quantile)
        assert abs(accounting.implied_tpr(mu, fpr) / true - 1) < 1e-12


@pytest.mark.parametrize(("beta", "sigma", "order"), [(0.0209, 8.8, 22.5), (0.2, 1.0, 2.5), (1e-4, 50.0, 300.0)])
def test_the_smooth_release_curve_is_the_divergence_of_two_normals(beta: float, sigma: float, order: float) -> None:
    with mpmath.workdps(50):
        alpha, wide = mpmath.mpf(order), mpmath.mpf(sigma)
        mean = mpmath.exp(-mpmath.mpf(beta))  # the narrower neighbour, as far away as its smooth sensitivity lets it be
        narrow = mean * wide
        spread = alpha * narrow**2 + (1 - alpha) * wide**2
        true = mpmath.log(narrow / wide) + mpmath.log(narrow**2 / spread) / (2 * (alpha - 1)) + alpha * mean**2 / (2 * spread)
        assert abs(accounting.smooth_release_rdp(beta, sigma, order)[0] / true - 1) < 1e-10
