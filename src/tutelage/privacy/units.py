"""Whom the guarantee protects: the unit, who counts as its neighbour, and shards that never share one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError, RecipeError, UnitOverlap


class Adjacency(StrEnum):
    """Say which two data sets are neighbours.

    REPLACE_ONE: all data of one unit changes in any way, its id included, while its place among the units stays; the number
    of places is public. Records of a unit may be added or removed, and a unit that leaves keeps an empty place: its shard's
    teacher becomes anything, the others stay. ADD_REMOVE: a whole institution with its teachers comes or goes, the number of
    teachers is public, and an absent one counts as the zero ballot.
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


def _one_per_record(units: npt.ArrayLike) -> npt.NDArray[Any]:
    ids = np.asarray(units)
    if ids.ndim != 1:
        raise DataError(f"`units` must be one id per record. Got shape {ids.shape} instead.")
    return ids


@final
@dataclass(frozen=True, repr=False)
class Shards:
    """Hold, for every teacher, the indices of its records; no unit stands in two of them."""

    indices: tuple[npt.NDArray[np.int64], ...]

    @classmethod
    def split(cls, units: npt.ArrayLike, shards: int, *, seed: int = 0) -> Shards:
        """Divide whole units evenly at random, by their places: the order in which they first appear.

        A unit's place and the number of places decide its shard, never an id or a record: replacing a unit in its place moves no
        other unit. The seed moves units between teachers; it draws no privacy noise.
        """
        ids = _one_per_record(units)
        distinct, first, which = np.unique(ids, return_index=True, return_inverse=True)
        if not (isinstance(shards, (int, np.integer)) and 1 <= shards <= len(distinct)):
            raise RecipeError(f"`shards` must be between 1 and the number of units, {len(distinct)}. Got {shards!r} instead.")
        # A keyed hash orders the places, the same on every platform and version.
        keys = [hashlib.blake2b(f"{seed}:{place}".encode(), digest_size=16).digest() for place in range(len(distinct))]
        home = np.empty(len(distinct), dtype=np.int64)
        home[sorted(range(len(distinct)), key=keys.__getitem__)] = np.arange(len(distinct)) % shards
        places = np.empty(len(distinct), dtype=np.int64)
        places[np.argsort(first)] = np.arange(len(distinct))
        where = home[places[which]]
        return cls.of([np.flatnonzero(where == k) for k in range(shards)], ids)

    @classmethod
    def of(cls, indices: Sequence[npt.ArrayLike], units: npt.ArrayLike) -> Shards:
        """Take a given division and check it."""
        ids = _one_per_record(units)
        given = [np.asarray(part) for part in indices]
        if not given or any(part.size == 0 for part in given):
            raise RecipeError("`shards` must each hold at least one record. Got an empty one instead.")
        if any(part.dtype.kind not in "iu" or part.ndim != 1 or part.min() < 0 or part.max() >= len(ids) for part in given):
            raise DataError(f"`indices` must be whole numbers from 0 to {len(ids) - 1}. Got others instead.")
        parts = tuple(part.astype(np.int64) for part in given)
        homes = np.concatenate([np.full(len(np.unique(ids[part])), k) for k, part in enumerate(parts)])
        owners = np.concatenate([np.unique(ids[part]) for part in parts])
        if len(np.unique(owners)) != len(homes):
            shared = len(homes) - len(np.unique(owners))
            raise UnitOverlap(f"`shards` must not share a unit. Got {shared} shared between shards instead.")
        return cls(parts)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, shard: int) -> npt.NDArray[np.int64]:
        return self.indices[shard]

    def __repr__(self) -> str:
        return f"Shards({len(self)})"

    def __reduce__(self) -> Any:
        return (Shards, (self.indices,))
