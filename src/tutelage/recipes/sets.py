"""Data sets whose targets are masks: which keys each has, how large a mask is, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np

from tutelage.data import presets
from tutelage.data.dataset import Private, Public
from tutelage.data.scenes import Scenes
from tutelage.data.volumes import Volumes
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.recipes.sections import placed, unknown

Three = tuple[Private, Public, Public]
KEYS = ("size", "private", "public", "test", "target", "noise", "silhouettes")  # of [data], for masks alone
COUNTS = ("private", "public", "test")
_SHAPES = 2000  # drawn scenes that codecs are fitted on: silhouettes are public, and no scene of a study is among these
_SEEDS = MappingProxyType({"private": 1, "public": 2, "test": 3, "shapes": 4})


@final
@dataclass(frozen=True)
class MaskSet:
    """Name the keys that a set of masks must have and may have, and how many sides a mask has."""

    needed: tuple[str, ...]
    open: tuple[str, ...]
    sides: int
    find: Callable[..., Volumes] | None = None


SETS: Mapping[str, MaskSet] = MappingProxyType(
    {
        "scenes": MaskSet(("size", *COUNTS), ("target", "noise", "silhouettes", "directory"), 2),
        "hippocampus": MaskSet(("size", *COUNTS), ("directory",), 3, Volumes.decathlon),
        "brats": MaskSet(("size", *COUNTS), ("directory",), 3, Volumes.brats),
    }
)


def check_data(section: Any) -> None:
    """Refuse an unknown set, keys that it has no use for, and a size that is not a mask's."""
    names = ("digits", *presets.names(), *SETS)
    if section.set not in names:
        raise unknown("data.set", section.set, names)
    known = SETS.get(section.set)
    kept = () if known is None else (*known.needed, *known.open)
    rest = (*KEYS, *(() if known is None else ("split",)))
    idle = [key for key in rest if getattr(section, key) is not None and key not in kept]
    if idle:
        raise RecipeError(f"`data.{idle[0]}` must stay open for {section.set!r}. Got a value instead.")
    if known is None:
        return
    missing = [key for key in known.needed if getattr(section, key) is None]
    if missing:
        raise RecipeError(f"`data.{missing[0]}` must be given for {section.set!r}. Got nothing instead.")
    if len(section.size) != known.sides or (known.sides == 2 and len({*section.size}) > 1):
        rule = "one whole number" if known.sides == 2 else "three whole numbers"
        raise RecipeError(f"`data.size` must be {rule} for {section.set!r}. Got {section.size!r} instead.")
    if known.find is None:
        try:
            scenes(section, None)
        except RecipeError as error:
            raise RecipeError(placed(str(error), ("data",))) from None
        if section.directory is not None and not _real(section):
            raise RecipeError(
                '`data.directory` must come with silhouettes = "templates": those of the package are drawn. Got it alone instead.'
            )


def shape(section: Any) -> tuple[int, ...]:
    """Give the shape of a mask, without reading one."""
    return tuple(section.size)


def is_public(section: Any) -> bool:
    """Tell whether the 'private' part is public for sure: drawn by this package. A folder may hold anything under any name."""
    return SETS[section.set].find is None and not _real(section)


def scenes(section: Any, directory: str | Path | None) -> Scenes:
    """Build what draws the scenes."""
    given = {key: getattr(section, key) for key in ("target", "noise") if getattr(section, key) is not None}
    return Scenes(size=section.size[0], templates=directory, **given)


def load(section: Any, directory: str | Path | None, *, seed: int) -> Three:
    """Draw or read the three parts of a study."""
    known, counts = SETS[section.set], [getattr(section, key) for key in COUNTS]
    if known.find is None:
        if _real(section) and directory is None:
            raise RecipeError("`data` must be the folder with bird/, cat/ and dog/: --data DIR. Got nothing instead.")
        if directory is not None and not _real(section):
            raise RecipeError('`data` must come with silhouettes = "templates"; others are drawn. Got a folder instead.')
        drawn = scenes(section, directory)
        draws = [_seed(seed, part) for part in COUNTS]
        return (
            drawn.private(counts[0], seed=draws[0]),
            drawn.public(counts[1], seed=draws[1]),
            drawn.public(counts[2], seed=draws[2]),
        )
    if directory is None:
        raise RecipeError(f"`data` must be the folder with the files of {section.set!r}: --data DIR. Got nothing instead.")
    return _divided(known.find(directory, size=tuple(section.size)), counts, seed)


def shapes(section: Any, public: Public, *, seed: int) -> Public:
    """Give public masks for codecs to be fitted on: drawn ones where there is a pen, else those of the public pool."""
    if SETS[section.set].find is None:
        return scenes(section, None).public(_SHAPES, seed=_seed(seed, "shapes"))
    return public


def _divided(volumes: Volumes, counts: list[int], seed: int) -> Three:
    """Divide patients, never the scans of one, by the seed alone."""
    everyone = np.unique(volumes.patients)
    if sum(counts) > len(everyone):
        raise DataError(f"`data` must hold {sum(counts)} patients: private, public and test. Got {len(everyone)} instead.")
    order = everyone[np.random.default_rng(seed).permutation(len(everyone))]
    parts = np.split(order[: sum(counts)], np.cumsum(counts)[:-1])
    private, public, test = (volumes[np.flatnonzero(np.isin(volumes.patients, part))] for part in parts)
    return private.private(), public.public(), test.public()


def _real(section: Any) -> bool:
    return bool(section.silhouettes == "templates")


def _seed(seed: int, part: str) -> int:
    """Give every part scenes of its own."""
    return 10 * seed + _SEEDS[part]
