"""How records are to be seen: the words of a recipe, read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from tutelage.privacy.errors import RecipeError


@final
@dataclass(frozen=True, kw_only=True)
class Seeing:
    """Say how records become features: patches of images, steps of tables, and on how many axes of the pool."""

    axes: int = 400
    filters: int = 400  # of images
    patch: int = 6
    grid: int = 4
    bins: int = 20  # of tables

    def __post_init__(self) -> None:
        for name, least in (("axes", 1), ("filters", 1), ("patch", 2), ("grid", 1), ("bins", 2)):
            value = getattr(self, name)
            if not (type(value) is int and value >= least):
                raise RecipeError(f"`{name}` must be a whole number ≥ {least}. Got {value!r} instead.")

    @property
    def width(self) -> int:
        """Count the numbers that a record is seen as: the axes and a constant."""
        return self.axes + 1
