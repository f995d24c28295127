"""Images with masks of the same names: images/NAME.png (or .jpg, .tif) and masks/NAME.png. One number of a mask is the object.

    clinic/images/anna_01.png      clinic/masks/anna_01.png      clinic/patients.csv (name,patient)

Without patients.csv every image counts as a patient of its own. A mask may have other endings than its image, or end in _mask or
_seg. Grey levels count as numbers: without `labels` all but 0 are the object (255, too).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.data import folders, owners
from tutelage.data.dataset import Private, Public
from tutelage.data.pixels import scale
from tutelage.data.reading import Reading
from tutelage.data.volumes import Scan, Volumes, numbered, sized, unpaired
from tutelage.data.voxels import MASK, clean_mask
from tutelage.privacy.errors import DataError
from tutelage.privacy.units import Roster

Array = npt.NDArray[Any]
PARTS = ("images", "masks")
_MARKS = ("_mask", "_seg", "_segmentation", "-mask")


def find(
    directory: Path | str,
    *,
    size: Sequence[int],
    labels: Sequence[int] = (),
    unlabelled: bool = False,
    reading: Reading | None = None,
    guess: bool = False,
) -> Volumes:
    """Find the pairs of a folder. With `unlabelled` masks/ may be missing as a whole."""
    root = Path(directory)
    if not (root / "images").is_dir():
        raise DataError(f"`directory` must hold images/ and masks/. Got {root.name!r} without images/ instead.")
    images, masks = _named(root / "images"), _named(root / "masks")
    bare = unlabelled and bool(images) and not (root / "masks").exists()
    names = sorted(images if bare else set(images) & set(masks))
    whose = owners.patients(root, names, guess=guess)
    faults = owners.faults(root, names)
    if not bare and (set(images) ^ set(masks) or not names):
        faults = (unpaired(images, masks, PARTS), *faults)
    scans = tuple(
        Scan((images[name],), None if bare else masks[name], patient, number)
        for number, name in enumerate(names, start=1)
        for patient in whose.get(name, ())
    )
    return Volumes(scans, sized(size, 2), tuple(labels), root.resolve().name, faults, reading=reading or Reading("images"))


def _named(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.suffix.lower() in folders.ENDINGS and not path.name.startswith("."):
            stem = next((path.stem.removesuffix(mark) for mark in _MARKS if path.stem.endswith(mark)), path.stem)
            found.setdefault(stem if folder.name == "masks" else path.stem, path)
    return found


def load(scan: Scan, volumes: Volumes) -> tuple[Array, Array | None, list[str]]:
    """Read one pair at the declared size: (channels, *size) in [0, 1], the object, and what had to be cleaned."""
    which, size = numbered(scan.number, volumes.source), (volumes.size[0], volumes.size[1])
    try:
        pixels, own = folders.pixels(scan.images[0], channels=volumes.reading.channels, size=size)
        if scan.mask is None:
            return scale(pixels), None, []
        mask, shape = _levels(scan.mask, size)
    except DataError:
        raise DataError(f"Every image must be readable and have 8 bits a channel. Got another in {which} instead.") from None
    if shape != own:
        raise DataError(f"Every mask must have its image's size. Got another for {which} instead.")
    held, odd = clean_mask(mask, volumes.labels)
    return scale(pixels), held, [MASK] * odd


def _levels(path: Path, size: tuple[int, int]) -> tuple[Array, tuple[int, int]]:
    """Read the numbers of a mask, the nearest ones at the declared size; numbers of a palette count as they are."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            wide, high = image.size
            plain = image if image.mode in ("P", "L", "1", "I", "I;16") else image.convert("L")
            chosen = plain.resize((size[1], size[0]), Image.Resampling.NEAREST)
            return np.asarray(chosen).astype(np.float32), (high, wide)
    except Exception as error:  # Pillow's plug-ins raise many types, most of which name the file
        raise DataError(f"Every mask must be readable. Got {type(error).__name__} instead.") from None


def private_from_pairs(
    directory: Path | str, *, size: Sequence[int], labels: Sequence[int] = (), channels: int = 1, roster: Roster | None = None
) -> Private:
    """Read private images with masks; a patient is a unit."""
    found = find(directory, size=size, labels=labels, reading=Reading("images", channels))
    return found.private(channels=channels, roster=roster)


def public_from_pairs(directory: Path | str, *, size: Sequence[int], labels: Sequence[int] = (), channels: int = 1) -> Public:
    """Read public images, with masks or without. Anything odd is refused."""
    return find(directory, size=size, labels=labels, unlabelled=True, reading=Reading("images", channels)).public()
