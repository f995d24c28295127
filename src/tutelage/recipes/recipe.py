"""What a run is: validated TOML, hashed. Unknown words are refused with the nearest known one."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tutelage.planning import Aggregation, Sanitise
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Unit

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DataSection(_Section):
    """Which data: a named set, the split that makes it private, public and test, and where its files lie."""

    set: str
    split: str | None = None
    directory: str | None = None


class PrivacySection(_Section):
    """How much may be learned, and about whom."""

    epsilon: Positive
    delta: Annotated[float, Field(gt=0, lt=1)]
    unit: Literal["record", "patient", "institution"] = "record"
    unit_teachers: Count = 1


class TeachersSection(_Section):
    """Which models learn, and on how many shards."""

    kind: str = "forest"
    shards: Count


class SanitiseSection(_Section):
    """Parameters of the data-dependent ε's own release, fixed without looking at the votes."""

    order: Annotated[float, Field(gt=1, allow_inf_nan=False)]
    beta: Positive
    sigma: Positive


class AggregationSection(_Section):
    """How votes become answers; what is left out is calibrated."""

    method: Literal["gnmax", "lnmax", "confident-gnmax"] = "gnmax"
    queries: Count
    sigma: Positive | None = None
    gamma: Positive | None = None
    threshold: Share = 0.6
    test_ratio: Positive = 3.0
    answers: Count | None = None
    sanitise: SanitiseSection | None = None


class StudentSection(_Section):
    """Who learns from the answers."""

    learner: Literal["supervised", "spreading"] = "supervised"
    kind: str = "forest"


class Recipe(_Section):
    """A complete, reproducible description of a run. Its hash names the book that belongs to it."""

    name: Annotated[str, Field(min_length=1)]
    seed: int = 0
    tuned_on: str = "not stated"
    data: DataSection
    privacy: PrivacySection
    teachers: TeachersSection
    aggregation: AggregationSection
    student: StudentSection = StudentSection()

    @property
    def sha256(self) -> str:
        """Hash everything that shapes the result; where the files lie does not."""
        content = self.model_dump(mode="json", exclude={"data": {"directory"}})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def budget(self) -> Budget:
        """Build the budget."""
        return Budget(self.privacy.epsilon, self.privacy.delta, Unit(self.privacy.unit, self.privacy.unit_teachers))

    def how(self) -> Aggregation:
        """Build the aggregation."""
        section = self.aggregation
        chosen = section.model_dump(exclude={"queries", "sanitise"})
        return Aggregation(**chosen, sanitise=None if section.sanitise is None else Sanitise(**section.sanitise.model_dump()))


def read(path: Path) -> Recipe:
    """Read and check a recipe file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecipeError(f"`recipe` must be a readable TOML file. Got «{error.strerror}» for {path} instead.") from None
    except UnicodeDecodeError:
        raise RecipeError(f"`recipe` must be a TOML file. Got other bytes than text in {path.name} instead.") from None
    return parse(text, name=path.name)


def parse(text: str, *, name: str = "the recipe") -> Recipe:
    """Check a recipe's text."""
    try:
        return Recipe.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"`recipe` must be valid TOML. Got «{error}» in {name} instead.") from None
    except ValidationError as failure:
        raise RecipeError("\n".join(_explained(error) for error in failure.errors())) from None


def _explained(error: Any) -> str:
    """Put one of pydantic's findings into the house's form."""
    place = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        known = _known_keys(error["loc"][:-1])
        near = difflib.get_close_matches(str(error["loc"][-1]), known, n=1, cutoff=0.4)
        hint = f" Did you mean `{near[0]}`?" if near else f" Known here: {', '.join(sorted(known))}."
        return f"`{place}` must be a known key. Got an unknown one instead.{hint}"
    if error["type"] == "missing":
        return f"`{place}` must be given. Got nothing instead."
    if error["type"] == "model_type":
        return f"`{place}` must be a table, [{place}]. Got {error['input']!r} instead."
    if error["type"] == "string_too_short":
        return f"`{place}` must not be empty. Got {error['input']!r} instead."
    return f"`{place}` must be {error['msg'].removeprefix('Input should be ')}. Got {error['input']!r} instead."


def _known_keys(path: tuple[Any, ...]) -> list[str]:
    model: Any = Recipe
    for part in path:
        annotation = model.model_fields[part].annotation
        model = next(kind for kind in (annotation, *getattr(annotation, "__args__", ())) if hasattr(kind, "model_fields"))
    return list(model.model_fields)
