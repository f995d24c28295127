"""Teachers and students of masks, from the words of a recipe. Torch is imported where they are built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainValidator, create_model

from tutelage.data.dataset import Public
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import regions, sets
from tutelage.recipes.sections import (
    Section,
    Widths,
    named_or_built,
    names,
    one_of,
    placed,
    section_of,
    trained,
    validated,
)

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe

PARTS = ("begin", "again")  # the two trainings of a latent student, each a table of its own


def warps() -> dict[str, Any]:
    """Give the distortions of images with their masks that a recipe can name."""
    from tutelage.nets.warps import SCENES, VOLUMES

    return {"none": None, "scenes": SCENES, "volumes": VOLUMES}


def _warp(value: Any) -> Any:
    """Read a distortion: by its name, or as a table of its own."""
    from tutelage.nets.warps import Warp

    return named_or_built(value, Warp, warps())  # the key is added on the way out


def training(recipe: Recipe) -> Any:
    """Build how the teachers learn."""
    if recipe.teachers.kind == regions.KIND:
        return regions.training(recipe)
    from tutelage.teachers.segmenter import GENTLE

    return trained(recipe.teachers, GENTLE, warps())


def _keys_of_training() -> type[Section]:
    from tutelage.nets.augmentation import Augmentation
    from tutelage.nets.training import Training
    from tutelage.nets.warps import Warp

    return section_of(Training, {Augmentation | Warp | None: Annotated[Any, PlainValidator(_warp)]})


def _trained(default: Any, table: Any, place: tuple[str, ...]) -> Any:
    """Change a training by a table of some of its fields."""
    checked = validated(_keys_of_training(), table, place=place)
    return _replaced(default, checked, place)


def _replaced(default: Any, checked: Any, place: tuple[str, ...], apart: tuple[str, ...] = ()) -> Any:
    """Change the fields that a table gave, but for those that are read apart."""
    kept = [name for name in names(type(default)) if name not in apart and name in checked.model_fields_set]
    chosen = {name: getattr(checked, name) for name in kept}
    try:
        return dataclasses.replace(default, **chosen)
    except RecipeError as error:
        raise RecipeError(placed(str(error), place)) from None


def settings(recipe: Recipe) -> dict[str, Any]:
    """Build what the student is given beside its network."""
    if recipe.student.kind == regions.KIND:
        return regions.settings(recipe)
    name = recipe.student.learner
    table, place = getattr(recipe.student, name) or {}, ("student", name)
    drawing = {"threshold": (Annotated[float, Field(gt=0, lt=1)], 0.5), "window": (Widths | None, None)}
    if name == "masks":
        from tutelage.students.masks import TRAINING

        checked = validated(create_model("masks", __base__=_keys_of_training(), **drawing), table, place=place)
        return {"training": _replaced(TRAINING, checked, place), **_drawn(checked)}
    from tutelage.nets.training import Training
    from tutelage.students.latent import Latent

    plain = Latent()
    special = {
        Training: Annotated[Any, PlainValidator(_table)],
        Training | None: Annotated[Any, PlainValidator(_table_or_none)],
    }
    checked = validated(create_model("latent", __base__=section_of(Latent, special), **drawing), table, place=place)
    made = _replaced(plain, checked, place, PARTS)
    for part in PARTS:
        given = getattr(checked, part)
        if given == "none":
            made = dataclasses.replace(made, again=None)
        elif given is not None:
            made = dataclasses.replace(made, **{part: _trained(getattr(plain, part), given, (*place, part))})
    return {"settings": made, **_drawn(checked)}


def _table(value: Any) -> Any:
    if not isinstance(value, dict):
        raise one_of(("a table",), value)
    return value


def _table_or_none(value: Any) -> Any:
    return value if value == "none" else _table(value)


def _drawn(checked: Any) -> dict[str, Any]:
    return {"threshold": checked.threshold, "window": checked.window}


def network(recipe: Recipe, section: Any, inputs: Any) -> Any:
    """Build the factory of a U-Net for images or volumes of this shape."""
    from tutelage.nets.inputs import as_inputs
    from tutelage.nets.unet import UNet

    factory = UNet(shape=tuple(as_inputs(inputs[:1]).shape[1:]))
    return factory if section.widths is None else dataclasses.replace(factory, widths=section.widths)


def teachers(recipe: Recipe, inputs: Any, *, device: str, engine: Any, checkpoint: Path) -> Any:
    """Build the teachers; what is finished is kept in the checkpoint folder."""
    if recipe.teachers.kind == regions.KIND:
        return regions.teachers(recipe, device=device, engine=engine, checkpoint=checkpoint)
    from tutelage.teachers.segmenter import Segmenter

    return Segmenter(
        network(recipe, recipe.teachers, inputs),
        training=training(recipe),
        engine=engine,
        device=device,
        seed=recipe.seed,
        checkpoint=checkpoint,
    )


def student(recipe: Recipe, public: Public, *, device: str) -> Callable[[], Any]:
    """Build what makes students of masks, one for the answers and one for each control."""
    if recipe.student.kind == regions.KIND:
        return regions.student(recipe, device=device)
    from tutelage.students.latent import LatentStudent
    from tutelage.students.masks import MaskStudent

    kind: Any = {"masks": MaskStudent, "latent": LatentStudent}[recipe.student.learner]
    factory, given = network(recipe, recipe.student, public.inputs), settings(recipe)
    return lambda: kind(factory, **given, device=device, seed=recipe.seed)


def check(recipe: Recipe) -> None:
    """Refuse settings that the learners do not have, and networks that no image of this size fits."""
    from tutelage.nets.unet import UNet

    training(recipe)
    settings(recipe)
    for place, section in (("teachers", recipe.teachers), ("student", recipe.student)):
        if section.kind == regions.KIND:
            regions.network(section, place)
        elif section.widths is not None:
            try:
                UNet(shape=(1, *sets.shape(recipe.data)), widths=section.widths)
            except RecipeError as error:
                raise RecipeError(placed(str(error), (place,))) from None
