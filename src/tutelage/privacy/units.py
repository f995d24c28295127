"""Whom the guarantee protects: the unit, its neighbours, the public roster, and shards that no unit can change but its own.

A unit's shard is a keyed hash of its id, or its place on a public roster. Never the order of rows, a label, a folder's name, or
how many records anybody has: all of these can differ between neighbouring data sets, and every teacher would change with them.
Proof: docs/theory/sensitivity.md.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError, RecipeError, UnitOverlap

_LONGEST = 200  # characters of an id; a longer one is written as its hash
_EXACT = 2**53  # from here on 64-bit floats do not hold every whole number
_IDS = (str, bytes, int, float, np.generic, Decimal, UUID, date)  # what can be an id; booleans are ints
_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOLEANS = {"True": "1", "False": "0"}  # as numbers have them
_MISSING = frozenset({"nan", "NaN", "None", "NaT", "<NA>"})  # what NumPy and pandas write for an id that is not there


class Adjacency(StrEnum):
    """Say which two data sets are neighbours.

    REPLACE_ONE: everything under one id changes in any way: labels, contents, the order of rows, more records, fewer, none.
    Exactly one teacher changes. Being on a roster is not protected, and another id counts as two units. ADD_REMOVE: a whole
    institution with its teachers comes or goes, the number of teachers is public, and an absent one counts as the zero ballot.
    """

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"


@final
@dataclass(frozen=True)
class Unit:
    """Name the unit of privacy and how many teachers one unit's data can reach.

    A record or a patient sits in one shard, hence behind one teacher. An institution that trains m teachers, or a
    patient known to h hospitals, reaches m (or h), and sensitivities grow by that factor.
    """

    name: str = "record"
    teachers: int = 1

    def __post_init__(self) -> None:
        if self.name not in ("record", "patient", "institution"):
            raise RecipeError(f"`unit` must be 'record', 'patient' or 'institution'. Got {self.name!r} instead.")
        if not (isinstance(self.teachers, int) and self.teachers >= 1):
            raise RecipeError(f"`teachers` of a unit must be a whole number ≥ 1. Got {self.teachers!r} instead.")


def spelled(units: npt.ArrayLike) -> npt.NDArray[np.str_]:
    """Write every id in one form, each by itself: 7, 7.0, "7", "007" and " 7 " are one unit. A missing id is the empty text.

    The form of one id must not depend on what kind of id another record has: NumPy and data frames turn a whole column into
    floats or texts because of one odd cell, and every hash would change. So an id that is a number, or a text that spells one, is
    written as a 64-bit float has it. Whole numbers from 2^53 on are rounded by that, however they are given: two that round alike
    are one unit. An id of any length and with any characters has a form: none can end a run. What is neither a text nor a
    number nor a date is nobody. What was written once is written the same again.
    """
    ids = _cells(units)
    if ids.ndim != 1:
        raise DataError(f"`units` must be one id per record. Got shape {ids.shape} instead.")
    if ids.dtype.kind in "mM":  # how one is written depends on the precision of all
        raise DataError("`units` must be texts where they are dates or times. Got an array of them instead.")
    if ids.dtype.kind in "iu" and (not ids.size or (int(ids.min()) > -_EXACT and int(ids.max()) < _EXACT)):
        return ids.astype(np.str_)
    return np.array([_written(one) for one in ids.tolist()], dtype=np.str_)


def _cells(units: npt.ArrayLike) -> npt.NDArray[Any]:
    if isinstance(units, (list, tuple)):  # which may mix kinds, and a pair in it is one odd id
        return np.fromiter(units, dtype=np.object_, count=len(units))
    return np.asarray(units)


def _written(one: object) -> str:
    try:
        text = _text(one)
    except Exception:  # an object of another's may raise anything; pandas' NA cannot say whether it is equal to itself
        return ""
    # An array of texts is as wide as its longest: one id of a megabyte would need a megabyte for every record.
    return text if len(text) <= _LONGEST else f"sha256 {hashlib.sha256(_bytes(text)).hexdigest()}"


def _text(one: Any) -> str:
    if isinstance(one, (complex, np.complexfloating)):  # one of them makes an array of them
        one = float(one.real) if one.imag == 0 else None
    if not isinstance(one, _IDS) or not bool(one == one):  # not a number, not a time
        return ""
    if isinstance(one, (int, np.integer)):
        try:
            return _number(float(one))
        except OverflowError:
            return hex(int(one))  # Python refuses to write very long decimals
    if isinstance(one, (float, np.floating)):
        return _number(float(one))
    text = one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one)
    text = unicodedata.normalize("NFC", text.replace("\0", " ")).strip()  # NumPy drops a zero at the end
    if len(text) <= 2 * _LONGEST and _PLAIN.fullmatch(text) and math.isfinite(number := float(text)):
        return _number(number)
    return "" if text in _MISSING else _BOOLEANS.get(text, text)


def _number(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


@final
@dataclass(frozen=True, repr=False, eq=False)
class Roster:
    """Hold the public list of ids that may take part. It is an input, declared public, and never read off the private data.

    An id on the list has a place, whether it has records or not. Being on the list is not protected.
    """

    ids: npt.NDArray[np.str_]

    def __post_init__(self) -> None:
        names = spelled(self.ids)
        if not len(names) or (names == "").any() or len(np.unique(names)) < len(names):
            raise RecipeError("`roster` must list every id once, and at least one. Got an empty, blank or repeated one instead.")
        names.flags.writeable = False  # the guarantee publishes its length and order
        object.__setattr__(self, "ids", names)

    @classmethod
    def of(cls, ids: npt.ArrayLike) -> Roster:
        """Take a list of ids, each once."""
        return cls(spelled(ids))

    @classmethod
    def read(cls, path: Path) -> Roster:
        """Read a text file with one id a line. Blank lines count for nothing."""
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(
                f"`roster` must be a readable UTF-8 text with one id a line. Got {type(error).__name__} for {path} instead."
            ) from None
        return cls.of([line for line in lines if line.strip()])

    @classmethod
    def places(cls, count: int) -> Roster:
        """Give the roster of arrays without ids: the numbers of the rows, from 0."""
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
            raise RecipeError(f"`count` of a roster must be a whole number ≥ 1. Got {count!r} instead.")
        return cls(np.arange(count).astype(np.str_))

    def find(self, units: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Give every record's place on the list (records,), -1 for an id that is not on it."""
        names = spelled(units)
        order = np.argsort(self.ids, kind="stable")
        where = np.searchsorted(self.ids, names, sorter=order).clip(max=len(self.ids) - 1)
        places = order[where].astype(np.int64)
        return np.where(self.ids[places] == names, places, -1)

    @property
    def sha256(self) -> str:
        """Give the hash of the list, in its order: it is public."""
        digest = hashlib.sha256()
        for name in self.ids.tolist():
            digest.update(_bytes(f"{len(name)}:{name}"))
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Roster) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"Roster({len(self)} places)"


@final
@dataclass(frozen=True, repr=False)
class Shards:
    """Hold, for every teacher, the indices of its records; no unit is in two of them. A shard may be empty.

    `key` describes the rule that divided: public, and the same for every data set that is divided by it.
    """

    indices: tuple[npt.NDArray[np.int64], ...]
    key: str = "given"

    @classmethod
    def hashed(cls, units: npt.ArrayLike, shards: int, *, key: str = "0") -> Shards:
        """Give every unit the shard that the keyed hash of its id names: no other unit, and no record, has a say in it.

        The number of units stays private, and sizes differ as chance has it. The key is public and fixed beforehand; whoever
        tries several until the sizes please makes the division depend on everybody.
        """
        names = spelled(units)
        count = _valid_count(shards)
        homes: dict[str, int] = {name: _hash(key, name) % count for name in dict.fromkeys(names.tolist())}
        homes[""] = -1  # a record without an id is in no shard
        where = np.array([homes[name] for name in names.tolist()], dtype=np.int64)
        return cls(_parts(where, count), f"hash of id|{key}|{count}")

    @classmethod
    def placed(cls, units: npt.ArrayLike, roster: Roster, shards: int, *, key: str = "0") -> Shards:
        """Deal the places of a public roster evenly among shards; an absent id leaves its place empty.

        The roster's length, the key and a unit's place decide its shard. Ids that are not on the roster are left out.
        """
        count = _valid_count(shards)
        if count > len(roster):
            raise RecipeError(f"`shards` must be at most the places on the roster, {len(roster)}. Got {count} instead.")
        # A keyed hash orders the places, the same on every platform and version.
        keys = [hashlib.blake2b(f"{key}:{place}".encode(), digest_size=16).digest() for place in range(len(roster))]
        home = np.full(len(roster) + 1, -1, dtype=np.int64)  # the last one is for ids that are not on the roster
        home[sorted(range(len(roster)), key=keys.__getitem__)] = np.arange(len(roster)) % count
        return cls(_parts(home[roster.find(units)], count), f"place on the roster {roster.sha256}|{key}|{count}")

    @classmethod
    def of(cls, indices: Sequence[npt.ArrayLike], units: npt.ArrayLike, *, key: str = "given") -> Shards:
        """Take a given division and check it. Whoever gives one answers for its rule: no unit may move another one."""
        ids = spelled(units)
        given = [np.asarray(part if np.size(part) else np.empty(0, dtype=np.int64)) for part in indices]
        if not given:
            raise RecipeError("`shards` must be at least one. Got none instead.")
        if not all(_indexes(part, len(ids)) for part in given):
            raise DataError(f"`indices` must be whole numbers from 0 to {len(ids) - 1}. Got others instead.")
        parts = tuple(part[ids[part] != ""].astype(np.int64) for part in given)  # a record without an id is in no shard
        owners = np.concatenate([np.unique(ids[part]) for part in parts])
        if len(owners) > len(np.unique(owners)):
            raise UnitOverlap("`shards` must not share a unit. Got some that do instead.")
        return cls(parts, key)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, shard: int) -> npt.NDArray[np.int64]:
        return self.indices[shard]

    def __repr__(self) -> str:
        return f"Shards({len(self)})"

    def __reduce__(self) -> Any:
        return (Shards, (self.indices, self.key))


def _indexes(part: npt.NDArray[Any], records: int) -> bool:
    whole = part.dtype.kind in "iu" and part.ndim == 1
    return whole and (part.size == 0 or bool(0 <= part.min() <= part.max() < records))


def _hash(key: str, name: str) -> int:
    """Hash an id under a public key; the length keeps key and id apart."""
    return int.from_bytes(hashlib.sha256(_bytes(f"{len(key)}:{key}:{name}")).digest()[:16], "big")


def _bytes(text: str) -> bytes:
    """Write a text as bytes, also one with halves of characters: names of files may hold any bytes."""
    return text.encode("utf-8", "surrogatepass")


def _valid_count(shards: int) -> int:
    if isinstance(shards, bool) or not isinstance(shards, (int, np.integer)) or shards < 1:
        raise RecipeError(f"`shards` must be a whole number ≥ 1. Got {shards!r} instead.")
    return int(shards)


def _parts(where: npt.NDArray[np.int64], count: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Collect the records of each shard in their order; -1 is no shard."""
    order = np.argsort(where, kind="stable")
    ends = np.searchsorted(where[order], np.arange(count + 1))
    return tuple(order[start:end].astype(np.int64) for start, end in itertools.pairwise(ends))
