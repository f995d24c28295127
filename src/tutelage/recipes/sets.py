"""Data sets whose targets are masks: which keys each has, how large a mask is, and how it is read.

A folder's patients are all private unless somebody says otherwise. Images of the public pool are shown in the release, and a
student is scored on the test patients: both come from folders of their own, or whoever runs a recipe declares that patients
of the one folder are public (`public_data`). Without either nothing is read.
"""

from __future__ import annotations

import functools
import hashlib
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np

from tutelage.data import presets
from tutelage.data.dataset import Private, Public
from tutelage.data.digits import POOL, PRIVATE
from tutelage.data.mapped import HELD
from tutelage.data.scenes import Scenes
from tutelage.data.volumes import Volumes, listed
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.recipes.sections import placed, unknown
from tutelage.telling import Progress

Three = tuple[Private, Public, Public]
COUNTS = ("private", "public", "test")  # of people, or of scenes
ELSEWHERE = ("public_directory", "test_directory")
KEYS = ("size", *COUNTS, "target", "noise", "silhouettes", "labels", *ELSEWHERE, "public_data")  # of [data], for masks alone
NIFTI = "nifti"  # anybody's volumes, in the folders of the Decathlon; no name of theirs is taken for one of the public sets
_VOLUMES = (*COUNTS, "directory", "labels", *ELSEWHERE, "public_data")
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
        NIFTI: MaskSet(("size",), _VOLUMES, 3, functools.partial(Volumes.decathlon, guess=False)),
        "hippocampus": MaskSet(("size",), _VOLUMES, 3, Volumes.decathlon),
        "brats": MaskSet(("size",), _VOLUMES, 3, Volumes.brats),
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
    if known.find is not None:
        _check_folders(section)
    else:
        try:
            scenes(section, None)
        except RecipeError as error:
            raise RecipeError(placed(str(error), ("data",))) from None
        if section.directory is not None and not _real(section):
            raise RecipeError(
                '`data.directory` must come with silhouettes = "templates": those of the package are drawn. Got it alone instead.'
            )


def _check_folders(section: Any) -> None:
    """Refuse a division of patients that leaves open who is public."""
    if section.public_directory is None and section.test_directory is not None:
        raise RecipeError("`data.public_directory` must be given where `data.test_directory` is. Got nothing instead.")
    if section.public_directory is not None and section.public_data is not None:
        raise RecipeError(
            "`data.public_data` must stay open where `data.public_directory` is given: all of `directory` is private. Got both."
        )
    drawn = COUNTS[1:] if section.public_directory is None else COUNTS[2:] if section.test_directory is None else ()
    missing = [key for key in drawn if getattr(section, key) is None]
    if missing:
        raise RecipeError(f"`data.{missing[0]}` must be given: they are drawn from a folder with others. Got nothing instead.")


def counts(section: Any) -> tuple[int, int] | None:
    """Give how many private units and public records there are, where that is known without reading a file."""
    if section.set == "digits":
        return PRIVATE, POOL
    if section.set not in SETS or SETS[section.set].find is not None:  # a patient may have several scans
        return None
    return section.private, section.public


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


def load(
    section: Any,
    directory: str | Path | None,
    *,
    seed: int,
    public_data: bool = False,
    kept: Path | None = None,
    progress: Progress | None = None,
) -> Three:
    """Draw or read the three parts of a study; volumes larger than memory are mapped from nameless files in the folder `kept`.

    `public_data` declares that the patients for the pool and the test, drawn from the one folder, are public.
    """
    known = SETS[section.set]
    if known.find is None:
        if public_data:
            raise RecipeError(f"`public_data` must stay off for {section.set!r}: there are no patients. Got it instead.")
        if _real(section) and directory is None:
            raise RecipeError("`data` must be the folder with bird/, cat/ and dog/: --data DIR. Got nothing instead.")
        if directory is not None and not _real(section):
            raise RecipeError('`data` must come with silhouettes = "templates"; others are drawn. Got a folder instead.')
        drawn = scenes(section, directory)
        counts, draws = ([getattr(section, key) for key in COUNTS], [_seed(seed, part) for part in COUNTS])
        return (
            drawn.private(counts[0], seed=draws[0]),
            drawn.public(counts[1], seed=draws[1]),
            drawn.public(counts[2], seed=draws[2]),
        )
    if directory is None:
        raise RecipeError(f"`data` must be the folder with the files of {section.set!r}: --data DIR. Got nothing instead.")
    _check_declared(section, Path(directory), public_data)
    private, public, test = _divided(section, known.find, directory, seed)
    tested = _read(test, kept, lambda into: test.public(into=into))
    _check_objects(tested)  # before the many are read
    asked = _read(public, kept, lambda into: public.public(into=into))
    for name, part in (("public pool", public), ("test part", test)):  # how many are private stays under private/
        if progress is not None:
            progress(f"{name}: {len(part)} scans of {len(set(part.patients))} patients", len(part), len(part))
    return _read(private, kept, lambda into: private.private(into=into, channels=tested.inputs.shape[1])), asked, tested


def declared(section: Any, directory: str | Path | None) -> tuple[str, ...]:
    """Say which people no guarantee covers, because whoever ran this declared them public; folders by their last name."""
    name = "" if directory is None else Path(directory).resolve().name
    if _real(section):
        return (f"The silhouettes of {name!r} count as public: scenes made of them are in this release.",)
    if SETS[section.set].find is None:
        return ()
    covers = "the guarantee does not cover them"
    alone = section.set == NIFTI and directory is not None and not listed(directory)
    own = (f"Every scan of {name!r} counts as a patient of its own: no patients.csv there says whose is whose.",) * alone
    if section.public_directory is None:
        count = section.public + section.test
        said = f"{count} patients of {name!r} were declared public by whoever ran this: {covers}, and some are shown here."
        return (said, *own)
    others = dict.fromkeys(Path(place).resolve().name for key in ELSEWHERE if (place := getattr(section, key)) is not None)
    places = " and ".join(repr(other) for other in others)
    said = f"All patients of {places} were declared public by whoever ran this: {covers}, and images of some are shown here."
    return (said, *own)


def places(section: Any, directory: str | Path | None) -> tuple[Path, ...]:
    """Name the folders that a recipe's scans are read from."""
    given = (directory or section.directory, *(getattr(section, key) for key in ELSEWHERE))
    return () if SETS[section.set].find is None else tuple(Path(place) for place in given if place is not None)


def shows_truth(section: Any, *, public_data: bool = False) -> bool:
    """Tell whether true masks may be shown: of drawn scenes, and of patients of a folder that was declared public."""
    return SETS[section.set].find is None or public_data or bool(section.public_data)


def _check_declared(section: Any, directory: Path, public_data: bool) -> None:
    """Refuse, before anything is read, to publish patients whom nobody called public, or to call private ones public."""
    if section.public_directory is None:
        if not (public_data or section.public_data):
            raise RecipeError(
                "`data` must say who is public: images of the public pool are shown in the release. Name folders of their own "
                "for them (`data.public_directory`, `data.test_directory`), or declare with --public-data (`data.public_data`) "
                f"that the {section.public} + {section.test} patients drawn from this one are public. Got neither instead."
            )
        return
    if public_data:
        raise RecipeError("`public_data` must stay off where `data.public_directory` is given. Got both instead.")
    places = [directory, *(Path(place) for key in ELSEWHERE if (place := getattr(section, key)) is not None)]
    found = [place.resolve() for place in places]
    for number, place in enumerate(found):
        if any(place == other or place in other.parents or other in place.parents for other in found[:number]):
            raise RecipeError(
                "`data.directory`, `public_directory` and `test_directory` must be folders apart. Got one inside another instead."
            )


def _check_objects(test: Public) -> None:
    """Refuse a test set without any object: students would be scored on nothing. A pool's masks may be placeholders."""
    masks = np.asarray(test.targets)
    if not any(mask.any() for mask in masks):
        raise DataError(
            f"`test` must hold an object in one mask at least. Got {len(masks)} empty ones instead. Does `data.labels` name the "
            "object's numbers (without it: all but 0), and does `data.size`, which keeps the middle of a scan, leave it in?"
        )


def shapes(section: Any, public: Public, *, seed: int) -> Public:
    """Give public masks for codecs to be fitted on: drawn ones where there is a pen, else those of the public pool."""
    if SETS[section.set].find is None:
        return scenes(section, None).public(_SHAPES, seed=_seed(seed, "shapes"))
    return public


def _divided(section: Any, find: Callable[..., Volumes], directory: str | Path, seed: int) -> Sequence[Volumes]:
    """Divide people, never the scans of one, by the seed and their own names: private, public and test."""
    private, others = section.private, [section.public, section.test]
    find = functools.partial(find, size=tuple(section.size), labels=section.labels or ())
    if section.public_directory is None:
        return _parts(find(directory), [private, *others], seed, "directory")
    bare = section.test_directory is not None  # the pool needs no masks; where the test is drawn from it, it does
    folders = [find(directory), find(section.public_directory, unlabelled=bare).intact()]
    folders += [find(section.test_directory).intact()] if bare else []
    _check_apart(folders)
    first = _parts(folders[0], [private], seed, "directory")
    if section.test_directory is None:
        return [*first, *_parts(folders[1], others, seed, "public_directory")]
    public, test = ((folders[1], others[:1], "public_directory"), (folders[2], others[1:], "test_directory"))
    return [*first, *(part for found, count, key in (public, test) for part in _parts(found, count, seed, key))]


def _check_apart(folders: Sequence[Volumes]) -> None:
    """Refuse folders that share a file or a person: links and copies have paths of their own."""
    for number, volumes in enumerate(folders):
        files = {path.resolve() for scan in volumes.scans for path in scan.files}
        for other in folders[:number]:
            alike = {path.resolve() for scan in other.scans for path in scan.files} & files
            if alike or set(other.patients) & set(volumes.patients):
                raise DataError(
                    "`data.directory`, `public_directory` and `test_directory` must hold different people. Got scans, or "
                    "patients' names, that two of them share instead. Where different people have one name, patients.csv tells "
                    "them apart."
                )


def _parts(volumes: Volumes, counts: Sequence[int | None], seed: int, key: str) -> list[Volumes]:
    """Draw so many people each; the one count that is open takes everybody who is left.

    Everybody is ordered by a hash of the seed and their own name, and the last parts are drawn first. So who is private says
    nothing about who else is public: another private name moves nobody there.
    """
    everyone = sorted(set(volumes.patients), key=lambda name: hashlib.sha256(f"{seed}|{name}".encode()).digest())
    asked = sum(count or 1 for count in counts)
    if asked > len(everyone):
        raise DataError(f"`data.{key}` must hold {asked} patients or more. Got {len(everyone)} instead.")
    left = len(everyone) - sum(count or 0 for count in counts)
    sizes = [left if count is None else count for count in counts]
    ends = np.cumsum(sizes[::-1])
    parts = [everyone[end - size : end] for end, size in zip(ends, sizes[::-1], strict=True)][::-1]
    return [volumes[np.flatnonzero(np.isin(volumes.patients, part))] for part in parts]


def _read(volumes: Volumes, kept: Path | None, read: Callable[[Path | None], Any]) -> Any:
    """Read scans to memory, or to files that are mapped where they are larger than that."""
    expected = 4 * len(volumes) * math.prod(volumes.size) * len(volumes.scans[0].images)
    if kept is None or expected <= HELD:
        return read(None)
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return read(kept)
    finally:
        shutil.rmtree(kept, ignore_errors=True)  # what is mapped stays without a name, and goes with the process


def _real(section: Any) -> bool:
    return bool(section.silhouettes == "templates")


def _seed(seed: int, part: str) -> int:
    """Give every part scenes of its own."""
    return 10 * seed + _SEEDS[part]
