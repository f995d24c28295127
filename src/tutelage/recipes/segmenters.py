"""Teachers and students of masks, from the words of a recipe. Torch is imported where they are built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainValidator, create_model

from tutelage.data.dataset import Public
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import codecs, regions, sets
from tutelage.recipes.names import PRESETS
from tutelage.recipes.sections import (
    Section,
    Widths,
    built,
    named_or_built,
    names,
    one_of,
    placed,
    section_of,
    trained,
    unknown,
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


def distortion(value: Any, place: tuple[str, ...]) -> Any:
    """Read a distortion outside of a learner's table."""
    from tutelage.nets.warps import Warp

    if isinstance(value, dict):
        return built(Warp, value, place=place)
    if value not in (known := warps()):
        raise unknown(".".join(place), value, tuple(known))
    return known[value]


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
    cut = Annotated[float, Field(gt=0, lt=1)] | Literal["public"]
    drawing: dict[str, Any] = {"threshold": (cut, 0.5), "window": (Widths | None, None)}
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


def network(section: Any, inputs: Any, place: str, window: tuple[int, ...] | None) -> Any:
    """Build the factory of a U-Net for images or volumes of this shape, or through this window."""
    from tutelage.nets.inputs import as_inputs
    from tutelage.nets.masks import looked_at

    channels, *space = as_inputs(inputs[:1]).shape[1:]
    return _fitting(section, (channels, *looked_at(window, tuple(space))), place)


def _fitting(section: Any, shape: tuple[int, ...], place: str) -> Any:
    """Give a section's network for what it sees in one go (channels, *space); refuse, by its place, what does not fit."""
    from tutelage.nets.unet import UNet

    try:
        if section.network is not None:
            return preset(section, shape)
        return UNet(shape=shape) if section.widths is None else UNet(shape=shape, widths=section.widths)
    except RecipeError as error:
        raise RecipeError(placed(str(error), (place,))) from None


def preset(section: Any, shape: tuple[int, ...]) -> Any:
    """Give the network of a paper, for images (channels, *space) that it fits."""
    from tutelage.nets.presets import Preset

    found = Preset(section.network)
    found.check(shape)
    return found


def _learned_through(recipe: Recipe, window: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Give the window of a student that learns from windows; one that learns from codes must see a whole mask."""
    return window if recipe.student.learner == "masks" else None


def teachers(recipe: Recipe, inputs: Any, *, device: str, engine: Any, checkpoint: Path) -> Any:
    """Build the teachers; what is finished is kept in the checkpoint folder."""
    if recipe.teachers.kind == regions.KIND:
        return regions.teachers(recipe, device=device, engine=engine, checkpoint=checkpoint)
    from tutelage.teachers.segmenter import Segmenter

    made = Segmenter(
        network(recipe.teachers, inputs, "teachers", recipe.teachers.window),
        training=training(recipe),
        engine=engine,
        device=device,
        seed=recipe.seed,
        checkpoint=checkpoint,
    )
    return made.through(recipe.teachers.window)


def student(recipe: Recipe, public: Public, *, device: str) -> Callable[[], Any]:
    """Build what makes students of masks, one for the answers and one for each control."""
    if recipe.student.kind == regions.KIND:
        return regions.student(recipe, device=device)
    from tutelage.students.latent import LatentStudent
    from tutelage.students.masks import MaskStudent

    kind: Any = {"masks": MaskStudent, "latent": LatentStudent}[recipe.student.learner]
    given = settings(recipe)
    factory = network(recipe.student, public.inputs, "student", _learned_through(recipe, given["window"]))
    if given["threshold"] == "public":
        place = f"student.{recipe.student.learner}"
        if public.targets is None:
            raise RecipeError(f"`{place}.threshold` must be a number where the public pool has no masks. Got 'public' instead.")
        given["threshold"] = public

    def make() -> Any:
        return kind(factory, **given, device=device, seed=recipe.seed)

    make()  # what it refuses, it refuses before teachers learn and answers are paid for
    return make


def check(recipe: Recipe) -> None:
    """Refuse settings that the learners do not have, and networks that no image of this size fits."""
    from tutelage.nets.masks import looked_at

    training(recipe)
    told, space = settings(recipe), sets.shape(recipe.data)
    for place, section in (("teachers", recipe.teachers), ("student", recipe.student)):
        if section.kind == regions.KIND:
            regions.network(section, place)
            continue
        window = recipe.teachers.window if section is recipe.teachers else told["window"]
        if window is not None and len(window) != len(space):  # the teachers' was looked at before
            where = f"student.{recipe.student.learner}.window"
            raise RecipeError(f"`{where}` must have {len(space)} sizes, one per side. Got {window!r} instead.")
        channels = 1 if section.network is None else PRESETS[section.network][1]
        learned = window if section is recipe.teachers else _learned_through(recipe, window)
        # Who learns from codes sees whole masks, and is asked through a window.
        for seen in dict.fromkeys((learned, window)):
            _fitting(section, (channels, *looked_at(seen, space)), place)
    _check_codec(recipe)


def _check_codec(recipe: Recipe) -> None:
    """Refuse a decoder that cannot be built, where the codec has one that sees the image."""
    from tutelage.nets.unet import UNet
    from tutelage.recipes import coders

    assert recipe.codec is not None
    read = codecs.section(recipe.codec)
    if read.kind != "guided":
        return
    widths = coders.looking(read)["widths"]
    try:
        UNet(shape=(2, *sets.shape(recipe.data)), widths=widths)
    except RecipeError as error:
        raise RecipeError(placed(str(error), codecs.PLACE)) from None
