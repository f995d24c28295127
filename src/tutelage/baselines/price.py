"""What a training step costs, and the noise that a budget allows: shared by the baselines, computed by `privacy.accounting`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from tutelage.privacy import accounting
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import Gaussian, Sampled

Step = Gaussian | Sampled
_SLACK = 1 + 1e-9  # a calibrated plan must fit its own budget after rounding
_CLOSE = 1e-3  # relative: how far below ε a search by loss distributions may stop


def batch(rate: float, population: int) -> int:
    """Count the units that a step takes: the nearest whole number, and at least one."""
    if isinstance(rate, bool) or not (isinstance(rate, (int, float)) and 0 < rate <= 1):
        raise RecipeError(f"`rate` must lie in (0, 1]. Got {rate!r} instead.")
    return max(1, round(rate * population))


def step(answer: Gaussian, *, rate: float, population: int) -> Step:
    """Say what one step is: a plain Gaussian on everyone, or one on a secret sample of fixed size (docs/theory/sampled.md)."""
    size = batch(rate, population)
    return answer if size == population else Sampled(answer, size / population, "fixed", size, population)


@lru_cache(maxsize=256)
def calibrated(sensitivity: float, *, steps: int, rate: float, population: int, epsilon: float, delta: float) -> float:
    """Give the smallest noise (on the sum) with which `steps` steps are (ε, δ)-DP: exact where no one is left out."""

    def made(sigma: float) -> Step:
        return step(Gaussian(sensitivity, sigma), rate=rate, population=population)

    everyone = float(accounting.gaussian_sigma(sensitivity * math.sqrt(steps), epsilon, delta)) * _SLACK
    if isinstance(made(everyone), Gaussian):
        return everyone

    def price(sigma: float) -> float:
        return accounting.cost([(made(sigma), steps)], delta).epsilon

    return _smallest(price, epsilon, everyone * rate)  # there a mean over the sample is as noisy as one over everyone: near


def _smallest(price: Callable[[float], float], epsilon: float, guess: float) -> float:
    """Search where the price meets ε from below, by secants in log-log. What it gives has itself been priced: it is safe."""
    at, slope = math.log(guess), -1.0
    before: tuple[float, float] | None = None
    for _ in range(60):  # four or five in practice
        found = price(math.exp(at))
        over = math.log(found / epsilon) if 0 < found < math.inf else math.copysign(0.5, found - epsilon)
        if -_CLOSE <= over <= 0:
            return math.exp(at)
        if before is not None and at != before[0]:
            slope = min(-0.3, max(-3.0, (over - before[1]) / (at - before[0])))
        before, at = (at, over), at - (over + _CLOSE / 2) / slope
    raise RecipeError(f"`epsilon` must be one that loss distributions reach with this `rate`. Got {epsilon!r} instead.")
