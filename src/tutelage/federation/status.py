"""How far a participant is: public facts alone, in one small file that `tutelage federation status` reads."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, final

from tutelage.privacy.errors import Error
from tutelage.privacy.files import read_json, write_whole

NAME = "status.json"


@final
class Status:
    """Write one participant's phase, and since when. Never a count, a size or a time of private work."""

    def __init__(self, folder: Path, **who: Any) -> None:
        self.path, self._facts = folder / NAME, dict(who)

    def write(self, phase: str, **facts: Any) -> None:
        """Say what is going on now."""
        self._facts.update(facts, phase=phase, since=int(time.time()))
        write_whole(self.path, json.dumps(self._facts, indent=2) + "\n")
        self.path.chmod(0o600)


def read_status(folder: Path) -> dict[str, Any] | None:
    """Read a participant's status; None where there is none."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        found = read_json(path, "status")
    except Error:
        return None
    return found if isinstance(found, dict) else None
