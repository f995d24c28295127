"""Teachers that are their records and students that they correct, built from a recipe: both see records alike."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from tutelage.data.dataset import Public
from tutelage.features.sight import Sight
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.ledger import Ledger
from tutelage.recipes import learners as taught
from tutelage.recipes.linear import inherited, settings
from tutelage.recipes.names import LEARNED
from tutelage.runs import RunFolder
from tutelage.students.heir import Heir
from tutelage.students.linear import LinearStudent
from tutelage.teachers.records import RecordTeachers

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe

Progress = Callable[[str, int, int], None]


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
    heir = taught.student(inherited(recipe), public, classes, device=device, progress=say)
    return RecordTeachers(seen), lambda: Heir(student(), heir, sure=how.sure)


def sight(recipe: Recipe, public: Public, folder: RunFolder, *, device: str, say: Progress) -> Sight:
    """Learn how to see, or take up how an earlier life of this run saw: its corrections are about those features and no others.

    The file's name holds the settings, the seed and the pool: what was learned of other records is not taken for public.
    """
    how = settings(recipe).seeing()
    manner = hashlib.sha256(f"{how!r}|{recipe.seed}|{public.sha256}".encode()).hexdigest()[:12]
    path = folder.release / f"sight-{manner}.npz"
    if not path.exists():
        if _answered(folder):
            raise RecipeError(
                "`out` must hold answers about this pool, seed and these settings. Got answers about others instead."
            )
        for stale in folder.release.glob("*sight-*.npz"):  # of a start that never asked: its pool may not be this one
            stale.unlink()
        say("learning features", 0, 1)
        beside = folder.release / f".sight-{manner}.{os.getpid()}.npz"
        np.savez_compressed(beside, **Sight.learn(public, how, seed=recipe.seed, device=device).arrays())
        beside.replace(path)  # whole or not at all
        say("learning features", 1, 1)
    try:
        with np.load(path, allow_pickle=False) as file:
            return Sight.of(dict(file), device=device)
    except (OSError, ValueError, KeyError, BadZipFile):
        raise DataError(f"`{path.name}` must be the features that this run learned. Got a damaged file instead.") from None


def _answered(folder: RunFolder) -> bool:
    """Tell whether anything was charged in this folder's book."""
    if not folder.holds_book or not folder.book.stat().st_size:
        return False
    with Ledger(folder.book) as ledger:
        return bool(ledger.totals())
