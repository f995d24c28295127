"""The papers' studies: which rows teach, which the student may see, and which are for testing, with their hashes."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import final

import numpy as np

from tutelage.data import catalogue, overlap
from tutelage.data.adult import read_adult
from tutelage.data.cifar import read_cifar
from tutelage.data.dataset import Private, Public, UnitName
from tutelage.data.diabetes import Target, read_diabetes, split_by_patient
from tutelage.data.downloads import Progress
from tutelage.data.idx import read_digits
from tutelage.data.medmnist import read_medmnist
from tutelage.data.records import Records, check_classes
from tutelage.data.sources import Located, Source, locate
from tutelage.data.svhn import read_svhn
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Roster

_Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # of private, public and test


@final
@dataclass(frozen=True, eq=False)
class Study:
    """Hold one data set, divided.

    `hashes` has the sha256 of every file read and, as "split", of the rows each part got. They tell two runs on these
    published files apart. A hash of a file that is truly private would be a release, so nothing computes one elsewhere.
    """

    private: Private
    public: Public  # the student's pool; its targets are for evaluation
    test: Public
    classes: int
    name: str
    split: str
    hashes: Mapping[str, str]


@final
@dataclass(frozen=True)
class _Parts:
    """Hold the rows of each part, as the data set's own publisher divides them."""

    train: Records
    test: Records
    pool: Records | None = None  # where the publisher has a third part
    rows: tuple[np.ndarray, np.ndarray] | None = None  # rows of the file behind train and test, where we divided it


@final
@dataclass(frozen=True)
class _Preset:
    source: Source
    read: Callable[[Located], _Parts]
    classes: int
    splits: Mapping[str, int]  # length of the student's pool at the head of the test set; 0: the third part
    unit: UnitName = "record"
    places: int | None = None  # how many units the private part has, as published
    roster: str = ""  # the sha256 of the published list of ids; without ids the rows are the roster


def _digits(found: Located) -> _Parts:
    train_images, train_labels, test_images, test_labels = found.paths.values()
    return _Parts(read_digits(train_images, train_labels), read_digits(test_images, test_labels))


def _svhn(found: Located) -> _Parts:
    *train, test = found.paths.values()
    return _Parts(read_svhn(*train), read_svhn(test))


def _cifar(classes: int) -> Callable[[Located], _Parts]:
    def read(found: Located) -> _Parts:
        *train, test = found.paths.values()
        return _Parts(read_cifar(train, classes=classes), read_cifar([test], classes=classes))

    return read


def _adult(found: Located) -> _Parts:
    train, test = found.paths.values()
    return _Parts(read_adult(train), read_adult(test))


def _diabetes(target: Target) -> Callable[[Located], _Parts]:
    def read(found: Located) -> _Parts:
        (path,) = found.paths.values()
        records = read_diabetes(path, target=target)
        train, test = split_by_patient(np.asarray(records.units))
        return _Parts(records[train], records[test], rows=(train, test))

    return read


def _medmnist(found: Located) -> _Parts:
    (path,) = found.paths.values()
    return _Parts(read_medmnist(path, "train"), read_medmnist(path, "test"), read_medmnist(path, "val"))


_IMAGES = MappingProxyType({"half": 5000, "votes": 9000})
_SVHN = MappingProxyType({"paper": 1000, "half": 5000, "votes": 10000})
_TABLES = MappingProxyType({"paper": 500, "half": 5000})

# The private patients of the published Diabetes-130, in the order of their numbers. It stands here and not in the file: the list
# is a public constant, and a file with other patients has none.
_PATIENTS = "3575177219e2d56a93061bf47bab44402798e4d7b2fe09be8a57e732b80439f7"

# "paper": the table of 001, test[:1000] for images and test[:500] for tables. "votes": what Papernot et al. 2017 gave
# their students, MNIST test[:9000] (which their vote file covers) and SVHN test[:10000]. "half": test[:5000], because
# 1,000 test images leave ± 0.6 points of doubt. "official": a validation set that its publisher set apart.
# The first is the default.
_PRESETS: Mapping[str, _Preset] = MappingProxyType(
    {
        "mnist": _Preset(catalogue.MNIST, _digits, 10, MappingProxyType({"paper": 1000, **_IMAGES}), places=60_000),
        "fashion-mnist": _Preset(catalogue.FASHION_MNIST, _digits, 10, _IMAGES, places=60_000),
        "svhn": _Preset(catalogue.SVHN, _svhn, 10, _SVHN, places=73_257),
        # With the extra images, as in the papers: 604,388 private records, 7.4 GB as float32.
        "svhn-extra": _Preset(catalogue.SVHN_EXTRA, _svhn, 10, _SVHN, places=604_388),
        "cifar-10": _Preset(catalogue.CIFAR_10, _cifar(10), 10, _IMAGES, places=50_000),
        "cifar-100": _Preset(catalogue.CIFAR_100, _cifar(100), 100, _IMAGES, places=50_000),
        "adult": _Preset(catalogue.ADULT, _adult, 2, _TABLES, places=32_561),
        "diabetes": _Preset(catalogue.DIABETES, _diabetes("within-30-days"), 2, _TABLES, "patient", 57_250, _PATIENTS),
        "diabetes-at-all": _Preset(catalogue.DIABETES, _diabetes("at-all"), 2, _TABLES, "patient", 57_250, _PATIENTS),
        **{
            name: _Preset(source, _medmnist, classes, MappingProxyType({"official": 0}))
            for name, (source, classes) in catalogue.MEDMNIST.items()
        },
    }
)


def names() -> tuple[str, ...]:
    """List the studies that can be loaded."""
    return tuple(_PRESETS)


def splits(name: str) -> tuple[str, ...]:
    """List the splits of a study, its default first."""
    return tuple(_preset(name).splits)


def classes(name: str) -> int:
    """Give the number of classes of a study, without reading it."""
    return _preset(name).classes


def has_roster(name: str) -> bool:
    """Tell whether the people of a study are published as a list, which may be its roster."""
    return name in _PRESETS and bool(_PRESETS[name].roster)


def places(name: str, *, published: bool = False) -> int | None:
    """Give the number of places on the roster of a study without reading it; None without a roster, or where it is not known."""
    preset = _preset(name)
    return preset.places if published or not preset.roster else None


def load(
    name: str,
    directory: Path | str,
    *,
    split: str | None = None,
    download: bool = True,
    verify: bool = True,
    published: bool = False,
    progress: Progress | None = None,
) -> Study:
    """Read a public data set as a study: private training set, the student's public pool, and the rest for testing.

    Files are looked for below `directory`, fetched from their public address where `download` allows and the network
    does, and compared with their published checksums unless `verify` is off. `published` takes the published list of its people
    as the roster; without it people are divided by a hash of their ids. Arrays without ids have their rows as the roster.
    Without `verify` files must be public or checked already: a reader refuses what is odd in one record.
    """
    preset = _preset(name)
    if published and not (preset.roster and verify):
        raise RecipeError("`published` must stay off but for published files with ids of people. Got it instead.")
    split = next(iter(preset.splits)) if split is None else split
    if split not in preset.splits:
        raise RecipeError(_unknown("split", split, tuple(preset.splits), f" for {name!r}"))
    found = locate(preset.source, directory, download=download, verify=verify, progress=progress)
    parts = preset.read(found)
    train_rows, test_rows = parts.rows or (np.arange(len(parts.train)), np.arange(len(parts.test)))
    if parts.pool is not None:
        public, test = parts.pool, parts.test
        rows = (train_rows, np.arange(len(public)), test_rows)
    else:
        head, tail = cut(parts.test, preset.splits[split])
        public, test = parts.test[head], parts.test[tail]
        rows = (train_rows, test_rows[head], test_rows[tail])
    if verify:  # of other files no private record may change the pool: what it shares with them is refused by the run
        public, test, rows = _apart(parts.train, public, test, rows)
    for part in (public, test):
        check_classes(preset.source.name, part.targets, preset.classes)
    train, source = parts.train, f"{name}/{split}"
    roster = _listed(train, preset.roster) if published else None
    private = Private.of(train.inputs, train.targets, units=train.units, unit=preset.unit, source=source, roster=roster)
    return Study(
        private=private.labelled(preset.classes) if private.targets.ndim == 1 else private,
        public=Public.of(public.inputs, public.targets, source=source),
        test=Public.of(test.inputs, test.targets, source=source),
        classes=preset.classes,
        name=name,
        split=split,
        hashes=MappingProxyType({**found.hashes, "split": _digest(name, split, rows)}),
    )


def _apart(train: Records, public: Records, test: Records, rows: _Rows) -> tuple[Records, Records, _Rows]:
    """Leave out public copies of private records: some published sets overlap by themselves, and that is public."""
    private, *places = rows
    parts, left = [], []
    for part, place in zip((public, test), places, strict=True):
        kept = np.setdiff1d(np.arange(len(part)), overlap.copies(part.inputs, train.inputs))
        whole = len(kept) == len(part)  # as it is, nothing is copied
        parts.append(part if whole else part[kept])
        left.append(place if whole else place[kept])
    return parts[0], parts[1], (private, left[0], left[1])


def cut(test: Records, pool: int) -> tuple[slice, slice | np.ndarray]:
    """Divide a test set into its first `pool` rows and the rest, less the rows of units that are among the first."""
    if len(test) <= pool:
        raise DataError(f"The test set must have more than {pool} records for this split. Got {len(test)} instead.")
    head = slice(0, pool)
    if test.units is None:
        return head, slice(pool, len(test))
    # A patient whom the student has met says little about patients it has not.
    return head, pool + np.flatnonzero(~np.isin(test.units[pool:], test.units[head]))


def _listed(train: Records, sha256: str) -> Roster:
    """Take the published list of people out of the published file, and no other list: the constant above says which it is."""
    roster = Roster.of(np.unique(np.asarray(train.units)))
    if roster.sha256 != sha256:
        raise DataError("`published` must come with the published file. Got another list of people instead.")
    return roster


def _preset(name: str) -> _Preset:
    if name not in _PRESETS:
        raise RecipeError(_unknown("name", name, tuple(_PRESETS), ""))
    return _PRESETS[name]


def _unknown(what: str, value: object, known: tuple[str, ...], where: str) -> str:
    near = difflib.get_close_matches(str(value).lower().replace("_", "-"), known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"`{what}` must be one of {', '.join(map(repr, known))}{where}. Got {value!r} instead.{hint}"


def _digest(name: str, split: str, rows: tuple[np.ndarray, ...]) -> str:
    state = hashlib.sha256(f"{name}/{split}".encode())
    for part in rows:  # private, public, test
        state.update(f"/{len(part)}/".encode())
        state.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
    return state.hexdigest()
