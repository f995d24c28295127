"""Image folders: one folder a class, and whose image it is from a folder below or from the file's name.

    clinic/benign/anna_01.png         unit "anna" (what stands before the first "_"); where a record is a unit, "anna_01.png"
    clinic/benign/anna/01.png         unit "anna" (the folder); where a record is a unit, "anna/01.png"

A unit's id never holds its class: a file that moves from benign/ to malignant/ keeps its unit, and one name under two classes
is one unit with two records. Classes and size of private images are declared, not discovered, and a private file that cannot be
read is left out, so that no file decides whether a run ends well.
Messages number files instead of naming them: a file's name may be a patient's.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tutelage.data import owners, tree
from tutelage.data.dataset import Private, Public, UnitName
from tutelage.data.pixels import scale
from tutelage.data.records import Records
from tutelage.data.schema import ImageSchema
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Roster

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".pgm", ".ppm", ".webp")


def private_from_folder(
    directory: Path | str,
    *,
    classes: Sequence[str],
    size: tuple[int, int],
    unit: UnitName = "record",
    channels: int = 3,
    roster: Roster | None = None,
) -> Private:
    """Read a folder of private images, each resized to `size`, (height, width); `classes` names its folders, empty or not.

    A `roster` lists the ids that may take part, and is public; without one units are divided by a hash of their ids.
    """
    records = read_folder(directory, private=unit, classes=classes, channels=channels, size=size)
    name = Path(directory).resolve().name
    made = Private.of(records.inputs, records.targets, units=records.units, unit=unit, source=name, roster=roster)
    return replace(made, schema=schema_of(channels, size, classes))


def public_from_folder(
    directory: Path | str,
    *,
    classes: Sequence[str] | None = None,
    channels: int = 3,
    size: tuple[int, int] | None = None,
    part: Any = None,
) -> Public:
    """Read a folder of public images; folders that links lead to are left out: they may be anybody's.

    A folder without a folder per class has no labels: a pool needs none. `part` chooses images by whose they are, as the files'
    names or patients.csv say.
    """
    root = Path(directory)
    bare = classes is not None and root.is_dir() and not any((root / label).is_dir() for label in classes)
    named = (".",) if bare else classes
    unit: UnitName | None = None if part is None else "patient"
    records = read_folder(root, whose=unit, links=False, classes=named, channels=channels, size=size)
    if part is not None:
        records = records[np.flatnonzero(part(np.asarray(records.units)))]
        if not len(records):
            raise DataError("`test_share` must leave images for the pool and for the test. Got none of one instead.")
    made = Public.of(records.inputs, None if bare else records.targets, source=root.resolve().name)
    if classes is None or size is None:
        return made
    return replace(made, schema=schema_of(channels, size, classes))


def schema_of(channels: int, size: tuple[int, int], classes: Sequence[str]) -> ImageSchema | None:
    """Say what a raw image looks like; one class alone has no name that anybody needs."""
    return ImageSchema(channels, tuple(size), tuple(classes)) if len(classes) > 1 else None


def check_apart(*places: Path) -> None:
    """Refuse public folders inside the private one, or around it: what they hold is shown in the release."""
    own, *others = (place.resolve() for place in places)
    if any(own == other or own in other.parents or other in own.parents for other in others):
        raise RecipeError(
            "`public_directory` and `test_directory` must lie apart from `directory`. Got one inside another instead."
        )


def read_folder(
    directory: Path | str,
    *,
    private: UnitName | None = None,
    whose: UnitName | None = None,
    links: bool = True,
    classes: Sequence[str] | None = None,
    channels: int = 3,
    size: tuple[int, int] | None = None,
) -> Records:
    """Read every image, sorted by path: (records, channels, height, width); `size` is (height, width) to resize to.

    With `whose` records of a public folder have ids, too. A list patients.csv (name,patient; a name is that of an image inside
    the folder of its class, with or without its ending) goes before what a file's name says.

    With `private` every record has the id of its unit. An image that cannot be read is then a blank without an id, in no shard; a
    class may have no folder, and a link to a place inside this folder is no second record.
    """
    root = Path(directory)
    if not root.is_dir():
        raise DataError(f"`directory` must be a folder with one folder per class. Got {str(root)!r} instead.")
    if channels not in (1, 3):
        raise RecipeError(f"`channels` must be 1 (grey) or 3 (RGB). Got {channels!r} instead.")
    sides = size if isinstance(size, (tuple, list)) else ()
    if size is not None and not (len(sides) == 2 and all(isinstance(side, int) and side >= 1 for side in sides)):
        raise RecipeError(f"`size` must be (height, width), two whole numbers ≥ 1. Got {size!r} instead.")
    found = sorted(
        p.name for p in root.iterdir() if os.path.isdir(p) and not p.name.startswith(".")
    )  # hidden ones are some tool's
    labels = tuple(classes) if classes is not None else tuple(found)
    files = [(path, target) for target, label in enumerate(labels) for path in _images(root / label, links)]
    if private is None:
        _check_folders(root, labels, [path for path, _ in files])
    else:
        files = [(path, target) for path, target in files if not _inside_link(root, path)]
    pillow = _pillow()
    pixels = [_read(pillow, path, number, channels, size, private is not None) for number, (path, _) in enumerate(files)]
    shapes = {(channels, *size)} if size is not None else {image.shape for image in pixels if image is not None}
    if len(shapes) != 1:
        raise DataError(f"`size` must be given where images differ in size. Got {len(shapes)} sizes instead.")
    blank = np.zeros(shapes.pop(), np.uint8)
    inputs = scale(np.stack([blank if image is None else image for image in pixels]) if pixels else blank[None][:0])
    targets, unit = np.array([target for _, target in files], np.int64), private or whose
    if unit is None:
        return Records(inputs, targets)
    listed = owners.given(root)
    named = [_people(path.relative_to(root / labels[target]), unit, listed) for path, target in files]
    named = [("",) if image is None else people for people, image in zip(named, pixels, strict=True)]
    rows = np.repeat(np.arange(len(files)), [len(people) for people in named])  # an image of two people is a record of both
    units = np.array([person for people in named for person in people], dtype=np.str_)
    return Records(inputs if len(rows) == len(inputs) else inputs[rows], targets[rows], units)


def _people(inside: Path, unit: UnitName, owners_of: Mapping[str, tuple[str, ...]] | None) -> tuple[str, ...]:
    """Say whose image it is: by the folder's own list, where an image that is not on it is nobody's, or by its name."""
    if owners_of is None or unit == "record":
        return (_unit(inside, unit),)
    names = (inside.as_posix(), inside.with_suffix("").as_posix(), inside.name, inside.stem)
    return next((owners_of[name] for name in names if name in owners_of), ("",))


def _check_folders(root: Path, labels: Sequence[str], files: Sequence[Path]) -> None:
    """Refuse a public folder without a class, without an image, or with one that two ways lead to."""
    absent = [label for label in labels if not (root / label).is_dir()]
    if not labels or absent:
        raise DataError(f"`{root}` must hold one folder per class. Got no folder {', '.join(absent) or 'at all'} instead.")
    if not files:
        raise DataError(f"`{root}` must hold images ({' '.join(ENDINGS)}). Got none instead.")
    if twice := len(files) - len({path.resolve() for path in files}):  # as two people's, or of two classes
        raise DataError(f"Every image must be in the folder once. Got {twice} that links lead to a second time instead.")


def _inside_link(root: Path, path: Path) -> bool:
    """Tell a link that ends inside the folder that it is in. This is a function of the path alone, not of who else is there."""
    real, base = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    return base in real.parents and real != base / path.relative_to(root)


def _images(folder: Path, links: bool) -> list[Path]:
    return [path for path in tree.files(folder, links=links) if path.suffix.lower() in ENDINGS]


def _unit(inside: Path, unit: UnitName) -> str:
    """Give the id of a file's unit by its way inside the folder of its class, of which nothing is in it."""
    if unit == "record":
        return inside.as_posix()
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem.partition("_")[0] or inside.stem


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        raise DataError(
            "`Pillow` must be installed to read image files (pip install pillow). Got no such package instead."
        ) from None


def pixels(path: Path, *, channels: int, size: tuple[int, int]) -> tuple[np.ndarray, tuple[int, int]]:
    """Read one image as a folder's are: bytes (channels, *size), and the size (height, width) that it had."""
    pillow = _pillow()
    found = _read(pillow, path, 0, channels, size, True)
    if found is None:
        raise DataError(f"Every image must be readable and have 8 bits a channel. Got another for {path.name!r} instead.")
    with pillow.open(path) as image:
        wide, high = image.size
    return found, (high, wide)


def _read(pillow: Any, path: Path, number: int, channels: int, size: tuple[int, int] | None, private: bool) -> np.ndarray | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(path) as image:
                deep = image.mode[0] in "IF"  # 16 and 32 bits a pixel: Pillow would cut them off at 255 without a word
                converted = image.convert("L" if channels == 1 else "RGB")
                if size is not None:
                    converted = converted.resize((size[1], size[0]), pillow.Resampling.BILINEAR)
                pixels = np.asarray(converted)
    except Exception as error:  # Pillow's plug-ins raise many types, most of which name the file
        if private:
            return None
        raise DataError(
            f"Every image must be readable. Got {type(error).__name__} for image {number} of the sorted list instead."
        ) from None
    if deep and private:
        return None
    if deep:
        raise DataError(f"Every image must have 8 bits a channel. Got more for image {number} of the sorted list instead.")
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
