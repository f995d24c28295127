"""The place of a ledger: one file under one name, that stays there while it is in use.

SQLite goes on writing to a file that was deleted, moved or replaced, and takes two names of one file for two databases, each
with a lock of its own. So names are resolved, second names refused, and device and inode compared at every transaction.
No file is opened in here: closing it would let go of SQLite's locks on it (POSIX).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from tutelage.privacy.errors import LedgerError
from tutelage.privacy.files import reading

_PATIENCE = 60.0  # seconds that a ledger in use by others is waited for
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


@final
class Place:
    """Know the files of one open ledger again."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        if name in ("", ":memory:") or name.startswith("file:"):
            raise LedgerError(f"`path` must be a file's own path: a ledger is kept on disk. Got {name!r} instead.")
        with reading(name, "book", error=LedgerError):  # a name with NUL in it, a link to itself
            self.path = Path(path).resolve()
        self._known: dict[Path, tuple[int, int]] = {}

    def beside(self, end: str) -> Path:
        """Give the path of a file that SQLite keeps beside the ledger's."""
        return self.path.with_name(self.path.name + end)

    def found(self) -> bool:
        """Tell whether the file is there, before SQLite opens it; refuse one that is no plain file under one name."""
        self._known.clear()
        if (identity := self._identity(self.path)) is not None:
            self._known[self.path] = identity
        return identity is not None

    def remember(self, *files: Path) -> None:
        """Expect these files to stay what they are now."""
        for file in (self.path, *files):
            identity = self._identity(file)
            if identity is None:
                raise self._gone(file)
            if self._known.setdefault(file, identity) != identity:
                raise self._gone(file)

    def check(self) -> None:
        """Refuse to go on when a file was deleted, moved, replaced, or has a second name."""
        for file, identity in self._known.items():
            if self._identity(file) != identity:
                raise self._gone(file)

    def _identity(self, file: Path) -> tuple[int, int] | None:
        try:
            status = os.lstat(file)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise LedgerError(
                f"`{file.name}` must be a plain file with one name (no hard link), on a disk that can be written. "
                "Got another instead; nothing was released."
            )
        return status.st_dev, status.st_ino

    def _gone(self, file: Path) -> LedgerError:
        return LedgerError(
            f"`{file.name}` must stay where it is while the ledger is in use. Got it deleted, moved or replaced instead; "
            "nothing was released."
        )


def patiently(step: Callable[[], Any]) -> Any:
    """Try again while others hold the lock. SQLite itself waits too, but not where it suspects a deadlock, and deaf to Ctrl-C."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _BUSY or time.monotonic() > end:
                raise
        time.sleep(0.002)
