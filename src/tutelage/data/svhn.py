"""SVHN's cropped digits: MATLAB files with X (height, width, channel, record) and y in 1..10."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.io import loadmat

from tutelage.data.pixels import scale
from tutelage.data.records import Records
from tutelage.privacy.errors import DataError

_ROWS = 512  # scaled at a time


def read_svhn(*paths: Path | str) -> Records:
    """Read .mat files, one after the other: (records, 3, 32, 32) and labels 0..9, where the files call zero "10".

    Pixels stay bytes until their place among all records is there: the 604,388 of the papers are 7.4 GB of floats, once.
    """
    parts = [_read(Path(path)) for path in paths]
    targets = np.concatenate([labels for _, labels in parts])
    inputs, end = np.empty((len(targets), 3, 32, 32), dtype=np.float32), len(targets)
    while parts:  # from the last: what was copied is let go
        pixels, labels = parts.pop()
        end -= len(labels)
        for start in range(0, len(labels), _ROWS):
            part = pixels[..., start : start + _ROWS].transpose(3, 2, 0, 1)
            inputs[end + start : end + start + len(part)] = scale(part)
        del pixels
    return Records(inputs, targets)


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read one file: bytes (32, 32, 3, records), and labels (records,)."""
    try:
        with path.open("rb") as stream:
            content = loadmat(stream, variable_names=("X", "y"))
    except Exception as error:  # scipy raises a dozen unrelated types on damaged files, some quoting their content
        raise DataError(f"`{path}` must be a readable MATLAB file. Got {type(error).__name__} instead.") from None
    if not {"X", "y"} <= content.keys():
        raise DataError(f"`{path}` must hold the variables X and y. Got {sorted({'X', 'y'} & content.keys())} instead.")
    pixels, labels = content["X"], content["y"].ravel()
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3) or not len(labels):
        raise DataError(
            f"`X` of `{path}` must be bytes of shape (32, 32, 3, records). Got {pixels.dtype} {pixels.shape} instead."
        )
    if pixels.shape[3] != len(labels):
        raise DataError(f"`y` of `{path}` must hold one label per image, {pixels.shape[3]}. Got {len(labels)} instead.")
    if labels.dtype.kind not in "uif" or not np.isin(labels, np.arange(1, 11)).all():
        raise DataError(f"`y` of `{path}` must hold labels 1..10. Got something else instead.")
    return pixels, labels.astype(np.int64) % 10
