"""Images as files: one PNG each, one archive, a table of labels, and a sheet that shows some of every class."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]
_EDGE = 2  # pixels between two images of a sheet


def write_pictures(folder: Path, images: Array, labels: Array, names: Sequence[str]) -> list[Path]:
    """Write images (n, channels, height, width) in 0…1 of classes (n,) into a new folder; give the files that list them all."""
    if folder.exists() and any(folder.iterdir()):
        raise RecipeError(f"`out` must be a new or an empty folder. Got {folder.name!r}, which holds files, instead.")
    place = folder / "images"
    place.mkdir(parents=True, exist_ok=True)
    digits, files = len(str(max(1, len(images) - 1))), []
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        file = place / f"{number:0{digits}d}.png"
        _picture(image).save(file)
        files.append((f"images/{file.name}", int(label), names[int(label)]))
    table, archive, sheet = folder / "labels.csv", folder / "images.npz", folder / "sheet.png"
    with table.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("file", "label", "class"), *files])
    np.savez_compressed(archive, images=bytes_of(images), labels=np.asarray(labels, dtype=np.int64), classes=np.asarray(names))
    Image.fromarray(sheet_of(images, labels)).save(sheet)
    return [table, archive, sheet]


def bytes_of(images: Array) -> Array:
    """Round images in 0…1 to bytes."""
    return np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)


def sheet_of(images: Array, labels: Array, most: int = 12) -> Array:
    """Lay out at most so many images of every class, one class a row: (height, width, 3) bytes."""
    rows = [bytes_of(images[labels == label][:most]) for label in np.unique(labels)]
    columns, (height, width) = max(map(len, rows)), images.shape[2:]
    sheet = np.full((len(rows) * (height + _EDGE) + _EDGE, columns * (width + _EDGE) + _EDGE, 3), 255, dtype=np.uint8)
    for down, row in enumerate(rows):
        for right, image in enumerate(row):
            top, left = _EDGE + down * (height + _EDGE), _EDGE + right * (width + _EDGE)
            sheet[top : top + height, left : left + width] = np.moveaxis(image, 0, 2)  # one channel fills all three
    return sheet


def _picture(image: Array) -> Image.Image:
    pixels = bytes_of(image)
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, 2))
