"""The head file: beside a ledger, the number and hash of each row that was written. A ledger without them was lost or replaced.

It holds one line per transaction, appended and synced after the transaction is on disk and before a value is handed over. So
every line is a row that the ledger must hold, whatever became of the database or of SQLite's files beside it. Lines need no
lock: of two processes each appends its own. A line that a crash cut short is left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import final

from tutelage.privacy.errors import LedgerError
from tutelage.privacy.files import sync_folder

_LINE = re.compile(rb"([1-9][0-9]{0,17}) ([0-9a-f]{64})")


@final
class HeadFile:
    """Read and append to the head file of the ledger at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".head")
        self.length = 0  # the newest row that is known to stand in it
        self._descriptor: int | None = None

    def read(self) -> list[tuple[int, str]]:
        """Give (number, hash) of every row in it; none where there is no head file, or none that came as far as a line."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        lines = [_LINE.fullmatch(line) for line in content.split(b"\n")]
        found = [(int(line[1]), line[2].decode()) for line in lines if line]
        if not found and len(content.strip(b"\n\0")) > 84:  # longer than a first line that was cut short
            raise LedgerError(f"`{self.path.name}` must be the head file of this ledger. Got another file instead.")
        self.length = max((length for length, _ in found), default=0)
        return found

    def append(self, length: int, head: str) -> None:
        """Write down that the ledger holds this row. On return it is on disk."""
        if self._descriptor is None:
            new, flags = not os.path.lexists(self.path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, 0o600)
            if new:
                sync_folder(self.path.parent)
        line = f"\n{length} {head}\n".encode()  # the first break ends what a crash may have cut short
        if os.write(self._descriptor, line) != len(line):
            raise OSError("the head file was not written as a whole")
        os.fsync(self._descriptor)
        self.length = max(self.length, length)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
