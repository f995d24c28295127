"""The words a recipe may use for learners, and which keys go with which; read without torch."""

from __future__ import annotations

from typing import Any

from tutelage.estimators import ESTIMATORS
from tutelage.privacy.errors import RecipeError
from tutelage.recipes.sections import unknown

NETWORKS = ("convnet", "residual")
LEARNED = ("consistency", "adversarial")  # learners that are networks, each with a table of its own
ENGINES = ("auto", "sequential", "stacked", "processes", "ray")
DEVICES = ("auto", "cpu", "cuda")
OF_NETWORKS = ("steps", "batch", "rate", "widths", "augmentation")  # keys of [teachers] that scikit-learn has no use for


def check_teachers(section: Any) -> None:
    """Refuse an unknown kind, and keys that it would ignore."""
    known = (*ESTIMATORS, *NETWORKS)
    if section.kind not in known:
        raise unknown("teachers.kind", section.kind, known)
    idle = [key for key in OF_NETWORKS if getattr(section, key) is not None]
    if idle and section.kind not in NETWORKS:
        raise RecipeError(f"`teachers.{idle[0]}` must stay open for {section.kind!r}, which is no network. Got a value instead.")


def check_student(section: Any) -> None:
    """Refuse a kind that its learner cannot be, and keys that it would ignore."""
    for name in LEARNED:
        if getattr(section, name) is not None and section.learner != name:
            raise RecipeError(f"`student.{name}` must stay open for the learner {section.learner!r}. Got a table instead.")
    if section.learner == "adversarial" and section.kind is not None:
        raise RecipeError("`student.kind` must stay open for 'adversarial', which has its own network. Got a value instead.")
    known = NETWORKS if section.learner in LEARNED else tuple(ESTIMATORS)
    if section.kind is not None and section.kind not in known:
        raise unknown("student.kind", section.kind, known)
    if section.widths is not None and section.kind not in NETWORKS:
        raise RecipeError("`student.widths` must come with a `student.kind` that is a network. Got it alone instead.")


def check_features(recipe: Any) -> None:
    """Refuse features that nobody would begin with."""
    if recipe.features is None:
        return
    if recipe.teachers.kind not in NETWORKS and not (recipe.student.learner == "consistency" and recipe.student.kind):
        raise RecipeError("`features` must come with teachers or a student of kind 'convnet' or 'residual'. Got neither instead.")
