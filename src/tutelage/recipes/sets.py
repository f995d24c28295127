"""Data sets whose targets are masks: which keys each has, how large a mask is, and how it is read.

A folder's patients are all private unless somebody says otherwise. Images of the public pool are shown in the release, and a
student is scored on the test patients: both come from folders of their own, or whoever runs a recipe declares that patients
of the one folder are public (`public_data`). Without either nothing is read.

People are drawn by counts from a roster, a public list: who is private is a function of the list, the seed and the counts, and
of nobody's presence. Whoever is on the list and not in the folder leaves an empty place.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np

from tutelage.data import dicom, pairs, presets, rosters
from tutelage.data.dataset import Private, Public
from tutelage.data.digits import POOL, PRIVATE
from tutelage.data.mapped import HELD
from tutelage.data.owners import listed
from tutelage.data.reading import Reading
from tutelage.data.scenes import Scenes
from tutelage.data.volumes import Scan, Volumes
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Roster, spelled
from tutelage.recipes import own
from tutelage.recipes.sections import placed, unknown
from tutelage.telling import Progress

Three = tuple[Private, Public, Public]
COUNTS = ("private", "public", "test")  # of people, or of scenes
ELSEWHERE = ("public_directory", "test_directory")
KEYS = ("size", *COUNTS, "target", "noise", "silhouettes", "labels", *ELSEWHERE, "public_data", "roster")  # of [data], for masks
NIFTI = "nifti"  # anybody's volumes, in the folders of the Decathlon; no name of theirs is taken for one of the public sets
PAIRS, DICOM = "pairs", "dicom"
OWN_MASKS = (NIFTI, PAIRS, DICOM)  # formats, not published sets
_VOLUMES = (*COUNTS, "directory", "labels", *ELSEWHERE, "public_data", "roster")
_SPACE = ("spacing", "intensity", "declared")
PUBLISHED = "published"  # the list of people that a published set comes with
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
    published: Callable[[], Roster] | None = None


SETS: Mapping[str, MaskSet] = MappingProxyType(
    {
        "scenes": MaskSet(("size", *COUNTS), ("target", "noise", "silhouettes", "directory"), 2),
        NIFTI: MaskSet(("size",), (*_VOLUMES, *_SPACE), 3, functools.partial(Volumes.decathlon, guess=False)),
        DICOM: MaskSet(("size",), (*_VOLUMES, *_SPACE), 3, dicom.find),
        PAIRS: MaskSet(("size",), (*_VOLUMES, "channels", "declared"), 2, pairs.find),
        "hippocampus": MaskSet(("size",), _VOLUMES, 3, Volumes.decathlon, rosters.hippocampus),
        "brats": MaskSet(("size",), _VOLUMES, 3, Volumes.brats),
    }
)


def check_data(section: Any) -> None:
    """Refuse an unknown set, keys that it has no use for, and a size that is not a mask's."""
    names = ("digits", *presets.names(), *SETS, *own.OWN)
    if section.set not in names:
        raise unknown("data.set", section.set, names)
    if own.has(section):
        own.check(section)
        return
    known = SETS.get(section.set)
    kept = (*known.needed, *known.open) if known is not None else ("roster",) if presets.has_roster(section.set) else ()
    rest = (*KEYS, *own.KEYS, *(() if known is None else ("split",)))
    idle = [key for key in rest if getattr(section, key) is not None and key not in kept]
    if idle:
        raise RecipeError(f"`data.{idle[0]}` must stay open for {section.set!r}. Got a value instead.")
    if section.roster is not None:
        _check_roster(section, known)
    if known is None:
        return
    missing = [key for key in known.needed if getattr(section, key) is None]
    if missing:
        raise RecipeError(f"`data.{missing[0]}` must be given for {section.set!r}. Got nothing instead.")
    square = section.set == "scenes"
    if len(section.size) != known.sides or (square and len({*section.size}) > 1):
        rule = "one whole number" if square else "two whole numbers" if known.sides == 2 else "three whole numbers"
        raise RecipeError(f"`data.size` must be {rule} for {section.set!r}. Got {section.size!r} instead.")
    if known.find is not None:
        _check_folders(section)
        try:
            reading(section)
        except RecipeError as error:
            raise RecipeError(placed(str(error), ("data",))) from None
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
    if section.roster is None and (section.public_directory is None or section.private is not None):
        raise RecipeError(
            "`data.roster` must be given where private people are drawn by counts: a public list of them, so that who is private "
            "depends on nobody else's presence. Got nothing instead."
        )


def _check_roster(section: Any, known: MaskSet | None) -> None:
    """Refuse a published list that there is none of, and any other where people come from a published set of labels."""
    published = section.roster == PUBLISHED
    if published and known is not None and known.published is None:
        raise RecipeError(f"`data.roster` must be a file with one id a line for {section.set!r}. Got {PUBLISHED!r} instead.")
    if known is None and not published:
        raise RecipeError(f"`data.roster` must be {PUBLISHED!r} for {section.set!r}. Got {section.roster!r} instead.")


def published(section: Any) -> Roster | None:
    """Give the published list of people that a set of masks comes with, where a recipe asks for it."""
    known = SETS.get(section.set)
    return known.published() if known is not None and known.published is not None and section.roster == PUBLISHED else None


def reading(section: Any) -> Reading | None:
    """Build how files are read, where they are somebody's own."""
    if section.set not in OWN_MASKS:
        return None
    kind: Any = {PAIRS: "images", DICOM: "dicom"}.get(section.set, "nifti")
    return Reading(kind, section.channels or 1, section.spacing, section.intensity)


def places(section: Any, roster: Roster | None) -> int | None:
    """Give the number of places for private units, as far as it is public and known without reading records."""
    if section.set == "digits":
        return PRIVATE
    if own.has(section):
        return None if roster is None else len(roster)
    if section.set not in SETS:
        return presets.places(section.set, published=section.roster == PUBLISHED)
    if SETS[section.set].find is None or section.private is not None:
        return int(section.private)
    if roster is None:
        return None
    return len(roster) - (0 if section.public_directory is not None else section.public + section.test)


def pool(section: Any) -> int | None:
    """Give the size of the public pool, where that is known without reading a file: a patient may have several scans."""
    if section.set == "digits":
        return POOL
    return int(section.public) if section.set in SETS and SETS[section.set].find is None else None


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
    roster: Roster | None = None,
    progress: Progress | None = None,
) -> Three:
    """Draw or read the three parts of a study; volumes larger than memory are mapped from nameless files in the folder `kept`.

    `public_data` declares that the patients for the pool and the test, drawn from the one folder, are public. `roster` lists the
    people of that folder.
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
    if section.declared is False:
        raise RecipeError(
            "`data.declared` must be true: size, labels, spacing and window of this recipe become public with the model. "
            "Read them, and confirm that they may. Got no confirmation instead."
        )
    (private, listed), public, test = _divided(section, known.find, directory, seed, roster)
    tested = _read(test, kept, lambda into: test.public(into=into))
    _check_objects(tested)  # before the many are read
    asked = _read(public, kept, lambda into: public.public(into=into))
    for name, part in (("public pool", public), ("test part", test)):  # how many are private stays under private/
        if progress is not None:
            progress(f"{name}: {len(part)} scans of {len(set(part.patients))} patients", len(part), len(part))
    wide = tested.inputs.shape[1]
    own = _read(private, kept, lambda into: private.private(into=into, channels=wide, roster=listed))
    return own, asked, tested


def declared(section: Any, directory: str | Path | None) -> tuple[str, ...]:
    """Say which people no guarantee covers, because the user declared them public; folders by their last name."""
    name = "" if directory is None else Path(directory).resolve().name
    if _real(section):
        return (f"The silhouettes of {name!r} count as public: scenes made of them are in this release.",)
    if SETS[section.set].find is None:
        return ()
    covers = "the guarantee does not cover them"
    alone = section.set in (NIFTI, PAIRS) and directory is not None and not listed(directory)
    own = (f"Every scan of {name!r} counts as a patient of its own: no patients.csv there says whose is whose.",) * alone
    if section.public_directory is None:
        count = section.public + section.test
        said = f"{count} patients of {name!r} were declared public by whoever ran this: {covers}, and some are shown here."
        return (said, *own)
    others = dict.fromkeys(Path(place).resolve().name for key in ELSEWHERE if (place := getattr(section, key)) is not None)
    places = " and ".join(repr(other) for other in others)
    said = f"All patients of {places} were declared public by whoever ran this: {covers}, and images of some are shown here."
    return (said, *own)


def folders(section: Any, directory: str | Path | None) -> tuple[Path, ...]:
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


def _divided(
    section: Any, find: Callable[..., Volumes], directory: str | Path, seed: int, roster: Roster | None
) -> tuple[tuple[Volumes, Roster | None], Volumes, Volumes]:
    """Divide people, never the scans of one: private with their roster, public and test."""
    private, others = section.private, [section.public, section.test]
    how = {} if reading(section) is None else {"reading": reading(section)}
    find = functools.partial(find, size=tuple(section.size), labels=section.labels or (), **how)
    if section.public_directory is None:
        assert roster is not None  # `check_data` refuses counts without one
        own, *rest = _parts(roster.ids.tolist(), [private, *others], seed, "roster")
        everyone = find(directory)
        public, test = (_chosen(everyone, part, "directory") for part in rest)
        found, roster = _listed(everyone, roster, own)
        return (_apart(found, [public, test]), roster), public, test
    bare = section.test_directory is not None  # the pool needs no masks; where the test is drawn from it, it does
    folders = [find(directory), find(section.public_directory, unlabelled=bare).intact()]
    folders += [find(section.test_directory).intact()] if bare else []
    _check_apart(directory, folders[1:])
    everyone = _apart(folders[0], folders[1:])
    own = [] if roster is None else _parts(roster.ids.tolist(), [private], seed, "roster")[0]
    first = (everyone, None) if roster is None else _listed(everyone, roster, own)
    if section.test_directory is None:
        key = "public_directory"
        public, test = (_chosen(folders[1], part, key) for part in _parts(_people(folders[1]), others, seed, key))
        return first, public, test
    public, test = (
        _chosen(found, _parts(_people(found), [count], seed, key)[0], key)
        for found, count, key in zip(folders[1:], others, ELSEWHERE, strict=True)
    )
    return first, public, test


def _people(volumes: Volumes) -> list[str]:
    """List the people of a public folder."""
    return sorted(set(spelled(volumes.patients).tolist()))


def _listed(volumes: Volumes, roster: Roster, part: Sequence[str]) -> tuple[Volumes, Roster]:
    """Choose the scans of private people, and those of the roster who are private, in its order."""
    own = set(part)
    found = np.flatnonzero(np.isin(spelled(volumes.patients), part))  # maybe none: nobody private decides whether we go on
    return volumes[found], Roster.of([name for name in roster.ids.tolist() if name in own])


def _chosen(volumes: Volumes, part: Sequence[str], key: str) -> Volumes:
    found = np.flatnonzero(np.isin(spelled(volumes.patients), list(part)))
    if not len(found):
        hint = "are ids spelled as in the roster?"
        raise DataError(f"`data.{key}` must hold scans of every public part. Got none of one instead: {hint}")
    return volumes[found]


def _check_apart(directory: Path | str, folders: Sequence[Volumes]) -> None:
    """Refuse public folders that share a file or a person, or lead into the private one. No private scan has a say in it."""
    home = Path(os.path.realpath(directory))
    if any(home in Path(path).parents for volumes in folders for path in _files(volumes.scans)):
        raise DataError(
            "`public_directory` and `test_directory` must not lead into `data.directory`. Got links there instead: what they "
            "hold is shown in the release."
        )
    for number, volumes in enumerate(folders):
        for other in folders[:number]:
            if _files(other.scans) & _files(volumes.scans) or set(_people(other)) & set(_people(volumes)):
                raise DataError(
                    "`public_directory` and `test_directory` must hold different people. Got scans, or patients' names, that "
                    "both have instead. Where different people have one name, patients.csv tells them apart."
                )


def _apart(volumes: Volumes, public: Sequence[Volumes]) -> Volumes:
    """Leave out private scans of a file or a patient's name that is public. Each is judged by itself: none stops a run."""
    files = _files([scan for other in public for scan in other.scans])
    people = {name for other in public for name in _people(other)}
    names = volumes.patients.tolist()
    kept = [name not in people and not files & _files([scan]) for scan, name in zip(volumes.scans, names, strict=True)]
    gone = [scan.number for scan, stays in zip(volumes.scans, kept, strict=True) if not stays]
    chosen = volumes[np.flatnonzero(kept)]
    if not gone:
        return chosen
    note = f"left out, of a file or a patient's name that is public: scans {', '.join(map(str, gone))}"
    return replace(chosen, notes=(*chosen.notes, note))


def _files(scans: Sequence[Scan]) -> set[str]:
    """Name files where they are, behind all links."""
    return {os.path.realpath(path) for scan in scans for path in scan.files}


def _parts(people: Sequence[str], counts: Sequence[int | None], seed: int, key: str) -> list[list[str]]:
    """Draw so many people each from a public list; the one count that is open takes everybody who is left.

    Everybody is ordered by a hash of the seed and their own name, and the last parts are drawn first.
    """
    everyone = sorted(people, key=lambda name: hashlib.sha256(f"{seed}|{name}".encode("utf-8", "surrogatepass")).digest())
    asked = sum(count or 1 for count in counts)
    if asked > len(everyone):
        raise DataError(f"`data.{key}` must hold {asked} patients or more. Got {len(everyone)} instead.")
    left = len(everyone) - sum(count or 0 for count in counts)
    sizes = [left if count is None else count for count in counts]
    ends = np.cumsum(sizes[::-1])
    return [everyone[end - size : end] for end, size in zip(ends, sizes[::-1], strict=True)][::-1]


def _read(volumes: Volumes, kept: Path | None, read: Callable[[Path | None], Any]) -> Any:
    """Read scans to memory, or to files that are mapped where they are larger than that."""
    expected = 4 * math.prod(volumes.size) * sum(len(scan.images) for scan in volumes.scans)  # there may be none
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
