"""The words of a recipe for teachers that are their records, for the linear student that they correct, and for its heir."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from tutelage.codecs.corrections import Corrections
from tutelage.features.naming import SURE, check_sure
from tutelage.features.seeing import Seeing
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import names
from tutelage.recipes.names import RECORDS
from tutelage.recipes.sections import built

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe, StudentSection


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
    sure: float = SURE  # of the pool that is named for an heir

    def __post_init__(self) -> None:
        self.seeing()
        Corrections(self.seeing().width, 2, self.clip, self.rate)
        check_sure(self.sure)

    def seeing(self) -> Seeing:
        """Give how records are seen."""
        return Seeing(axes=self.axes, filters=self.filters, patch=self.patch, grid=self.grid, bins=self.bins)


def chosen(recipe: Recipe) -> bool:
    """Tell whether records are the teachers."""
    return recipe.teachers.kind == RECORDS


def check_student(section: StudentSection) -> None:
    """Hold a student to its own keys; where it has an heir, each of the two."""
    if section.heir is None:
        names.check_student(section)
        return
    if section.learner != "linear":
        raise RecipeError(
            f"`student.heir` must come with the learner 'linear', which names the pool for it. Got {section.learner!r} instead."
        )
    own = {"heir": None, "kind": None, "widths": None}
    names.check_student(section.model_copy(update=own | ({section.heir: None} if section.heir in names.LEARNED else {})))
    names.check_student(_heir(section))


def inherited(recipe: Recipe) -> Recipe:
    """Give the recipe as an heir reads it, where it is the student itself; without an heir it stays as it is."""
    return recipe if recipe.student.heir is None else recipe.model_copy(update={"student": _heir(recipe.student)})


def _heir(section: StudentSection) -> StudentSection:
    alone: dict[str, Any] = {"learner": section.heir, "heir": None, "linear": None}
    if section.heir == "consistency":
        alone["consistency"] = {"doubt": True} | (section.consistency or {})  # it is told names, not truths
    return section.model_copy(update=alone)


def check(recipe: Recipe) -> None:
    """Hold records, the linear student and the noisy mean together."""
    if chosen(recipe) is not (recipe.student.learner == "linear"):
        got = recipe.student.learner if chosen(recipe) else recipe.teachers.kind
        raise RecipeError(f"`teachers.kind` 'records' and `student.learner` 'linear' must come together. Got {got!r} instead.")
    if not chosen(recipe):
        return
    settings(recipe)
    if recipe.student.heir is None and "sure" in (recipe.student.linear or {}):
        raise RecipeError("`student.linear.sure` must come with a `student.heir`, whose names it chooses. Got it alone instead.")
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
