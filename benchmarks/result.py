"""Write what a benchmark measured: figures, machine, versions and the command, without paths or host names."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tutelage.reproduction.origin import machine, versions

RESULTS = Path(__file__).parent / "results"


def write(name: str, figures: dict[str, Any], command: str | None = None) -> Path:
    """Write results/NAME.json and say where. The command is the script with its arguments unless given."""
    path = RESULTS / f"{name}.json"
    record = {"name": name, "command": command or _command(), "machine": machine(), "versions": versions(), "figures": figures}
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"benchmarks/results/{path.name}")
    return path


def keep(path: Path, row: dict[str, Any]) -> None:
    """Write a row as it comes, and say it: a run that is stopped keeps what it had."""
    print(row, flush=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def _command() -> str:
    """Give the command with every folder outside the project by its last name alone."""
    arguments = [Path(part).name if os.path.isabs(part) or part.startswith("..") else part for part in sys.argv[1:]]
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments])
