"""Teachers that are their records and students that they correct, built from a recipe: both see records alike."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.features.sight import Sight
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import learners as taught
from tutelage.recipes.learned import learned
from tutelage.recipes.linear import inherited, settings
from tutelage.recipes.names import LEARNED
from tutelage.runs import RunFolder
from tutelage.students.heir import Heir
from tutelage.students.linear import LinearStudent
from tutelage.teachers.records import RecordTeachers

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe

Progress = Callable[[str, int, int], None]
Array = npt.NDArray[Any]


def learners(recipe: Recipe, public: Public, classes: int, folder: RunFolder, *, device: str, say: Progress) -> tuple[Any, Any]:
    """Build the teachers and what makes students; both see records alike. An heir sees them in its own way."""
    name = recipe.student.heir
    if name in LEARNED and np.ndim(public.inputs) < 3:  # now: later it would stop a release that is paid for
        raise RecipeError(f"`student.heir` must be one for tables, because this data is no images. Got {name!r} instead.")
    how, seen = settings(recipe), sight(recipe, public, folder, device=device, say=say)
    rounds = recipe.aggregation.queries

    def student() -> LinearStudent:
        return LinearStudent(seen, classes=classes, rounds=rounds, rate=how.rate)

    if name is None:
        return RecordTeachers(seen), student
    heir = taught.student(inherited(recipe), public, classes, device=device)
    return RecordTeachers(seen), lambda: Heir(student(), heir, sure=how.sure)


def sight(recipe: Recipe, public: Public, folder: RunFolder, *, device: str, say: Progress) -> Sight:
    """Learn how to see, or take up how an earlier life of this run saw: its corrections are about those features alone."""
    how = settings(recipe).seeing()

    def learn() -> Mapping[str, Array]:
        tell = functools.partial(say, "learning features")
        return Sight.learn(public, how, seed=recipe.seed, device=device, progress=tell).arrays()

    manner = f"{how!r}|{recipe.seed}|{public.sha256}"
    return learned(folder, "sight", manner, learn, lambda file: Sight.of(file, device=device))[0]
