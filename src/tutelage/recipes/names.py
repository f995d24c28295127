"""The words a recipe may use for learners, and which keys go with which; read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tutelage.estimators import ESTIMATORS, REGRESSORS
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import codecs, sets
from tutelage.recipes.sections import TRAINED, check_widths, unknown

NETWORKS = ("convnet", "residual")
SEGMENTERS = ("unet", "regions")
LEARNED = ("consistency", "adversarial")  # learners that are networks, each with a table of its own
RECORDS = "records"  # teachers that are their records; their student is "linear"
DRAWERS = ("masks", "latent")  # learners of masks, likewise
LINEAR = ("dct", "pca", "blocks", "wavelet", "flips", "rescaled")  # codecs whose codes are linear measurements of a mask
PRESETS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"sisi-2d": (2, 1), "brats-2d": (2, 4), "brats-slices": (3, 4), "brats-3d": (3, 4)}
)  # the papers' U-Nets (nets/presets.py): sides and channels of their images
ENGINES = ("auto", "sequential", "stacked", "recorded", "processes", "ray")
DEVICES = ("auto", "cpu", "cuda")
OF_NETWORKS = (*TRAINED, "widths", "augmentation")  # keys of [teachers] that scikit-learn has no use for


def check_kinds(recipe: Any) -> None:
    """Hold masks to teachers and students of masks, and labels to their own, before any key of theirs is looked at."""
    name, teachers, student = recipe.data.set, recipe.teachers.kind, recipe.student.learner
    known = (*ESTIMATORS, *NETWORKS, *SEGMENTERS, RECORDS)
    if teachers not in known:
        raise unknown("teachers.kind", teachers, known)
    for place, value, drawing in (("teachers.kind", teachers, SEGMENTERS), ("student.learner", student, DRAWERS)):
        if recipe.about_masks and value not in drawing:
            listed = " or ".join(repr(word) for word in drawing)
            raise RecipeError(f"`{place}` must be {listed} for {name!r}, whose targets are masks. Got {value!r} instead.")
        if not recipe.about_masks and value in drawing:
            raise RecipeError(f"`{place}` must be one for labels, which {name!r} has. Got {value!r} instead.")


def check_teachers(section: Any) -> None:
    """Refuse keys that a kind would ignore."""
    _check_network("teachers", section, section.kind == "unet")
    idle = [key for key in OF_NETWORKS if getattr(section, key) is not None]
    if idle and section.kind not in (*NETWORKS, *SEGMENTERS):
        raise RecipeError(f"`teachers.{idle[0]}` must stay open for {section.kind!r}, which is no network. Got a value instead.")
    check_widths("teachers.widths", section.widths)


def _check_network(place: str, section: Any, drawing: bool) -> None:
    """Refuse a network of a paper where there is no U-Net, or with widths, which it has of its own."""
    for key in ("network", "window"):
        if getattr(section, key, None) is not None and not drawing:
            raise RecipeError(f"`{place}.{key}` must stay open where there is no U-Net. Got a value instead.")
    if section.network is None:
        return
    if section.network not in PRESETS:
        raise unknown(f"{place}.network", section.network, tuple(PRESETS))
    if section.widths is not None:
        raise RecipeError(f"`{place}.widths` must stay open for a network of a paper, which has its own. Got both instead.")


def with_drawer(recipe: Any) -> Any:
    """Let a student of masks learn from codes where these are linear, and else from decoded answers; the recipe may say other."""
    if not recipe.about_masks or recipe.codec is None or "learner" in recipe.student.model_fields_set:
        return recipe
    student = recipe.student.model_copy(update={"learner": drawer(recipe)})
    return recipe.model_copy(update={"student": student})


def drawer(recipe: Any) -> str:
    """Name the learner of masks that a codec is usually given: codes teach more than what is decoded from them."""
    whole = recipe.aggregation.selection is None  # what was not selected was not measured
    return "latent" if whole and codecs.is_linear(recipe.codec) else "masks"


def check_student(section: Any) -> None:
    """Refuse a kind that its learner cannot be, and keys that it would ignore."""
    for name in (*LEARNED, "linear", *DRAWERS):
        if getattr(section, name) is not None and section.learner != name:
            raise RecipeError(f"`student.{name}` must stay open for the learner {section.learner!r}. Got a table instead.")
    if section.learner in ("adversarial", "linear") and section.kind is not None:
        raise RecipeError(f"`student.kind` must stay open for {section.learner!r}, which is one itself. Got a value instead.")
    _check_network("student", section, section.learner in DRAWERS and section.kind in (None, "unet"))
    known = tuple(ESTIMATORS)
    if section.learner in (*LEARNED, *DRAWERS):
        known = NETWORKS if section.learner in LEARNED else SEGMENTERS
    if section.kind is not None and section.kind not in known:
        raise unknown("student.kind", section.kind, known)
    if section.widths is not None and section.kind not in NETWORKS and section.learner not in DRAWERS:
        raise RecipeError("`student.widths` must come with a `student.kind` that is a network. Got it alone instead.")
    check_widths("student.widths", section.widths)


def check_masks(recipe: Any) -> None:
    """Hold masks to a codec, a method and a unit of masks, and labels to none of these."""
    name = recipe.data.set
    if (recipe.codec is not None) != recipe.about_masks:
        rule, got = ("be given", "nothing") if recipe.about_masks else ("stay open", "a table")
        raise RecipeError(f"`codec` must {rule} for {name!r}. Got {got} instead.")
    if recipe.about_masks:
        _check_sides(recipe)
        _check_door(recipe, recipe.codec.get("kind"))
        _check_unit(recipe)


def check_counts(recipe: Any) -> None:
    """Refuse more questions than there are public records, and more teachers than places, where these are known beforehand."""
    queries, shards = recipe.aggregation.queries, recipe.teachers.shards
    public, private = sets.pool(recipe.data), sets.places(recipe.data, recipe.roster)
    if public is not None and queries > public and recipe.teachers.kind != RECORDS:  # there they are rounds, as many as one likes
        rule = f"between 1 and the public pool's {public} records"
        raise RecipeError(f"`aggregation.queries` must be {rule}. Got {queries!r} instead.")
    if private is not None and shards > private:
        raise RecipeError(f"`teachers.shards` must be between 1 and the {private} places of the roster. Got {shards!r} instead.")


def _check_unit(recipe: Any) -> None:
    """Refuse a unit that the set does not know: its records would not be kept together by it."""
    name, unit = recipe.data.set, recipe.privacy.unit
    known = "record" if sets.SETS[name].find is None else "patient"
    if unit != known:
        raise RecipeError(f"`privacy.unit` must be {known!r} for {name!r}, which knows no other. Got {unit!r} instead.")


def _check_sides(recipe: Any) -> None:
    """Hold networks and windows to as many sides as a mask has."""
    sides = len(recipe.data.size)
    for place, section in (("teachers", recipe.teachers), ("student", recipe.student)):
        if section.network is not None and PRESETS[section.network][0] != sides:
            raise RecipeError(f"`{place}.network` must be one for {sides} sides. Got {section.network!r} instead.")
    window = recipe.teachers.window
    if window is not None and len(window) != sides:
        raise RecipeError(f"`teachers.window` must have {sides} sizes, one per side. Got {window!r} instead.")


def _check_door(recipe: Any, kind: Any) -> None:
    """Refuse a method or a learner that has no use for what the codec lets out."""
    method, wanted = recipe.aggregation.method, "gnmax" if kind == "region-votes" else "mean"
    if method != wanted:
        raise RecipeError(f"`aggregation.method` must be {wanted!r} for the codec {kind!r}. Got {method!r} instead.")
    if recipe.aggregation.sanitise is not None:
        raise RecipeError(
            "`aggregation.sanitise` must stay open for masks, whose price does not depend on votes. Got it instead."
        )
    if recipe.aggregation.rounds not in (None, 1):
        raise RecipeError(f"`aggregation.rounds` must stay open for masks. Got {recipe.aggregation.rounds!r} instead.")
    if recipe.aggregation.questions not in ("first", "prototypes"):
        got = recipe.aggregation.questions
        raise RecipeError(f"`aggregation.questions` must be 'first' or 'prototypes' for masks. Got {got!r} instead.")
    if recipe.aggregation.selection is not None and kind in ("autoencoder", "guided"):
        raise RecipeError(
            "`aggregation.selection` must stay open for a codec that is trained under the noise it will meet: what is not "
            f"selected meets none. Got it with {kind!r} instead."
        )
    if recipe.student.learner == "latent" and recipe.aggregation.selection is not None:
        raise RecipeError("`student.learner` must be 'masks' where a selection leaves out parts of codes. Got 'latent' instead.")
    if recipe.student.learner == "latent" and not codecs.is_linear(recipe.codec):
        key, words, got = "kind", LINEAR, kind
        if kind == "rescaled":
            key, words, got = "inner.kind", codecs.FILTERS, recipe.codec["inner"]["kind"]
        listed = ", ".join(repr(word) for word in words)
        raise RecipeError(f"`codec.{key}` must be one of {listed} for the learner 'latent'. Got {got!r} instead.")
    _check_regions(recipe, kind)


def _check_regions(recipe: Any, kind: Any) -> None:
    """Hold networks that look at regions to flat images, to a codec that has regions, and to decoded answers."""
    for place, section in (("teachers", recipe.teachers), ("student", recipe.student)):
        if section.kind != "regions":
            continue
        if kind != "region-votes":
            raise RecipeError(f"`codec.kind` must be 'region-votes' for `{place}.kind` 'regions'. Got {kind!r} instead.")
        if len(recipe.data.size) != 2:
            raise RecipeError(f"`{place}.kind` must be 'unet' for volumes. Got 'regions' instead.")


def check_shares(recipe: Any) -> None:
    """Refuse a method that gives shares to a learner that can only take labels."""
    student = recipe.student
    if not recipe.how().vectors or recipe.about_masks:
        return
    if recipe.aggregation.selection is not None:
        raise RecipeError("`aggregation.selection` must stay open for labels: shares of votes are few. Got it instead.")
    if student.learner not in ("supervised", "consistency", "linear"):
        raise RecipeError(
            f"`student.learner` must be 'supervised', 'consistency' or 'linear' for 'mean'. Got {student.learner!r} instead."
        )
    if student.learner == "supervised" and student.kind is not None and student.kind not in REGRESSORS:
        raise unknown("student.kind", student.kind, tuple(REGRESSORS))


def check_features(recipe: Any) -> None:
    """Refuse features that nobody would begin with."""
    if recipe.features is None:
        return
    if recipe.teachers.kind not in NETWORKS and not (recipe.student.learner == "consistency" and recipe.student.kind):
        raise RecipeError("`features` must come with teachers or a student of kind 'convnet' or 'residual'. Got neither instead.")


def check_alignment(recipe: Any) -> None:
    """Refuse to lay images over each other that are no scans of the same part of a body."""
    if recipe.alignment is None:
        return
    if not recipe.about_masks or sets.SETS[recipe.data.set].find is None:
        raise RecipeError(f"`alignment` must stay open for {recipe.data.set!r}, whose images show no one organ. Got it instead.")
    window = recipe.alignment.window
    if window is not None and window % 2 == 0:
        raise RecipeError(f"`alignment.window` must be odd: it has a middle. Got {window!r} instead.")
