"""Own data with labels: tables, image folders and arrays, whose classes, columns and sizes a recipe declares.

What a recipe declares is public from then on, and is stored in the release with the model. The public pool and the test come from
files of their own, or the owner declares that the people drawn by a hash of their ids are public.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np

from tutelage.data import arrays, folders, tables
from tutelage.data.dataset import Private, Public
from tutelage.data.schema import ArraySchema, ImageSchema, Schema, TableSchema
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Roster
from tutelage.recipes.sections import placed

Three = tuple[Private, Public, Public]
SHARES = ("public_share", "test_share")
FILES = ("file", "public_file", "test_file")
KEYS = (*FILES, "separator", "id", "label", "classes", "columns", "declared", *SHARES, "channels", "spacing", "intensity")


@final
@dataclass(frozen=True)
class OwnSet:
    """Name the keys that a set must have and may have, and where its private, public and test parts are."""

    needed: tuple[str, ...]
    open: tuple[str, ...]
    parts: tuple[str, str, str]


_PLACES = ("directory", "public_directory", "test_directory")
OWN: Mapping[str, OwnSet] = MappingProxyType(
    {
        "table": OwnSet(("file", "label", "classes", "columns"), ("id", "separator", *FILES[1:], *SHARES, "directory"), FILES),
        "images": OwnSet(("classes", "size"), ("channels", *_PLACES, "test_share"), _PLACES),
        "arrays": OwnSet(("file", "classes"), (*FILES[1:], *SHARES, "directory"), FILES),
    }
)
_ALWAYS = ("set", "declared", "public_data", "roster")


def has(section: Any) -> bool:
    """Tell whether a recipe is about own data with labels."""
    return section.set in OWN


def check(section: Any) -> None:
    """Refuse keys that a set has no use for, a wrong declaration, and a division that leaves open who is public."""
    known = OWN[section.set]
    kept = (*known.needed, *known.open, *_ALWAYS)
    given = [key for key in type(section).model_fields if getattr(section, key) is not None]
    if idle := [key for key in given if key not in kept]:
        raise RecipeError(f"`data.{idle[0]}` must stay open for {section.set!r}. Got a value instead.")
    if missing := [key for key in known.needed if getattr(section, key) is None]:
        raise RecipeError(f"`data.{missing[0]}` must be given for {section.set!r}. Got nothing instead.")
    try:
        schema(section)
    except RecipeError as error:
        raise RecipeError(placed(str(error), ("data",)).replace("data.data.", "data.")) from None
    _check_parts(section, known)


def _check_parts(section: Any, known: OwnSet) -> None:
    _, pool, tested = (getattr(section, key) for key in known.parts)
    for key in SHARES:
        share = getattr(section, key)
        if share is not None and not 0 < share < 1:
            raise RecipeError(f"`data.{key}` must be a share between 0 and 1. Got {share!r} instead.")
    if pool is None:
        if tested is not None:
            raise RecipeError(f"`data.{known.parts[1]}` must be given where `data.{known.parts[2]}` is. Got nothing instead.")
        if known.parts == _PLACES:
            raise RecipeError("`data.public_directory` must be given: a folder of public images. Got nothing instead.")
        if None in (section.public_share, section.test_share):
            raise RecipeError(
                "`data.public_file` must be given, a file of public records; or `data.public_share` and `data.test_share`, where "
                "people of the one file are public. Got neither instead."
            )
        if section.public_share + section.test_share >= 1:
            raise RecipeError(
                "`data.public_share` and `data.test_share` must leave private records over. Got all of them instead."
            )
        if section.roster is not None:
            raise RecipeError(
                "`data.roster` must come with `data.public_file`: it lists private people alone. Got a share instead."
            )
        return
    if section.public_share is not None or section.public_data is not None:
        key = "public_share" if section.public_share is not None else "public_data"
        raise RecipeError(f"`data.{key}` must stay open where `data.{known.parts[1]}` is given. Got both instead.")
    if (tested is None) is (section.test_share is None):
        raise RecipeError(
            f"`data.{known.parts[2]}` or `data.test_share`, a part of the public records, must be given: one of the two. "
            f"Got {'neither' if tested is None else 'both'} instead."
        )


def schema(section: Any) -> Schema:
    """Build what the recipe declares of a raw record."""
    if section.set == "table":
        return TableSchema.of(section.columns, label=section.label, classes=section.classes, id=section.id)
    if section.set == "images":
        return ImageSchema(section.channels or 3, section.size, section.classes)
    return ArraySchema((), section.classes)


def check_declared(section: Any, *, public_data: bool = False) -> None:
    """Refuse to read private data before its owner has confirmed what becomes public."""
    if section.declared is not True:
        raise RecipeError(
            "`data.declared` must be true: classes, columns, categories, ranges and sizes of this recipe become public with the "
            "model. Read them, and confirm that they may. Got no confirmation instead."
        )
    if getattr(section, OWN[section.set].parts[1]) is None and not (public_data or section.public_data):
        raise RecipeError(
            "`data` must say who is public: name a file of public records (`data.public_file`), or declare with --public-data "
            "(`data.public_data`) that the people drawn for the pool and the test are public. Got neither instead."
        )


def load(section: Any, given: str | Path | None, *, unit: Any, seed: int, roster: Roster | None, public_data: bool) -> Three:
    """Read the three parts."""
    check_declared(section, public_data=public_data)
    read = {"table": _tables, "images": _images, "arrays": _arrays}[section.set]
    private, public, test = read(section, Path(given or "."), unit, seed, roster)
    return private, public[shuffled(len(public), seed)], test


def shuffled(count: int, seed: int) -> Any:
    """Give an order for public records: files often have one class after the other, and the first ones are asked about."""
    keys = [hashlib.sha256(f"order|{seed}|{place}".encode()).digest() for place in range(count)]
    return np.array(sorted(range(count), key=keys.__getitem__), dtype=np.int64)


def declared(section: Any) -> tuple[str, ...]:
    """Say what is public on the owner's word, and whom no guarantee covers."""
    covers = "the guarantee does not cover them"
    what = {"table": "columns, categories and ranges", "images": "size and channels", "arrays": "shapes"}[section.set]
    own = (f"Classes, {what} of the records were declared public by whoever ran this.",)
    if getattr(section, OWN[section.set].parts[1]) is not None:
        return (*own, f"All records of the public pool and the test were declared public by whoever ran this: {covers}.")
    share = section.public_share + section.test_share
    return (*own, f"{share:.0%} of the units, drawn by a hash of their ids, were declared public by whoever ran this: {covers}.")


def part(seed: int, low: float, high: float) -> Callable[[Any], Any]:
    """Choose the ids whose hash lies in a range: a function of the seed and of the id alone."""

    def own(ids: Any) -> Any:
        homes = {one: _home(seed, one) for one in set(np.asarray(ids).tolist())}
        return np.array([one != "" and low <= homes[one] < high for one in np.asarray(ids).tolist()], dtype=bool)

    return own


def _home(seed: int, one: str) -> float:
    digest = hashlib.sha256(f"part|{seed}|{one}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _parts(section: Any, seed: int) -> tuple[Any, Any, Any]:
    """Give what chooses private, public and test units: nothing where a part has a place of its own."""
    known = OWN[section.set]
    pool, tested = (getattr(section, key) for key in known.parts[1:])
    last = section.test_share or 0.0
    if pool is None:
        both = last + section.public_share
        return part(seed, both, 1.0), part(seed, last, both), part(seed, 0.0, last)
    return (None, None, None) if tested is not None else (None, part(seed, last, 1.0), part(seed, 0.0, last))


def _found(section: Any, home: Path) -> list[Path]:
    own, *others = (getattr(section, key) for key in OWN[section.set].parts)
    first = home / own if own is not None else home
    pool = first if others[0] is None else home / others[0]
    return [first, pool, pool if others[1] is None else home / others[1]]


def _tables(section: Any, home: Path, unit: Any, seed: int, roster: Roster | None) -> Three:
    declared, (own, pool, tested) = schema(section), _found(section, home)
    assert isinstance(declared, TableSchema)
    mine, ours, last = _parts(section, seed)
    how = {"separator": section.separator or ","}
    test = tables.public_from_table(tested, declared, part=last, **how)
    public = tables.public_from_table(pool, declared, part=ours, **how)
    private = tables.private_from_table(own, declared, unit=unit, roster=roster, part=mine, **how)
    return private, public, _judged(test)


def _arrays(section: Any, home: Path, unit: Any, seed: int, roster: Roster | None) -> Three:
    mine, ours, last = _parts(section, seed)
    own, pool, tested = _found(section, home)
    names = tuple(section.classes)
    test = arrays.public_from_npz(tested, classes=names, part=last)
    public = arrays.public_from_npz(pool, classes=names, part=ours)
    private = arrays.private_from_npz(own, classes=names, unit=unit, roster=roster, part=mine)
    return private, public, _judged(test)


def _images(section: Any, home: Path, unit: Any, seed: int, roster: Roster | None) -> Three:
    last = _parts(section, seed)[2]
    # The private folder is the recipe's directory itself; the public ones are beside it, or anywhere.
    own, pool, tested = home, Path(section.public_directory), Path(section.test_directory or section.public_directory)
    how = {"classes": tuple(section.classes), "size": tuple(section.size), "channels": section.channels or 3}
    folders.check_apart(own, pool, tested)
    test = folders.public_from_folder(tested, **how, part=last)
    public = folders.public_from_folder(pool, **how, part=None if last is None else part(seed, section.test_share, 1.0))
    return folders.private_from_folder(own, **how, unit=unit, roster=roster), public, _judged(test)


def _judged(test: Public) -> Public:
    if test.targets is None:
        raise DataError("`test` must have labels that are declared classes: a student is scored on it. Got none instead.")
    return test
