"""The checks that every table of a recipe goes through: strict types, no unknown words, one form of error."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic_core import PydanticCustomError

from tutelage.privacy.errors import RecipeError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Table = dict[str, Any]
TRAINED = ("steps", "batch", "rate", "precision")  # keys of [teachers] that are fields of a training, as they stand


class Section(BaseModel):
    """Refuse unknown keys and values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # TOML has arrays, dataclasses hold tuples


def _as_sizes(value: Any) -> Any:
    return (value, value) if isinstance(value, int) and not isinstance(value, bool) else _as_tuple(value)


Size = Annotated[tuple[Count, ...], Field(min_length=2, max_length=3), BeforeValidator(_as_sizes)]  # one number is a square's
Names = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_as_tuple)]
Sizes = Annotated[tuple[float, ...], Field(min_length=2, max_length=3), BeforeValidator(_as_tuple)]
Widths = Annotated[tuple[Count, ...], Field(min_length=1), BeforeValidator(_as_tuple)]


def validated(model: type[Section], table: Table, *, place: tuple[str, ...] = ()) -> Any:
    """Check a table; every mistake in it is named, with its place in the recipe."""
    try:
        return model.model_validate(table)
    except ValidationError as failure:
        raise RecipeError("\n".join(_explained(error, model, place) for error in failure.errors())) from None


def built(kind: type, table: Table, *, place: tuple[str, ...], special: dict[Any, Any] | None = None) -> Any:
    """Make a dataclass from a table whose keys are its fields; `special` says how fields of a type are read."""
    checked = validated(section_of(kind, special or {}), table, place=place)
    try:
        return kind(**{name: getattr(checked, name) for name in checked.model_fields_set})
    except RecipeError as error:
        raise RecipeError(placed(str(error), place)) from None


def section_of(kind: type, special: dict[Any, Any]) -> type[Section]:
    """Read the keys of a table, and what each may hold, from the dataclass that it becomes."""
    hints = get_type_hints(kind)
    return create_model(kind.__name__, __base__=Section, **{name: (_read(hints[name], special), None) for name in names(kind)})


def names(kind: type) -> list[str]:
    """Name the fields of a dataclass."""
    return [field.name for field in dataclasses.fields(kind)]


def _read(hint: Any, special: dict[Any, Any]) -> Any:
    if hint in special:
        return special[hint]
    tuples = tuple in map(get_origin, (hint, *get_args(hint)))  # also one that may stay open
    return Annotated[hint, BeforeValidator(_as_tuple)] if tuples else hint


def nearest(value: object, known: Sequence[str]) -> str:
    """Ask whether the nearest known word was meant, or say nothing."""
    near = difflib.get_close_matches(str(value).lower().replace("_", "-"), known, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def unknown(place: str, value: object, known: Sequence[str], *, meant: str | None = None) -> RecipeError:
    """Refuse a word that is not in a closed table; `meant` is what it stands for elsewhere."""
    listed = ", ".join(repr(name) for name in known)
    hint = nearest(value, known) if meant is None else f" Did you mean {meant!r}?"
    return RecipeError(f"`{place}` must be one of {listed}. Got {value!r} instead.{hint}")


def one_of(known: Sequence[str], value: object) -> PydanticCustomError:
    """Refuse such a word inside a validator; the place is added on the way out."""
    listed = ", ".join(repr(name) for name in known)
    return PydanticCustomError("one_of", "one of {listed}", {"listed": listed, "hint": nearest(value, known)})


def check_widths(place: str, widths: Sequence[int] | None) -> None:
    """Refuse widths that a network's normalisation cannot divide into its 8 groups."""
    if any(width % 8 for width in widths or ()):
        raise RecipeError(f"`{place}` must be multiples of 8. Got {widths!r} instead.")


def placed(message: str, place: tuple[str, ...]) -> str:
    """Write out which key of the recipe a dataclass means when it refuses a field."""
    return message.replace("`", f"`{'.'.join(place)}.", 1) if message.startswith("`") and place else message


def _explained(error: Any, model: type[Section], start: tuple[str, ...]) -> str:
    """Put one of pydantic's findings into the house's form."""
    place = ".".join(str(part) for part in (*start, *error["loc"]))
    if error["type"] == "extra_forbidden":
        known = _known_keys(model, error["loc"][:-1])
        near = difflib.get_close_matches(str(error["loc"][-1]), known, n=1, cutoff=0.4)
        hint = f" Did you mean `{near[0]}`?" if near else f" Known here: {', '.join(sorted(known))}."
        return f"`{place}` must be a known key. Got an unknown one instead.{hint}"
    if error["type"] == "missing":
        return f"`{place}` must be given. Got nothing instead."
    if error["type"] in ("model_type", "dict_type"):
        return f"`{place}` must be a table, [{place}]. Got {error['input']!r} instead."
    if error["type"] == "string_too_short":
        return f"`{place}` must not be empty. Got {error['input']!r} instead."
    if error["type"] == "value_error":  # one of our own dataclasses refused it, in our own words
        return placed(str(error["ctx"]["error"]), (*start, *(str(part) for part in error["loc"])))
    hint = error.get("ctx", {}).get("hint", "")
    return f"`{place}` must be {error['msg'].removeprefix('Input should be ')}. Got {error['input']!r} instead.{hint}"


def _known_keys(model: Any, path: tuple[Any, ...]) -> list[str]:
    for part in path:
        annotation = model.model_fields[part].annotation
        model = next(kind for kind in (annotation, *getattr(annotation, "__args__", ())) if hasattr(kind, "model_fields"))
    return list(model.model_fields)


def named_or_built(value: Any, kind: type, table: Table, *, place: tuple[str, ...] = ()) -> Any:
    """Read what a recipe may call by a name, or write out as a table of its own."""
    if isinstance(value, dict):
        return built(kind, value, place=place)
    if not (isinstance(value, str) and value in table):
        raise one_of(tuple(table), value)
    return table[value]


def trained(section: Any, usual: Any, table: Table) -> Any:
    """Change how teachers are usually trained where a recipe says so; `table` holds the distortions that it can name."""
    given = {key: getattr(section, key) for key in TRAINED if getattr(section, key) is not None}
    if section.augmentation is not None:
        if section.augmentation not in table:
            raise unknown("teachers.augmentation", section.augmentation, tuple(table))
        given["augmentation"] = table[section.augmentation]
    return dataclasses.replace(usual, **given)
