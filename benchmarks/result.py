"""Write what a benchmark measured: figures, machine, versions and the command, without paths or host names."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("tutelage", "numpy", "scipy", "dp-accounting", "autodp", "scikit-learn", "torch", "opendp")


def write(name: str, figures: dict[str, Any], command: str | None = None) -> Path:
    """Write results/NAME.json and say where. The command is the script with its arguments unless given."""
    path = RESULTS / f"{name}.json"
    record = {"name": name, "command": command or _command(), "machine": machine(), "versions": versions(), "figures": figures}
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"benchmarks/results/{path.name}")
    return path


def machine() -> dict[str, Any]:
    """Say what it ran on."""
    return {"cpu": _cpu(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}


def versions() -> dict[str, str]:
    """Say which versions of what matters here are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _command() -> str:
    """Give the command with every folder outside the project by its last name alone."""
    arguments = [Path(part).name if os.path.isabs(part) or part.startswith("..") else part for part in sys.argv[1:]]
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments])
