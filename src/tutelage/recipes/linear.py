"""The words of a recipe for teachers that are their records, and for the linear student that they correct."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tutelage.codecs.corrections import Corrections
from tutelage.features.seeing import Seeing
from tutelage.privacy.errors import RecipeError
from tutelage.recipes.names import RECORDS
from tutelage.recipes.sections import built

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe


@final
@dataclass(frozen=True, kw_only=True)
class Linear:
    """Hold the keys of [student.linear]: how records are seen, and how corrections are bounded and followed."""

    axes: int = Seeing.axes
    filters: int = Seeing.filters
    patch: int = Seeing.patch
    grid: int = Seeing.grid
    bins: int = Seeing.bins
    clip: float = Corrections.clip
    rate: float = Corrections.rate

    def __post_init__(self) -> None:
        self.seeing()
        Corrections(self.seeing().width, 2, self.clip, self.rate)

    def seeing(self) -> Seeing:
        """Give how records are seen."""
        return Seeing(axes=self.axes, filters=self.filters, patch=self.patch, grid=self.grid, bins=self.bins)


def chosen(recipe: Recipe) -> bool:
    """Tell whether records are the teachers."""
    return recipe.teachers.kind == RECORDS


def check(recipe: Recipe) -> None:
    """Hold records, the linear student and the noisy mean together."""
    if chosen(recipe) is not (recipe.student.learner == "linear"):
        got = recipe.student.learner if chosen(recipe) else recipe.teachers.kind
        raise RecipeError(f"`teachers.kind` 'records' and `student.learner` 'linear' must come together. Got {got!r} instead.")
    if not chosen(recipe):
        return
    settings(recipe)
    if recipe.aggregation.method != "mean":
        raise RecipeError(f"`aggregation.method` must be 'mean' for 'records'. Got {recipe.aggregation.method!r} instead.")
    if recipe.aggregation.questions != "first" or recipe.aggregation.rounds is not None:
        raise RecipeError("`aggregation` must leave `questions` and `rounds` open: `queries` counts rounds. Got them instead.")


def settings(recipe: Recipe) -> Linear:
    """Read [student.linear]."""
    made: Linear = built(Linear, recipe.student.linear or {}, place=("student", "linear"))
    return made


def codec(recipe: Recipe, classes: int) -> Corrections:
    """Build the codec."""
    how = settings(recipe)
    return Corrections(how.seeing().width, classes, how.clip, how.rate)
