"""Notes in a checkpoint folder, for the owner of the private data alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

RESTARTED = "restarted.json"


def write(path: Path, content: Any) -> None:
    """Write a note whole or not at all, readable by its owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def count_restart(folder: Path) -> None:
    """Note that what was found here had learned from other records, and was trained again."""
    try:
        before = int(json.loads((folder / RESTARTED).read_text(encoding="utf-8"))["restarts"])
    except (OSError, ValueError, KeyError, TypeError):
        before = 0  # it only informs
    write(folder / RESTARTED, {"restarts": before + 1})
