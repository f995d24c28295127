"""Whom the guarantee protects: the unit, who counts as its neighbour, and shards that never share one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import RecipeError, UnitOverlap


class Adjacency(StrEnum):
    """Say which two data sets are neighbours.

    REPLACE_ONE: one unit's data changes in any way (adding or removing a record inside a shard retrains that
    shard's teacher into anything, so this covers it too). ADD_REMOVE: a whole institution with its teachers comes
    or goes, the number of teachers is public, and an absent one counts as the zero ballot.
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


@final
@dataclass(frozen=True, repr=False)
class Shards:
    """Hold, for every teacher, the indices of its records; no unit stands in two of them."""

    indices: tuple[npt.NDArray[np.int64], ...]

    @classmethod
    def split(cls, units: npt.ArrayLike, shards: int, *, seed: int = 0) -> Shards:
        """Divide whole units evenly at random. The seed moves records between teachers; it draws no privacy noise."""
        ids = np.asarray(units)
        distinct = np.unique(ids)
        if not (isinstance(shards, (int, np.integer)) and 1 <= shards <= len(distinct)):
            raise RecipeError(f"`shards` must be between 1 and the number of units, {len(distinct)}. Got {shards!r} instead.")
        # A keyed hash orders the units: the division depends on the ids and the seed alone, on every platform and version.
        keys = [hashlib.blake2b(f"{seed}:{unit}".encode(), digest_size=16).digest() for unit in distinct.tolist()]
        home = np.empty(len(distinct), dtype=np.int64)
        home[sorted(range(len(distinct)), key=keys.__getitem__)] = np.arange(len(distinct)) % shards
        where = home[np.searchsorted(distinct, ids)]
        return cls.of([np.flatnonzero(where == k) for k in range(shards)], ids)

    @classmethod
    def of(cls, indices: Sequence[npt.ArrayLike], units: npt.ArrayLike) -> Shards:
        """Take a given division and check it."""
        ids = np.asarray(units)
        parts = tuple(np.asarray(part, dtype=np.int64) for part in indices)
        if not parts or any(part.size == 0 for part in parts):
            raise RecipeError("`shards` must each hold at least one record. Got an empty one instead.")
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
