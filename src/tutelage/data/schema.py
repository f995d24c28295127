"""What a raw record looks like and how it becomes inputs: declared, public, and stored with every model.

Nothing here is fitted. Classes, categories, ranges and sizes are written down by the data's owner before any private row is read,
and become public by that. A cell is encoded by itself: no row has a say in how another one is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage.data.accepted import Accepted
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import spelled

Array = npt.NDArray[Any]
VERSION = 1
NONE = -1  # the label of a record whose label is no class


class Schema(Protocol):
    """Describe raw records. `classes` may be empty: then labels are numbers, or targets are masks."""

    kind: str

    @property
    def classes(self) -> tuple[str, ...]:
        """Give the names of the classes, in the order of their numbers."""

    def plain(self) -> dict[str, Any]:
        """Write it as data that JSON can hold."""


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@final
@dataclass(frozen=True)
class Number:
    """Scale a number from [low, high] to [0, 1], cut what lies outside, and say in a second column where there is none."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        if not all(isinstance(end, (int, float)) and not isinstance(end, bool) and math.isfinite(end) for end in ends):
            raise RecipeError(f"`low` and `high` of {self.name!r} must be finite numbers. Got {ends} instead.")
        if not self.low < self.high:
            raise RecipeError(f"`low` of {self.name!r} must be below `high`. Got {ends} instead.")

    @property
    def features(self) -> tuple[str, ...]:
        """Name the encoded columns."""
        return (self.name, f"{self.name}=missing")

    def encode(self, cells: Sequence[Any]) -> Array:
        """Give (records, 2): the scaled number and whether it is missing."""
        values = np.fromiter(map(number, cells), np.float64, len(cells))
        missing = ~np.isfinite(values)
        scaled = np.clip((np.where(missing, self.low, values) - self.low) / (self.high - self.low), 0.0, 1.0)
        return np.stack([scaled, missing], axis=1).astype(np.float32)

    def decode(self, columns: Array) -> list[Any]:
        """Give numbers that are encoded like this: what lay outside comes back as the end it was cut to."""
        return [None if gap > 0.5 else float(self.low + value * (self.high - self.low)) for value, gap in columns.tolist()]

    def plain(self) -> dict[str, Any]:
        """Write it as a recipe has it."""
        return {"low": self.low, "high": self.high}


@final
@dataclass(frozen=True)
class Category:
    """Give every declared category a column, and one to everything else: unknown words and missing cells."""

    name: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(self.categories))
        if not self.categories or not all(isinstance(one, str) for one in self.categories):
            raise RecipeError(f"`categories` of {self.name!r} must be one text at least. Got {self.categories!r} instead.")
        if len(set(written(self.categories))) < len(self.categories):
            raise RecipeError(f"`categories` of {self.name!r} must differ. Got one of them twice instead.")

    @property
    def features(self) -> tuple[str, ...]:
        """Name the encoded columns."""
        return (*(f"{self.name}={one}" for one in self.categories), f"{self.name}=other")

    @property
    def unknown(self) -> str:
        """Give a word that is not declared."""
        known = set(written(self.categories))
        return next(word for word in ("other", "something else", "\0") if word not in known)

    def encode(self, cells: Sequence[Any]) -> Array:
        """Give (records, categories + 1)."""
        return np.eye(len(self.features), dtype=np.float32)[places(cells, self.categories, len(self.categories))]

    def decode(self, columns: Array) -> list[Any]:
        """Give the declared categories, and a word that is none of them where it was something else."""
        return [(*self.categories, self.unknown)[place] for place in np.asarray(columns).argmax(axis=1).tolist()]

    def plain(self) -> dict[str, Any]:
        """Write it as a recipe has it."""
        return {"categories": list(self.categories)}


@final
@dataclass(frozen=True)
class TableSchema:
    """Describe the rows of a table: its columns, the label with its classes, and the column that says whose row it is."""

    columns: tuple[Number | Category, ...]
    label: str
    names: tuple[str, ...]  # of the classes
    id: str | None = None

    kind = "table"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "names", class_names(self.names))
        known = [column.name for column in self.columns]
        if not known or len({*known, self.label, self.id}) < len(known) + 2:
            raise RecipeError("`columns` must be one at least, each once, and neither the label nor the id. Got others instead.")

    @classmethod
    def of(cls, columns: Mapping[str, Any], *, label: str, classes: Sequence[str], id: str | None = None) -> TableSchema:
        """Read columns as a recipe has them: `{low = 0, high = 100}` or `{categories = [...]}` by the name of each."""
        return cls(tuple(column(name, table) for name, table in columns.items()), label, tuple(classes), id)

    @property
    def classes(self) -> tuple[str, ...]:
        """Give the names of the classes."""
        return self.names

    @property
    def features(self) -> tuple[str, ...]:
        """Name the encoded columns."""
        return tuple(feature for column in self.columns for feature in column.features)

    def encode(self, cells: Mapping[str, Sequence[Any]]) -> Array:
        """Give (records, features) float32 of cells by the name of their column."""
        if absent := [column.name for column in self.columns if column.name not in cells]:
            raise DataError(f"the table must have the declared columns. Got none named {', '.join(map(repr, absent))} instead.")
        return np.concatenate([column.encode(cells[column.name]) for column in self.columns], axis=1)

    def decode(self, rows: Array) -> dict[str, list[Any]]:
        """Give raw cells that are encoded as these rows, up to what was cut off or unknown."""
        found, start = {}, 0
        for column in self.columns:
            width = len(column.features)
            found[column.name] = column.decode(np.asarray(rows)[:, start : start + width])
            start += width
        return found

    def targets(self, cells: Sequence[Any]) -> Array:
        """Give labels (records,), -1 where a cell is no class."""
        return places(cells, self.names, NONE)

    def plain(self) -> dict[str, Any]:
        """Write it as data that JSON can hold."""
        listed = {column.name: column.plain() for column in self.columns}
        return {"kind": self.kind, "label": self.label, "id": self.id, "classes": list(self.names), "columns": listed}


def column(name: str, table: Any) -> Number | Category:
    """Read one column of a recipe."""
    given = table if isinstance(table, Mapping) else {}
    if set(given) == {"low", "high"}:
        return Number(name, given["low"], given["high"])
    if set(given) == {"categories"} and isinstance(given["categories"], (list, tuple)):
        return Category(name, tuple(given["categories"]))
    raise RecipeError(f"`data.columns.{name}` must be {{low = …, high = …}} or {{categories = […]}}. Got {table!r} instead.")


def written(cells: Sequence[Any]) -> list[str]:
    """Write every cell in one form, each by itself: 7, 7.0 and " 7 " are one text, and a missing one is empty."""
    found: list[str] = spelled(list(cells)).tolist()
    return found


def places(cells: Sequence[Any], known: Sequence[str], other: int) -> Array:
    """Give each cell's place among declared words, or `other`."""
    table = {word: place for place, word in enumerate(written(known))}
    return np.fromiter((table.get(word, other) for word in written(cells)), np.int64, len(cells))


def number(cell: Any) -> float:
    """Read one cell as a number; what is none is not a number."""
    try:
        return float(cell)  # also a text with spaces around it
    except (TypeError, ValueError, OverflowError):
        return math.nan


def class_names(names: Sequence[str]) -> tuple[str, ...]:
    """Check the declared names of classes."""
    found = tuple(names)
    if len(found) < 2 or not all(isinstance(one, str) and one.strip() for one in found):
        raise RecipeError(f"`classes` must be two names or more. Got {found!r} instead.")
    if len(set(written(found))) < len(found) or "" in written(found):
        raise RecipeError(f"`classes` must be names that differ. Got {found!r} instead.")
    return found


# ── arrays, images and volumes ────────────────────────────────────────────────────────────────────────────────────────


@final
@dataclass(frozen=True)
class ArraySchema:
    """Describe records that come as arrays: what a model takes, and what its classes are called."""

    shape: tuple[int, ...]
    names: tuple[str, ...] = ()

    kind = "arrays"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(side) for side in self.shape))
        object.__setattr__(self, "names", class_names(self.names) if self.names else ())

    @property
    def classes(self) -> tuple[str, ...]:
        """Give the names of the classes."""
        return self.names

    def targets(self, labels: Sequence[Any]) -> Array:
        """Give labels (records,), -1 where one is no class."""
        return places(list(labels), self.names, NONE)

    def plain(self) -> dict[str, Any]:
        """Write it as data that JSON can hold."""
        return {"kind": self.kind, "shape": list(self.shape), "classes": list(self.names)}


@final
@dataclass(frozen=True)
class ImageSchema:
    """Describe image files: channels and size (height, width) that each is brought to; no classes where targets are masks."""

    channels: int
    size: tuple[int, int]
    names: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()  # which grey levels of a mask are the object; none: all but 0

    kind = "images"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", tuple(self.size))
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "names", class_names(self.names) if self.names else ())
        if self.channels not in (1, 3):
            raise RecipeError(f"`channels` must be 1 (grey) or 3 (RGB). Got {self.channels!r} instead.")
        if len(self.size) != 2 or not all(isinstance(side, int) and side >= 1 for side in self.size):
            raise RecipeError(f"`size` must be (height, width), two whole numbers ≥ 1. Got {self.size!r} instead.")

    @property
    def classes(self) -> tuple[str, ...]:
        """Give the names of the classes."""
        return self.names

    def plain(self) -> dict[str, Any]:
        """Write it as data that JSON can hold."""
        sides = {"channels": self.channels, "size": list(self.size)}
        return {"kind": self.kind, **sides, "classes": list(self.names), "labels": list(self.labels)}


@final
@dataclass(frozen=True)
class VolumeSchema:
    """Describe volumes: the box that each is cut or padded to, and what is done to its voxels before that."""

    channels: int
    size: tuple[int, int, int]
    labels: tuple[int, ...] = ()
    spacing: tuple[float, float, float] | None = None  # millimetres of a voxel, to which all are brought
    intensity: tuple[float, float] | None = (
        None  # a window of values that becomes [0, 1]; None: each volume's own mean and spread
    )

    kind = "volumes"

    def __post_init__(self) -> None:
        for name in ("size", "labels", "spacing", "intensity"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else tuple(value))

    @property
    def classes(self) -> tuple[str, ...]:
        """Targets are masks."""
        return ()

    def plain(self) -> dict[str, Any]:
        """Write it as data that JSON can hold."""
        shape = {"channels": self.channels, "size": list(self.size), "labels": list(self.labels)}
        pairs = {name: None if (value := getattr(self, name)) is None else list(value) for name in ("spacing", "intensity")}
        return {"kind": self.kind, **shape, **pairs}


# ── on disk ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def text(schema: Schema, accepted: Accepted) -> str:
    """Write a schema, and what the model takes of it, as one JSON file."""
    document = {"version": VERSION, **schema.plain(), "accepted": json.loads(accepted.plain())}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def parse(content: str) -> Schema:
    """Read a schema back."""
    try:
        found = json.loads(content)
        if found.pop("version") != VERSION:
            raise DataError("`inputs.json` must be of version 1. Got another one instead.")
        return _READ[found["kind"]](MappingProxyType(found))
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise DataError("`inputs.json` must describe inputs, as a run writes it. Got another file instead.") from None


def _triple(value: Any) -> Any:
    return None if value is None else tuple(value)


_READ: Mapping[str, Any] = MappingProxyType(
    {
        "table": lambda d: TableSchema.of(d["columns"], label=d["label"], classes=d["classes"], id=d["id"]),
        "arrays": lambda d: ArraySchema(tuple(d["shape"]), tuple(d["classes"])),
        "images": lambda d: ImageSchema(d["channels"], tuple(d["size"]), tuple(d["classes"]), tuple(d["labels"])),
        "volumes": lambda d: VolumeSchema(
            d["channels"], tuple(d["size"]), tuple(d["labels"]), _triple(d["spacing"]), _triple(d["intensity"])
        ),
    }
)
