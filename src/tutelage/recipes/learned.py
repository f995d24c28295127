"""What a run learned of its public pool before anybody was asked: kept in its release, and taken up again when it goes on."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
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
        if answered(folder):
            raise RecipeError(
                "`out` must hold answers about this pool, seed and these settings. Got answers about others instead."
            )
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


def begin_anew(folder: RunFolder) -> None:
    """Empty the draft of a run that was never charged: what it learned may be of another pool, private by mistake."""
    if answered(folder) or (folder.state and not folder.holds_book):  # a ledger that is lost is refused later, and loses nothing
        return
    for path in folder.draft.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def answered(folder: RunFolder) -> bool:
    """Tell whether this run was charged for anything."""
    if not folder.holds_book or not folder.book.stat().st_size:
        return False
    with folder.opened() as ledger:
        return any(row.kind == "charge" and row.body["run"] == folder.state.get("run") for row in ledger.entries())
