"""What a baseline refuses before it charges or reads anything."""

from __future__ import annotations

from tutelage.data.dataset import Private
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Adjacency


def check_unit(private: Private, budget: Budget) -> None:
    """Refuse data whose unit is not the ledger's, and units that are in several places."""
    if private.unit != budget.unit.name:
        raise RecipeError(f"`unit` of the budget must be the data's, {private.unit!r}. Got {budget.unit.name!r} instead.")
    if budget.unit.teachers != 1:  # a unit's records lie together here: one gradient, one update
        raise RecipeError(f"`unit` must reach 1 place of the training. Got {budget.unit.teachers} instead.")
    check_adjacency(budget)


def check_adjacency(budget: Budget) -> None:
    """Refuse add-remove: places are fixed, and a unit that is absent is one that was replaced by nothing."""
    if budget.adjacency != Adjacency.REPLACE_ONE:
        raise RecipeError(f"`adjacency` of a baseline's budget must be 'replace-one'. Got {str(budget.adjacency)!r} instead.")


def check_whole(**named: int) -> None:
    """Refuse what is not a count."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {value!r} instead.")


def check_share(**named: float) -> None:
    """Refuse what is not a share below 1."""
    for name, value in named.items():
        if not (isinstance(value, (int, float)) and 0 <= value < 1):
            raise RecipeError(f"`{name}` must lie in [0, 1). Got {value!r} instead.")
