"""MNIST's idx format: a four-byte magic, big-endian sizes, then unsigned bytes, usually inside gzip."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from tutelage.data.pixels import scale
from tutelage.data.records import Records
from tutelage.privacy.errors import DataError

_LARGEST = 2**31  # a damaged size field must not reserve the machine's memory


def read_idx(path: Path | str, *, dims: int) -> np.ndarray:
    """Read one idx file of unsigned bytes, gzipped (with or without a name in the gzip header) or plain."""
    path = Path(path)
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if zipped else path.open("rb") as stream:
            return _parse(stream, path, dims)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"`{path}` must be a readable idx file. Got {type(error).__name__} instead.") from None


def _parse(stream: IO[bytes] | gzip.GzipFile, path: Path, dims: int) -> np.ndarray:
    magic = stream.read(4)
    if magic != bytes((0, 0, 8, dims)):  # 8: unsigned byte
        raise DataError(f"`{path}` must begin with the idx magic {bytes((0, 0, 8, dims)).hex()}. Got {magic.hex()} instead.")
    sizes = stream.read(4 * dims)
    if len(sizes) < 4 * dims:
        raise DataError(f"`{path}` must give {dims} sizes. Got {len(sizes)} bytes of them instead.")
    shape = struct.unpack(f">{dims}I", sizes)
    count = math.prod(shape)
    if not 1 <= count <= _LARGEST:
        raise DataError(f"`{path}` must hold between 1 and {_LARGEST} bytes. Got the shape {shape} instead.")
    body = stream.read(count + 1)
    if len(body) != count:
        got = "more" if len(body) > count else str(len(body))
        raise DataError(f"`{path}` must hold {count} bytes for the shape {shape}. Got {got} instead.")
    return np.frombuffer(body, np.uint8).reshape(shape)


def read_digits(images: Path | str, labels: Path | str) -> Records:
    """Read an image file and its label file: (records, 1, height, width) and (records,)."""
    pixels, targets = read_idx(images, dims=3), read_idx(labels, dims=1)
    if len(pixels) != len(targets):
        raise DataError(f"`{labels}` must hold one label per image, {len(pixels)}. Got {len(targets)} instead.")
    return Records(scale(pixels[:, None]), targets.astype(np.int64))
