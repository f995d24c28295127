"""Teachers and students that look at one region at a time, from a recipe's words. Torch is imported where they are built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainValidator, create_model

from tutelage.codecs.regionvotes import RegionVotes
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import codecs, sets
from tutelage.recipes.sections import Count, named_or_built, names, placed, section_of, trained, validated

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe

KIND = "regions"


def cut(recipe: Recipe) -> RegionVotes:
    """Give what divides images into regions: the recipe's own codec."""
    assert recipe.codec is not None
    read = codecs.section(recipe.codec)
    return RegionVotes(sets.shape(recipe.data), read.regions, read.method, read.share)


def bends() -> dict[str, Any]:
    """Give the distortions of a region that a recipe can name."""
    from tutelage.nets.crops import SILHOUETTES

    return {"none": None, "silhouettes": SILHOUETTES}


def _bend(value: Any) -> Any:
    """Read a distortion: by its name, or as a table of its own."""
    from tutelage.nets.augmentation import Augmentation

    return named_or_built(value, Augmentation, bends())  # the key is added on the way out


def training(recipe: Recipe) -> Any:
    """Build how the teachers learn."""
    from tutelage.teachers.regions import USUAL

    return trained(recipe.teachers, USUAL, bends())


def settings(recipe: Recipe) -> dict[str, Any]:
    """Build what the student is given beside its network: the fields of a training, `members` and `threshold`."""
    from tutelage.nets.augmentation import Augmentation
    from tutelage.nets.training import Training
    from tutelage.nets.warps import Warp
    from tutelage.students.regions import TRAINING

    place = ("student", "masks")
    keys = section_of(Training, {Augmentation | Warp | None: Annotated[Any, PlainValidator(_bend)]})
    own: dict[str, Any] = {"members": (Count, 3), "threshold": (Annotated[float, Field(gt=0, lt=1)] | None, None)}
    checked = validated(create_model("masks", __base__=keys, **own), recipe.student.masks or {}, place=place)
    chosen = {name: getattr(checked, name) for name in names(Training) if name in checked.model_fields_set}
    try:
        made = dataclasses.replace(TRAINING, **chosen)
    except RecipeError as error:
        raise RecipeError(placed(str(error), place)) from None
    return {"training": made, "members": checked.members, "threshold": checked.threshold}


def network(section: Any, place: str) -> Any:
    """Build the factory of a network for crops, or none where its own default is meant."""
    from tutelage.nets.crops import CHANNELS, SIDE
    from tutelage.nets.networks import ConvNet

    if section.widths is None:
        return None
    try:
        return ConvNet(shape=(CHANNELS, SIDE, SIDE), classes=2, widths=section.widths)
    except RecipeError as error:
        raise RecipeError(placed(str(error), (place,))) from None


def teachers(recipe: Recipe, *, device: str, engine: Any, checkpoint: Path) -> Any:
    """Build the teachers; what is finished is kept in the checkpoint folder."""
    from tutelage.teachers.regions import RegionTeachers

    return RegionTeachers(
        cut(recipe),
        network(recipe.teachers, "teachers"),
        training=training(recipe),
        engine=engine,
        device=device,
        seed=recipe.seed,
        checkpoint=checkpoint,
    )


def student(recipe: Recipe, *, device: str) -> Callable[[], Any]:
    """Build what makes students of regions, one for the answers and one for each control."""
    from tutelage.students.regions import RegionStudent

    seen, factory, given = cut(recipe), network(recipe.student, "student"), settings(recipe)
    return lambda: RegionStudent(seen, factory, **given, device=device, seed=recipe.seed)
