"""From the names in a recipe to the learners they mean. Torch is imported only where a recipe names a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainValidator

from tutelage.data.dataset import Private, Public
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import beginnings, linear, segmenters
from tutelage.recipes.names import DEVICES, ENGINES, LEARNED, NETWORKS, RECORDS
from tutelage.recipes.sections import built, named_or_built, trained, unknown
from tutelage.students.questions import Prototypes, Uncertain
from tutelage.students.seen import SeenPrototypes
from tutelage.students.spreading import SpreadingStudent
from tutelage.students.supervised import SupervisedStudent
from tutelage.teachers.estimators import EstimatorTeachers

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe

Begin = Callable[[Any], Any]  # from a network's factory to one whose networks begin elsewhere


def check(recipe: Recipe) -> None:
    """Refuse settings that a learner does not have. Only torch's own learners can say, so that it must be there."""
    if recipe.about_masks:
        segmenters.check(recipe)
    if recipe.teachers.kind in NETWORKS:
        training(recipe)
    if recipe.student.learner in LEARNED:
        settings(recipe)
    if recipe.features is not None:
        beginnings.settings(recipe.features)


def require(recipe: Recipe, *, device: str, engine: str) -> None:
    """Refuse a run that this machine cannot do, before any data is read or written."""
    recipe = linear.inherited(recipe)  # what an heir needs, the run needs
    known(device=device, engine=engine)
    networks = recipe.teachers.kind in NETWORKS or recipe.student.learner in LEARNED or recipe.about_masks
    if not networks and recipe.aggregation.questions != "seen":
        if recipe.teachers.kind == RECORDS and device == "cuda" and has_torch():
            _has_device(device)  # images are seen through filters, there
        return
    if not has_torch():
        raise RecipeError(
            "`recipe` must do without networks and filters where torch is not installed (pip install 'tutelage[torch]'). "
            f"Got {recipe.name!r} instead."
        )
    _has_device(device)
    if engine == "ray" and (recipe.teachers.kind in NETWORKS or recipe.about_masks):
        from tutelage.teachers.engines import importable_ray

        importable_ray()
    check(recipe)


def known(*, device: str, engine: str = "auto") -> None:
    """Refuse options of other words."""
    for name, value, words in (("device", device, DEVICES), ("engine", engine, ENGINES)):
        if value not in words:
            raise unknown(name, value, words, meant="cuda" if value.lower() == "gpu" else None)


def possible(*, device: str, engine: str = "auto") -> None:
    """Refuse options that cannot be had here, before the first of many runs."""
    known(device=device, engine=engine)
    if device == "cuda" and has_torch():
        _has_device(device)
    if engine == "ray" and has_torch():
        from tutelage.teachers.engines import importable_ray

        importable_ray()


def _has_device(device: str) -> None:
    """Refuse a device that is not here."""
    from tutelage.nets.inputs import pick_device

    pick_device(device)


def has_torch() -> bool:
    """Tell whether networks can be had: a recipe can be read and priced without them."""
    try:
        import safetensors
        import torch
    except ModuleNotFoundError:
        return False
    return bool(torch and safetensors)


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def augmentations() -> dict[str, Any]:
    """Give the distortions that a recipe can name."""
    from tutelage.nets.augmentation import CLOTHES, COLOUR, DIGITS, Augmentation

    return {"none": Augmentation(), "digits": DIGITS, "clothes": CLOTHES, "colour": COLOUR}


def _augmentation(value: Any) -> Any:
    """Read a distortion: by its name, or as a table of its own."""
    from tutelage.nets.augmentation import Augmentation

    return named_or_built(value, Augmentation, augmentations(), place=("augmentation",))


def settings(recipe: Recipe) -> Any:
    """Build the settings of a learner that is a network."""
    from tutelage.nets.augmentation import Augmentation
    from tutelage.students.adversarial import Adversarial
    from tutelage.students.consistency import Consistency

    name = recipe.student.learner
    kind = {"consistency": Consistency, "adversarial": Adversarial}[name]
    special = {Augmentation: Annotated[Any, PlainValidator(_augmentation)]}
    return built(kind, getattr(recipe.student, name) or {}, place=("student", name), special=special)


def training(recipe: Recipe) -> Any:
    """Build how the teachers' networks are trained."""
    from tutelage.nets.training import Training

    return trained(recipe.teachers, Training(), {**augmentations(), "none": None})


def network(section: Any, inputs: Any, classes: int) -> Any:
    """Build the factory of a network for images of this shape."""
    from tutelage.nets.inputs import as_inputs
    from tutelage.nets.networks import ConvNet, ResidualNet

    shape = tuple(as_inputs(inputs[:1]).shape[1:])
    if len(shape) != 3:
        raise RecipeError(f"`kind` must be one for tables, because this data is no images. Got {section.kind!r} instead.")
    factory = {"convnet": ConvNet, "residual": ResidualNet}[section.kind](shape=shape, classes=classes)
    return factory if section.widths is None else dataclasses.replace(factory, widths=section.widths)


# ── learners ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_built(factory: Any) -> Any:
    """Let networks begin with the weights they are built with."""
    return factory


def teachers(
    recipe: Recipe, private: Private, classes: int, begin: Begin = as_built, *, device: str, engine: Any, checkpoint: Path
) -> Any:
    """Build the teachers; they keep what is finished in the checkpoint folder."""
    if recipe.about_masks:
        return segmenters.teachers(recipe, private.inputs, device=device, engine=engine, checkpoint=checkpoint)
    if recipe.teachers.kind not in NETWORKS:
        return EstimatorTeachers(recipe.teachers.kind, seed=recipe.seed, checkpoint=checkpoint)
    from tutelage.teachers.classifier import Classifier

    return Classifier(
        begin(network(recipe.teachers, private.inputs, classes)),
        training=training(recipe),
        engine=engine,
        device=device,
        seed=recipe.seed,
        checkpoint=checkpoint,
    )


def questions(recipe: Recipe) -> Callable[[Public, int], Any] | None:
    """Build what chooses the public records to ask about."""
    seed = recipe.seed
    table = {
        "first": None,
        "prototypes": Prototypes(seed=seed),
        "seen": SeenPrototypes(seed=seed),
        "uncertain": Uncertain(seed=seed),
    }
    return table[recipe.aggregation.questions]


def student(recipe: Recipe, public: Public, classes: int, begin: Begin = as_built, *, device: str) -> Callable[[], Any]:
    """Build what makes students, one for the answers and one for each control."""
    section, seed = recipe.student, recipe.seed
    if recipe.about_masks:
        return segmenters.student(recipe, public, device=device)
    if section.learner == "supervised":
        return lambda: SupervisedStudent(section.kind or "forest", seed=seed)
    if section.learner == "spreading":
        return lambda: SpreadingStudent(section.kind or "forest", seed=seed)
    from tutelage.nets.inputs import as_inputs
    from tutelage.students.adversarial import AdversarialStudent
    from tutelage.students.consistency import ConsistencyStudent

    how = settings(recipe)
    if section.learner == "adversarial":
        how.players.factory(tuple(as_inputs(public.inputs[:1]).shape[1:]), classes)  # refused before teachers learn or answer

    def adversarial() -> Any:
        return AdversarialStudent(settings=how, classes=classes, device=device, seed=seed)

    def consistency() -> Any:
        factory = None if section.kind is None else begin(network(section, public.inputs, classes))
        return ConsistencyStudent(factory, settings=how, classes=classes, device=device, seed=seed)

    return {"adversarial": adversarial, "consistency": consistency}[section.learner]
