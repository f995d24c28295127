"""What a run learned of its public pool before anybody was asked: kept in its release, and taken up again when it goes on."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError, RecipeError
from tutelage.runs import RunFolder

Array = npt.NDArray[Any]
T = TypeVar("T")


def learned(
    folder: RunFolder, name: str, manner: str, learn: Callable[[], Mapping[str, Array]], read: Callable[[dict[str, Array]], T]
) -> tuple[T, str]:
    """Learn it, or take up what an earlier life of this run learned: its answers are about that. Name the file, too.

    The file's name holds the manner, which names the settings and the pool: what was learned of other records is not taken
    for public.
    """
    hashed = hashlib.sha256(manner.encode()).hexdigest()[:12]
    path = folder.release / f"{name}-{hashed}.npz"
    if not path.exists():
        if _answered(folder):
            raise RecipeError(
                "`out` must hold answers about this pool, seed and these settings. Got answers about others instead."
            )
        forgotten(folder, name)
        beside = folder.release / f".{name}-{hashed}.{os.getpid()}.npz"
        np.savez_compressed(beside, **learn())
        with contextlib.suppress(FileExistsError):  # another start was faster: what it asks about stays as it is
            os.link(beside, path)  # whole or not at all
        beside.unlink()
    try:
        with np.load(path, allow_pickle=False) as file:
            return read(dict(file)), path.name
    except (OSError, ValueError, KeyError, TypeError, BadZipFile, DataError):
        raise DataError(f"`{path.name}` must be what this run learned. Got a damaged file instead.") from None


def forgotten(folder: RunFolder, name: str) -> None:
    """Remove what an earlier start learned that never asked: its pool may not be this one, and a release holds nothing else."""
    if not _answered(folder):
        for stale in folder.release.glob(f"{name}-*.npz"):
            stale.unlink()


def _answered(folder: RunFolder) -> bool:
    """Tell whether this run was charged for anything."""
    if not folder.holds_book or not folder.book.stat().st_size:
        return False
    with folder.opened() as ledger:
        return any(row.kind == "charge" and row.body["run"] == folder.state.get("run") for row in ledger.entries())
