"""Lower bounds on what a mechanism leaks, from its own samples on two neighbouring inputs.

Whatever is (ε, δ)-DP satisfies Pr[M(D) ∈ E] ≤ e^ε·Pr[M(D′) ∈ E] + δ for every event E, and whatever is μ-Gaussian DP satisfies
Φ⁻¹(Pr[M(D) ∈ E]) − Φ⁻¹(Pr[M(D′) ∈ E]) ≤ μ. The event is chosen on one half of the samples; on the other half both
probabilities are bounded by Clopper & Pearson (1934). A bound above the claim refutes it at the given confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from tutelage.privacy.accounting import Cost

ALARM = 1e-6  # how often a mechanism that keeps its promise is accused, at most


@dataclass(frozen=True)
class Audit:
    """What was found, beside what was claimed."""

    epsilon: float
    mu: float
    claim: Cost

    @property
    def refuted(self) -> bool:
        """Tell whether the samples contradict the claim."""
        exact = self.claim.method == "exact Gaussian" and self.claim.mu is not None
        return bool(self.epsilon > self.claim.epsilon or (exact and self.mu > self.claim.mu))  # type: ignore[operator]


def audit(first: Any, second: Any, claim: Cost, *, alarm: float = ALARM) -> Audit:
    """Compare samples of one number each (the most telling projection of the output) with a claim."""
    one, two = np.asarray(first, dtype=np.float64).reshape(-1), np.asarray(second, dtype=np.float64).reshape(-1)
    choose, measure = (one[::2], two[::2]), (one[1::2], two[1::2])
    each = alarm / 4  # two probabilities for ε, two for μ
    pooled = np.concatenate(choose)
    cuts = np.unique(np.quantile(pooled, np.concatenate([[0.0], np.geomspace(1e-5, 0.5, 200), 1 - np.geomspace(0.5, 1e-5, 200)])))
    found = {}
    for name, bound in (("epsilon", lambda p, q: _epsilon(p, q, claim.delta)), ("mu", _mu)):
        guesses = np.stack([bound(*probabilities) for probabilities in _events(*choose, cuts, each)])
        event, cut = np.unravel_index(int(np.argmax(guesses)), guesses.shape)
        found[name] = max(0.0, float(bound(*_events(*measure, cuts[[cut]], each)[event])[0]))
    return Audit(found["epsilon"], found["mu"], claim)


def _events(one: np.ndarray, two: np.ndarray, cuts: np.ndarray, alarm: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Bound (Pr[E] on the likelier side from below, on the other from above) for all events «above a cut» and «at or below»."""
    above = [values.size - np.searchsorted(np.sort(values), cuts, side="right") for values in (one, two)]
    sizes, result = (one.size, two.size), []
    for hits in (above, [size - count for size, count in zip(sizes, above, strict=True)]):
        for likely, other in ((0, 1), (1, 0)):
            result.append((_lower(hits[likely], sizes[likely], alarm), _upper(hits[other], sizes[other], alarm)))
    return result


def _lower(hits: np.ndarray, size: int, alarm: float) -> np.ndarray:
    return np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), size - hits + 1, alarm), 0.0)


def _upper(hits: np.ndarray, size: int, alarm: float) -> np.ndarray:
    return np.where(hits < size, special.betaincinv(hits + 1, np.maximum(size - hits, 1), 1 - alarm), 1.0)


def _epsilon(likely: np.ndarray, other: np.ndarray, delta: float) -> np.ndarray:
    return np.log(np.maximum(likely - delta, 1e-300)) - np.log(other)


def _mu(likely: np.ndarray, other: np.ndarray) -> np.ndarray:
    inner = (likely > 0) & (other < 1)
    return np.where(inner, special.ndtri(np.where(inner, likely, 0.5)) - special.ndtri(np.where(inner, other, 0.5)), 0.0)
