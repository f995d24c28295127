"""From a recipe to a run: a closed table of names, nothing looked up at run time."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from tutelage.codecs.votes import Votes
from tutelage.data.dataset import Private, Public
from tutelage.data.digits import digits
from tutelage.estimators import estimator
from tutelage.privacy.errors import RecipeError
from tutelage.recipes.recipe import Recipe, parse
from tutelage.students.spreading import SpreadingStudent
from tutelage.students.supervised import SupervisedStudent
from tutelage.teachers.estimators import EstimatorTeachers
from tutelage.transfer import Outcome, Progress, transfer

EMBEDDED = ("digits", "digits-lnmax", "digits-confident")


def run(recipe: Recipe, out: str | Path, *, resume: bool = False, progress: Progress | None = None) -> Outcome:
    """Carry out a recipe into a run folder."""
    for kind in (recipe.teachers.kind, recipe.student.kind):
        estimator(kind)  # an unknown name is refused before anything is written
    private, public, test = _data(recipe)
    return transfer(
        private,
        public,
        teachers=EstimatorTeachers(recipe.teachers.kind, seed=recipe.seed),
        student=_student(recipe),
        codec=Votes(classes(recipe)),
        budget=recipe.budget(),
        shards=recipe.teachers.shards,
        queries=recipe.aggregation.queries,
        aggregation=recipe.how(),
        test=test,
        out=out,
        seed=recipe.seed,
        purpose=recipe.sha256,
        tuned_on=recipe.tuned_on,
        benchmark=is_benchmark(recipe),
        resume=resume,
        progress=progress,
    )


def embedded(name: str) -> Recipe:
    """Read a recipe that the package carries."""
    if name not in EMBEDDED:
        raise RecipeError(f"`name` must be one of {', '.join(EMBEDDED)}. Got {name!r} instead.")
    return parse(resources.files("tutelage.recipes").joinpath(f"{name}.toml").read_text(encoding="utf-8"), name=name)


def is_benchmark(recipe: Recipe) -> bool:
    """Tell whether the 'private' data of this recipe is public anyway, so that its private controls may be shown."""
    return recipe.data.set == "digits"


def classes(recipe: Recipe) -> int:
    """Give the number of classes of a recipe's data set, without reading it; refuse a set that is not known."""
    if recipe.data.set != "digits":
        raise RecipeError(f"`data.set` must be 'digits'. Got {recipe.data.set!r} instead.")
    return 10


def _data(recipe: Recipe) -> tuple[Private, Public, Public]:
    classes(recipe)
    for key in ("split", "directory"):
        if getattr(recipe.data, key) is not None:
            raise RecipeError(f"`data.{key}` must stay open for 'digits', which is embedded. Got a value instead.")
    return digits(seed=recipe.seed)


def _student(recipe: Recipe) -> Callable[[], Any]:
    table: dict[str, Callable[[], Any]] = {
        "supervised": lambda: SupervisedStudent(recipe.student.kind, seed=recipe.seed),
        "spreading": lambda: SpreadingStudent(recipe.student.kind, seed=recipe.seed),
    }
    return table[recipe.student.learner]
