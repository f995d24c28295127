"""Arrays that may be larger than memory: written some rows at a time, mapped, and read without being kept."""

from __future__ import annotations

import mmap
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
HELD = 1 << 28  # bytes of one array in memory; what is larger goes to disk


@final
class Rows:
    """Collect rows of an array, at most `total` of them: in memory, or in a file of `folder` where they would be many.

    The file has no name: nobody else can open it, and it goes with the process, also when that is killed.
    """

    def __init__(self, total: int, folder: Path) -> None:
        self.total, self.folder = total, folder
        self._blocks: list[Array] = []
        self._file: Any = None
        self._like: Array | None = None  # no rows, but their type and shape
        self._count = 0

    def add(self, block: Array) -> None:
        """Put further rows behind those that are there."""
        if self._like is None:
            self._like = np.empty((0, *block.shape[1:]), block.dtype)
            if block.nbytes // max(1, len(block)) * self.total > HELD:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 (the map outlives it)
        self._count += len(block)
        if self._file is None:
            self._blocks.append(block)
        else:
            self._file.write(np.ascontiguousarray(block, dtype=self._like.dtype).data)

    def array(self) -> Array:
        """Give all rows: an array, or a map of the file that must not be written."""
        assert self._like is not None
        if self._file is None:
            return np.concatenate(self._blocks)
        self._file.flush()
        with self._file:
            return np.memmap(self._file, dtype=self._like.dtype, mode="r", shape=(self._count, *self._like.shape[1:]))

    def __len__(self) -> int:
        return self._count


def forget(array: Array) -> None:
    """Let the pages of a mapped array go that were read: they are on disk, and would count as held until then."""
    base = _mapped(array)
    if base is not None and getattr(base, "mode", "c") != "c" and hasattr(mmap, "MADV_DONTNEED"):
        base._mmap.madvise(mmap.MADV_DONTNEED)  # what is copied on write has no file


def is_mapped(array: Array) -> bool:
    """Tell whether an array's values lie in a file."""
    return _mapped(array) is not None


def _mapped(array: Array) -> Any:
    """Give the array of a mapped file that this one shows a part of, or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(getattr(base, "_mmap", None), mmap.mmap):
            return base
        base = base.base
    return None


def each(array: Array) -> Iterator[Array]:
    """Go through the rows of an array that may be mapped, and hold one at a time."""
    for row in array:
        yield row
        forget(array)


def write_npz(path: Path, name: str, rows: Iterable[Array], like: Array, *, count: int, **small: Array) -> None:
    """Write a compressed .npz that NumPy reads, one of its arrays row by row: `count` rows of the type and shape of `like`."""
    header = {"descr": np.lib.format.dtype_to_descr(like.dtype), "fortran_order": False, "shape": (count, *like.shape)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for other, array in small.items():
            with archive.open(f"{other}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header)
            for row in rows:
                file.write(np.ascontiguousarray(row, dtype=like.dtype).tobytes())
