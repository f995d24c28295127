"""How much may be learned about one unit in all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

from tutelage.privacy import accounting
from tutelage.privacy.errors import RecipeError
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

    def record(self) -> dict[str, Any]:
        """Write a budget as plain data for the opening row of a book."""
        return {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "unit": self.unit.name,
            "unit_teachers": self.unit.teachers,
            "adjacency": str(self.adjacency),
        }


def read_budget(record: dict[str, Any]) -> Budget:
    """Read a budget out of an opening row."""
    unit = Unit(record["unit"], record["unit_teachers"])
    return Budget(record["epsilon"], record["delta"], unit, Adjacency(record["adjacency"]))
