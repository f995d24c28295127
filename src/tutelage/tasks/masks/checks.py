"""What is refused before masks are charged for: a codec for something else."""

from __future__ import annotations

from tutelage.codecs.votes import Votes
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.errors import RecipeError
from tutelage.tasks.table import space
from tutelage.tasks.task import Plan


def check_codec(plan: Plan) -> None:
    """Refuse votes for classes, masks of another size, and a codec that does not fit the method."""
    codec, how, shape = plan.codec, plan.how, space(plan.codec)
    if isinstance(codec, Votes):
        raise RecipeError("`codec` must be one for masks where targets are masks. Got Votes instead.")
    if shape is not None and plan.target is not None and shape != plan.target:
        raise RecipeError(f"`codec` must be one for masks of shape {plan.target}. Got one for {shape} instead.")
    if how.method not in ("mean", "gnmax"):
        raise RecipeError(f"`method` must be 'mean' or 'gnmax' for masks. Got {how.method!r} instead.")
    if how.vectors is isinstance(codec.bound, OneHot):
        wanted = "give codes for 'mean'" if how.vectors else "cast votes for 'gnmax'"
        raise RecipeError(f"`codec` must {wanted}. Got one bounded by {type(codec.bound).__name__} instead.")
