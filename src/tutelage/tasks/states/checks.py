"""What is refused before a student of states is charged for its first round."""

from __future__ import annotations

from typing import Any

from tutelage.privacy.errors import RecipeError
from tutelage.tasks.checks import described, number_of_classes
from tutelage.tasks.task import IterativeStudent


def check_learner(learner: Any, rounds: int) -> None:
    """Refuse a student that asks nothing, and one that was made for another number of rounds."""
    if not isinstance(learner, IterativeStudent):
        raise RecipeError(
            f"`student` must make students with `query`, `update` and `result`. Got one that makes {described(learner)} instead."
        )
    own = getattr(getattr(learner, "linear", learner), "rounds", rounds)
    if own != rounds:
        raise RecipeError(f"`rounds` of the student must be `queries`, {rounds}. Got {own} instead.")


def check_widths(codec: Any, teachers: Any, learner: Any) -> None:
    """Refuse teachers or a student with other features or other classes than the codec has."""
    wanted = getattr(codec, "width", None), getattr(codec, "classes", None)
    if None in wanted:
        return
    for name, part in (("teachers", teachers), ("student", getattr(learner, "linear", learner))):
        own = getattr(getattr(part, "sight", None), "width", wanted[0]), number_of_classes(part) or wanted[1]
        if own != wanted:
            raise RecipeError(f"`codec` must be for the weights of `{name}`, {own}. Got {wanted} instead.")
