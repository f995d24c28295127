"""MedMNIST: one .npz a data set, with train, val and test images and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from tutelage.data.pixels import scale
from tutelage.data.records import Records
from tutelage.privacy.errors import DataError, RecipeError


def read_medmnist(path: Path | str, part: Literal["train", "val", "test"]) -> Records:
    """Read one part: (records, channels, height, width[, depth]) and (records,), or (records, k) where labels are k."""
    path = Path(path)
    if part not in ("train", "val", "test"):
        raise RecipeError(f"`part` must be 'train', 'val' or 'test'. Got {part!r} instead.")
    try:
        # Never pickles: an object array is refused. Opened here, since numpy leaves a damaged file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            images, labels = content[f"{part}_images"], content[f"{part}_labels"]
    except Exception as error:  # zip, zlib, numpy and the file system each raise their own, some quoting content
        raise DataError(f"`{path}` must be a MedMNIST .npz. Got {type(error).__name__} instead.") from None
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or not len(images):
        got = f"{images.dtype} {images.shape}"
        raise DataError(f"`{part}_images` of `{path}` must be bytes, (records, height, width, ...). Got {got} instead.")
    if labels.dtype.kind not in "ui" or labels.ndim not in (1, 2) or len(labels) != len(images):
        got = f"{labels.dtype} {labels.shape}"
        raise DataError(f"`{part}_labels` of `{path}` must hold {len(images)} rows of labels. Got {got} instead.")
    colour = images.ndim == 4 and images.shape[3] == 3
    pixels = images.transpose(0, 3, 1, 2) if colour else images[:, None]
    targets = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    return Records(scale(pixels), targets.astype(np.int64))
