"""What a run is: validated TOML, hashed. Unknown words are refused with the nearest known one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import Field, PrivateAttr, WrapValidator, create_model

from tutelage.planning import Aggregation, Sanitise, Selection
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Roster, Unit
from tutelage.recipes import codecs, linear, own, sets
from tutelage.recipes.names import (
    check_alignment,
    check_counts,
    check_features,
    check_kinds,
    check_masks,
    check_shares,
    check_teachers,
    with_drawer,
)
from tutelage.recipes.sections import Count, Names, Positive, Section, Size, Sizes, Table, Widths, placed, validated

ONE_PER_UNIT = "one per unit"
_HASHED = "sha256:"  # a list that is known by its hash alone

# Keys that came later: recipes without them keep their hash.
LATER = {
    "": ("codec", "alignment"),
    "data": (*sets.KEYS, *own.KEYS),
    "teachers": ("network", "window"),
    "aggregation": ("selection",),
    "student": ("masks", "latent", "linear", "heir", "network"),
}


class DataSection(Section):
    """Which data: a named set, the split that makes it private, public and test, and where its files lie.

    What follows `directory` is for sets of masks, which are drawn or divided as the recipe says. Counts are people, or scenes.
    """

    set: str
    split: str | None = None
    directory: str | None = None
    size: Size | None = None
    private: Count | None = None
    public: Count | None = None
    test: Count | None = None
    target: str | None = None
    noise: Annotated[float, Field(ge=0, lt=256)] | None = None
    silhouettes: Literal["drawn", "templates"] | None = None
    labels: Widths | None = None
    public_directory: str | None = None
    test_directory: str | None = None
    public_data: Literal[True] | None = None
    roster: Annotated[str, Field(min_length=1)] | None = None
    file: Annotated[str, Field(min_length=1)] | None = None  # from here on: own data (recipes/own.py)
    public_file: Annotated[str, Field(min_length=1)] | None = None
    test_file: Annotated[str, Field(min_length=1)] | None = None
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    id: Annotated[str, Field(min_length=1)] | None = None
    label: Annotated[str, Field(min_length=1)] | None = None
    classes: Names | None = None
    columns: Table | None = None
    declared: bool | None = None
    public_share: float | None = None
    test_share: float | None = None
    channels: Count | None = None
    spacing: Sizes | None = None
    intensity: Sizes | None = None


class PrivacySection(Section):
    """How much may be learned, and about whom."""

    epsilon: Positive
    delta: Annotated[float, Field(gt=0, lt=1)]
    unit: Literal["record", "patient", "institution"] = "record"
    unit_teachers: Count = 1


def _or_one_per_unit(value: Any, count: Callable[[Any], int]) -> Any:
    return value if value == ONE_PER_UNIT else count(value)


class TeachersSection(Section):
    """Which models learn, and on how many shards; what follows `shards` is for networks, and `network` on for U-Nets."""

    kind: str = "forest"
    shards: Annotated[Count, WrapValidator(_or_one_per_unit)]
    steps: Count | None = None
    batch: Count | None = None
    rate: Positive | None = None
    widths: Widths | None = None
    augmentation: str | None = None
    precision: Literal["auto", "float32", "bfloat16"] | None = None
    network: str | None = None
    window: Widths | None = None


class FeaturesSection(Section):
    """How networks learn to see on the public pool before they are told a label; what is left out keeps its default."""

    steps: Count | None = None
    batch: Count | None = None
    rate: Positive | None = None
    temperature: Positive | None = None
    augmentation: str | None = None


class AlignmentSection(Section):
    """How images of the public pool are laid over each other before anybody is asked; what is left out keeps its default."""

    steps: Count | None = None
    knots: Annotated[int, Field(ge=3)] | None = None
    window: Annotated[int, Field(ge=3)] | None = None
    stiffness: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class SanitiseSection(Section):
    """Parameters of the data-dependent ε's own release, fixed without looking at the votes."""

    order: Annotated[float, Field(gt=1, allow_inf_nan=False)]
    beta: Positive
    sigma: Positive


class SelectionSection(Section):
    """Which coordinates of a code are released: see planning.Selection."""

    threshold: Positive
    answers: Count
    share: Annotated[float, Field(gt=0, lt=1)] | None = None


class _Asking(Section):
    queries: Count
    questions: Literal["first", "prototypes", "seen", "uncertain"] = "first"
    sigma: Positive | None = None
    gamma: Positive | None = None
    answers: Count | None = None
    sanitise: SanitiseSection | None = None
    selection: SelectionSection | None = None


def _aggregation() -> type[_Asking]:
    """Take every key that the aggregation has; those above are held to more than their type."""
    hints = get_type_hints(Aggregation)
    rest = [field for field in dataclasses.fields(Aggregation) if field.name not in _Asking.model_fields]
    return create_model("AggregationSection", __base__=_Asking, **{f.name: (hints[f.name], f.default) for f in rest})


AggregationSection: Any = _aggregation()  # how votes become answers; what is left out is calibrated


class StudentSection(Section):
    """Who learns from the answers. The tables hold the settings of the learner they are named after.

    An heir learns the public pool as a linear learner names it, and is published in its place: `kind` and `widths` are its own.
    """

    learner: Literal["supervised", "spreading", "consistency", "adversarial", "linear", "masks", "latent"] = "supervised"
    heir: Literal["supervised", "spreading", "consistency"] | None = None
    kind: str | None = None
    widths: Widths | None = None
    network: str | None = None
    consistency: Table | None = None
    adversarial: Table | None = None
    linear: Table | None = None
    masks: Table | None = None
    latent: Table | None = None


class Recipe(Section):
    """A complete, reproducible description of a run. Its hash names the book that belongs to it."""

    name: Annotated[str, Field(min_length=1)]
    seed: int = 0
    tuned_on: str = "not stated"
    data: DataSection
    privacy: PrivacySection
    features: FeaturesSection | None = None
    alignment: AlignmentSection | None = None
    teachers: TeachersSection
    codec: Table | None = None
    aggregation: AggregationSection
    student: StudentSection = StudentSection()
    _roster: Roster | None = PrivateAttr(None)

    @property
    def roster(self) -> Roster | None:
        """Give the public list of people, as far as it was read. Its hash stands in `data.roster`, and so in the recipe's own."""
        return self._roster

    @property
    def sha256(self) -> str:
        """Hash everything that shapes the result; where the files lie does not."""
        content = self.model_dump(mode="json", exclude={"data": {"directory"}})
        for place, keys in LATER.items():
            table = content[place] if place else content
            for key in keys:
                if table[key] is None:
                    del table[key]
                elif key in (*sets.ELSEWHERE, *own.FILES):
                    table[key] = True  # that there is such a folder counts, not its path
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def about_masks(self) -> bool:
        """Tell whether targets are masks and not labels."""
        return self.data.set in sets.SETS

    def budget(self) -> Budget:
        """Build the budget."""
        return Budget(self.privacy.epsilon, self.privacy.delta, Unit(self.privacy.unit, self.privacy.unit_teachers))

    def how(self) -> Aggregation:
        """Build the aggregation."""
        section = self.aggregation
        chosen = section.model_dump(exclude={"queries", "questions", "sanitise", "selection"})
        parts = (("sanitise", Sanitise), ("selection", Selection))
        read = {name: kind(**table.model_dump()) for name, kind in parts if (table := getattr(section, name)) is not None}
        return Aggregation(**chosen, **read)


def read(path: Path) -> Recipe:
    """Read and check a recipe file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecipeError(f"`recipe` must be a readable TOML file. Got «{error.strerror}» for {path} instead.") from None
    except UnicodeDecodeError:
        raise RecipeError(f"`recipe` must be a TOML file. Got other bytes than text in {path.name} instead.") from None
    return parse(text, name=path.name, folder=path.parent)


def with_roster(recipe: Recipe, folder: Path | None) -> Recipe:
    """Read the list that a recipe names, unless it was read already, and put the list's hash in the place of its name."""
    named = recipe.data.roster
    if named is None or recipe.roster is not None:
        return recipe
    roster = sets.published(recipe.data)
    if roster is None and named != sets.PUBLISHED and folder is not None and not named.startswith(_HASHED):
        roster = Roster.read(folder / named)
        named = _HASHED + roster.sha256
    found: Recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"roster": named})})
    found._roster = roster
    return found


def _with_shards(recipe: Recipe) -> Recipe:
    """Write out how many teachers «one per unit» are: as many as the roster has places."""
    if recipe.teachers.shards != ONE_PER_UNIT:
        return recipe
    if (places := sets.places(recipe.data, recipe.roster)) is None:
        raise RecipeError(
            f"`teachers.shards` must be a whole number where there is no roster, or none that is known yet. Got {ONE_PER_UNIT!r} "
            "instead."
        )
    found: Recipe = recipe.model_copy(update={"teachers": recipe.teachers.model_copy(update={"shards": places})})
    return found


def parse(text: str, *, name: str = "the recipe", folder: Path | None = None) -> Recipe:
    """Check a recipe's text. The roster it names is a file in `folder`; a recipe of the package has none."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"`recipe` must be valid TOML. Got «{error}» in {name} instead.") from None
    recipe: Recipe = with_drawer(validated(Recipe, table))
    try:
        recipe.how()
    except RecipeError as error:
        raise RecipeError(placed(str(error), ("aggregation",))) from None
    sets.check_data(recipe.data)
    recipe = _with_shards(with_roster(recipe, folder))
    check_kinds(recipe)
    check_teachers(recipe.teachers)
    linear.check_student(recipe.student)
    linear.check(recipe)
    if recipe.codec is not None and recipe.about_masks:
        codecs.check(recipe)
    check_masks(recipe)
    check_counts(recipe)
    check_shares(recipe)
    check_features(recipe)
    check_alignment(recipe)
    return recipe
