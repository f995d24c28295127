"""Image files in, names of classes or masks out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tutelage.data import folders, tree
from tutelage.data.pixels import scale
from tutelage.data.schema import ImageSchema
from tutelage.privacy.errors import DataError

if TYPE_CHECKING:
    from tutelage.deployment.serving import Predictor

Array = npt.NDArray[Any]


def found(files: Sequence[Path]) -> list[Path]:
    """List image files, also those inside of folders."""
    listed = [path for file in files for path in (tree.files(file) if file.is_dir() else [file])]
    chosen = [path for path in listed if path.suffix.lower() in folders.ENDINGS]
    if not chosen:
        raise DataError("`files` must be images, or folders of them. Got none instead.")
    return chosen


def read(schema: ImageSchema, files: Sequence[Path]) -> Iterator[tuple[Sequence[Any], Array]]:
    """Read images as the model learned them, each resized to the declared size."""
    for path in found(files):
        yield (path.name,), scale(folders.pixels(path, channels=schema.channels, size=schema.size)[0])


def masks(model: Predictor, files: Sequence[Path], out: Path) -> tuple[Path, ...]:
    """Write a mask for every image: 0 and 255, of the image's own size."""
    from PIL import Image

    schema = model.schema
    if not isinstance(schema, ImageSchema):
        raise DataError("`model` must say what an image looks like to draw masks of files. Got one without inputs.json instead.")
    written = []
    for path in found(files):
        pixels, size = folders.pixels(path, channels=schema.channels, size=schema.size)
        mask = model.predict(scale(pixels)[None])[0].astype(np.uint8) * 255
        target = out / f"{path.stem}.png"
        Image.fromarray(mask).resize((size[1], size[0]), Image.Resampling.NEAREST).save(target)
        written.append(target)
    return tuple(written)
