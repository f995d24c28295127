"""What lies in a folder or a file, told from names and a few bytes: which kind of data, and which parts of it are public."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from tutelage.data.tables import ENDINGS as TABLES
from tutelage.privacy.errors import DataError

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".pgm", ".ppm", ".webp")
_PRIVATE = ("private", "train", "clinic", "own")
_PUBLIC = ("public", "pool", "unlabel", "val")
_TEST = ("test", "holdout", "held")
KINDS = ("table", "arrays", "nifti", "dicom", "pairs", "images")


@final
@dataclass(frozen=True)
class Found:
    """Name the kind of data and where its parts are; a part that is not there is None."""

    kind: str
    private: Path
    public: Path | None = None
    test: Path | None = None


def look(place: Path) -> Found:
    """Tell what a file or a folder holds."""
    if not place.exists():
        raise DataError(f"`place` must be a file or a folder. Got {str(place)!r}, which does not exist, instead.")
    if place.is_file():
        return _beside(place)
    files = [path for path in _listed(place) if path.is_file() and _kind(path)]
    folders = [path for path in _listed(place) if path.is_dir()]
    own = kind_of(place)
    if own is not None:
        return Found(own, place)
    if files:
        return _parts(files, str(_kind(_first(files))))
    kinds = {path: kind for path in folders if (kind := kind_of(path)) is not None}
    if kinds and all(_role(path) for path in kinds):
        return _parts(list(kinds), kinds[_first(list(kinds))])
    raise DataError(
        f"`place` must hold a table (.csv, .parquet), arrays (.npz), class folders of images, images/ and masks/, imagesTr/ and "
        f"labelsTr/, or DICOM series; or private/, public/ and test/ with one of these. Got {str(place)!r} instead."
    )


def kind_of(folder: Path) -> str | None:
    """Tell what one folder holds, if it is all of one kind."""
    inside = {path.name for path in _listed(folder)}
    if "imagesTr" in inside:
        return "nifti"
    if {"images", "masks"} <= inside and _holds(folder / "images", IMAGES):
        return "pairs"
    if "inputs.npy" in inside:
        return "arrays"
    below = [path for path in _listed(folder) if path.is_dir()]
    if any(_has_dicom(home) for home in (folder / "images", folder)):
        return "dicom"
    if below and all(_role(path) is None for path in below) and sum(_holds(path, IMAGES) for path in below) >= 2:
        return "images"
    return "images" if _role(folder) and _holds(folder, IMAGES) else None


def _beside(file: Path) -> Found:
    kind = _kind(file)
    if kind is None:
        raise DataError(
            f"`place` must be a table (.csv, .tsv, .parquet) or arrays (.npz). Got {file.suffix or 'no ending'!r} instead."
        )
    if kind == "arrays" and _is_medmnist(file):
        return Found(kind, file, file, file)
    return Found(kind, file)


def _parts(paths: list[Path], kind: str) -> Found:
    """Give each part its path, by the names; what is left over is private."""
    roles = {path: _role(path) for path in paths}
    named = {role: path for path, role in reversed(list(roles.items())) if role}
    rest = [path for path, role in roles.items() if role is None]
    own = named.get("private") or (rest[0] if rest else paths[0])
    found = Found(kind, own, *(path if (path := named.get(role)) != own else None for role in ("public", "test")))
    if found.public is None and kind == "arrays" and own.is_file():
        return _beside(own)
    return found if found.public or not found.test else replace(found, public=None)


def _first(paths: list[Path]) -> Path:
    return next((path for path in paths if _role(path) == "private"), paths[0])


def _role(path: Path) -> str | None:
    name = path.stem.lower()
    roles = (("test", _TEST), ("public", _PUBLIC), ("private", _PRIVATE))
    return next((role for role, words in roles if any(word in name for word in words)), None)


def _kind(file: Path) -> str | None:
    ending = file.suffix.lower()
    if ending == ".npz":
        return "arrays"
    return "table" if ending in TABLES and file.name not in ("patients.csv", "roster.txt", "README.txt") else None


def _listed(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _holds(folder: Path, endings: tuple[str, ...]) -> bool:
    """Tell whether files with such an ending are in a folder, or one level below it."""
    near = _listed(folder)
    below = [path for inner in near[:20] if inner.is_dir() for path in _listed(inner)]
    return any(path.suffix.lower() in endings for path in (*near, *below))


def _has_dicom(folder: Path) -> bool:
    """Tell whether folders right here hold DICOM files."""
    cases = [path for path in _listed(folder) if path.is_dir()] if folder.is_dir() else []
    for path in [path for case in cases[:20] for path in _listed(case)[:5]]:
        if path.is_file():
            with path.open("rb") as stream:
                stream.seek(128)
                if stream.read(4) == b"DICM":
                    return True
    return False


def _is_medmnist(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return {"train_images.npy", "val_images.npy", "test_images.npy"} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False
