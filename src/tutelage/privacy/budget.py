"""How much may be learned about one unit in all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

from tutelage.privacy import accounting
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import Event, NonPrivate, Sampled
from tutelage.privacy.units import Adjacency, Unit


@final
@dataclass(frozen=True)
class Budget:
    """Say how much may be learned about one unit in all: (ε, δ), who the unit is, and who its neighbours are."""

    epsilon: float
    delta: float
    unit: Unit = field(default_factory=Unit)
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        if isinstance(self.unit, str):
            object.__setattr__(self, "unit", Unit(self.unit))
        if self.adjacency not in list(Adjacency):
            raise RecipeError(f"`adjacency` must be 'replace-one' or 'add-remove'. Got {self.adjacency!r} instead.")
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        accounting.positive(epsilon=self.epsilon)
        accounting.probability(delta=self.delta)

    @property
    def mu(self) -> float:
        """Give the μ of the Gaussian answer that this budget holds exactly."""
        return float(accounting.epsilon_mu(self.epsilon, self.delta))

    def sigma(self, sensitivity: float, *, share: float = 1.0, rounds: int = 1) -> float:
        """Give the noise on each of `rounds` Gaussian answers that together take a share of the budget's μ².

        Shares are fixed when a run opens. Where they add up to 1 the answers fit the budget exactly.
        """
        accounting.positive(sensitivity=sensitivity, rounds=rounds)
        if not (isinstance(share, (int, float)) and 0 < share <= 1):
            raise RecipeError(f"`share` must lie in (0, 1]. Got {share!r} instead.")
        return float(sensitivity * math.sqrt(rounds / share) / self.mu)

    def record(self) -> dict[str, Any]:
        """Write a budget as plain data for the opening row of a book."""
        return {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "unit": self.unit.name,
            "unit_teachers": self.unit.teachers,
            "adjacency": str(self.adjacency),
        }

    def exceeded(self, pairs: Sequence[tuple[Event, int]]) -> bool:
        """Tell at once, without a grid, that no ledger of this budget can hold these (event, count) pairs.

        To ask before pricing what a file claims: a grid for it could take all memory. After a look nothing is exceeded.
        """
        if any(isinstance(event, NonPrivate) for event, _ in pairs):
            return False
        if any(isinstance(event, Sampled) for event, _ in pairs):
            return accounting.beyond(pairs, self.epsilon, self.delta)
        return not accounting.admits(pairs, self.epsilon, self.delta)


def read_budget(record: dict[str, Any]) -> Budget:
    """Read a budget out of an opening row."""
    unit = Unit(record["unit"], record["unit_teachers"])
    return Budget(record["epsilon"], record["delta"], unit, Adjacency(record["adjacency"]))
