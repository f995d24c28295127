"""CIFAR-10 and CIFAR-100, in both published forms: binary batches and pickled ("python") batches."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, final

import numpy as np

from tutelage.data.pixels import scale
from tutelage.data.records import Records, check_classes
from tutelage.privacy.errors import DataError, RecipeError

_PIXELS = 3 * 32 * 32


def read_cifar(paths: Sequence[Path | str], *, classes: int) -> Records:
    """Read batches in order; a name in .bin is binary, any other a pickle. 100 classes are the fine labels."""
    if classes not in (10, 100):
        raise RecipeError(f"`classes` must be 10 or 100. Got {classes} instead.")
    read = [_read_binary(Path(p), classes) if str(p).endswith(".bin") else _read_pickle(Path(p), classes) for p in paths]
    pixels, labels = np.concatenate([part[0] for part in read]), np.concatenate([part[1] for part in read])
    return Records(scale(pixels.reshape(-1, 3, 32, 32)), labels)


def _read_binary(path: Path, classes: int) -> tuple[np.ndarray, np.ndarray]:
    # CIFAR-10: label, pixels. CIFAR-100: coarse label, fine label, pixels.
    head = 1 if classes == 10 else 2
    raw = _bytes(path)
    if not raw or len(raw) % (head + _PIXELS):
        raise DataError(f"`{path}` must hold whole rows of {head + _PIXELS} bytes. Got {len(raw)} bytes instead.")
    rows = np.frombuffer(raw, np.uint8).reshape(-1, head + _PIXELS)
    labels = rows[:, head - 1].astype(np.int64)
    check_classes(path, labels, classes)
    return rows[:, head:], labels


def _read_pickle(path: Path, classes: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        with path.open("rb") as stream:
            batch = _Unpickler(stream, path).load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything, and may quote its content
        raise DataError(f"`{path}` must be a readable CIFAR batch. Got {type(error).__name__} instead.") from None
    if not isinstance(batch, dict):
        raise DataError(f"`{path}` must hold a dictionary. Got {type(batch).__name__} instead.")
    # Python 2 wrote the keys as bytes, a rewrite by Python 3 has text.
    content = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    wanted = "labels" if classes == 10 else "fine_labels"
    data, labels = content.get("data"), content.get(wanted)
    if not isinstance(data, _Array) or data.pixels is None or not isinstance(labels, list):
        raise DataError(f"`{path}` must hold `data` as an array of bytes and `{wanted}` as a list. Got something else instead.")
    if data.pixels.ndim != 2 or data.pixels.shape[1] != _PIXELS or not 0 < len(data.pixels) == len(labels):
        raise DataError(
            f"`data` of `{path}` must have the shape (records, {_PIXELS}) and one label per record. "
            f"Got {data.pixels.shape} and {len(labels)} labels instead."
        )
    if not all(type(label) is int and 0 <= label < classes for label in labels):
        raise DataError(f"`{path}` must hold labels of {classes} classes. Got a label outside them instead.")
    return data.pixels, np.asarray(labels, np.int64)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"`{path}` must be a readable file. Got {type(error).__name__} instead.") from None


@final
class _Unpickler(pickle.Unpickler):
    """Unpickle containers, numbers, strings and arrays of bytes, and nothing else.

    A pickle is a program. The names it may call are the closed table below, and each leads to a stand-in of ours, so
    that not even numpy's own unpickling code is run on what the file says.
    """

    def __init__(self, stream: Any, path: Path) -> None:
        super().__init__(stream, encoding="bytes")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        """Look a name up in the closed table."""
        match module, name:
            case (("numpy.core.multiarray" | "numpy._core.multiarray"), "_reconstruct"):
                return _Call(_empty)
            case (("numpy.core.numeric" | "numpy._core.numeric"), "_frombuffer"):
                return _Call(_filled)
            case "numpy", "ndarray":
                return _Call(_refused)  # stands as an argument only
            case "numpy", "dtype":
                return _Call(_Bytes)
            case "_codecs", "encode":  # how Python 3 writes bytes for protocol 2
                return _Call(_encoded)
        raise DataError(f"`{self._path}` must hold arrays and plain containers only. Got a call of {module}.{name} instead.")

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse references to the outside."""
        raise DataError(f"`{self._path}` must hold arrays and plain containers only. Got an outside reference instead.")


@final
class _Call:
    """Wrap one allowed function so that a pickle can call it and cannot alter it."""

    __slots__ = ("_function",)

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> NoReturn:
        raise ValueError("state for a function")


@final
class _Bytes:
    """Stand for numpy's dtype: unsigned bytes are the only one there is."""

    __slots__ = ()

    def __init__(self, code: Any, align: Any = 0, copy: Any = 1) -> None:
        if code not in ("u1", b"u1", "|u1", b"|u1"):
            raise ValueError("dtype")

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and flags: they say nothing about single bytes."""


@final
class _Array:
    """Stand for numpy's array until its bytes arrive."""

    __slots__ = ("pixels",)

    def __init__(self, pixels: np.ndarray | None = None) -> None:
        self.pixels = pixels

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, raw = state
        self.pixels = _filled(raw, dtype, shape, "F" if fortran else "C").pixels


def _empty(_kind: Any, _shape: Any, _code: Any) -> _Array:
    return _Array()


def _filled(raw: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    if not isinstance(dtype, _Bytes) or not isinstance(raw, (bytes, bytearray)) or order not in ("C", "F", b"C", b"F"):
        raise ValueError("array")
    sizes = tuple(shape)
    if not all(type(size) is int and size >= 0 for size in sizes) or math.prod(sizes) != len(raw):
        raise ValueError("shape")
    return _Array(np.frombuffer(raw, np.uint8).reshape(sizes, order="F" if order in ("F", b"F") else "C"))


def _encoded(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise ValueError("encoding")
    return text.encode("latin1")


def _refused(*_arguments: Any) -> NoReturn:
    raise ValueError("call")
