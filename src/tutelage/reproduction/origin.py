"""Where figures come from: the command, the machine and the versions, without paths, host names or dates."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("tutelage", "numpy", "scipy", "dp-accounting", "autodp", "scikit-learn", "torch", "monai", "opacus", "opendp")


def head(name: str, device: str, *, words: Sequence[str] | None = None) -> dict[str, Any]:
    """Give what stands before the figures of a result."""
    return {"name": name, "command": command(words or sys.argv), "machine": machine(device), "versions": versions()}


def command(words: Sequence[str]) -> str:
    """Give the command, every path outside the working folder by its last name alone."""
    program = Path(words[0]).name
    spoken = [program] if program == "tutelage" else ["python", program]
    for word in words[1:]:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        far = os.path.isabs(value) or value.startswith(("..", "~"))
        spoken.append(f"{option}{equals}{Path(value).name if far else value}")
    return " ".join(spoken)


def machine(device: str | None = None) -> dict[str, Any]:
    """Say what it ran on; and the device, where one is named."""
    found = {"cpu": _cpu(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}
    return found if device is None else {**found, "device": where(device)}


def where(device: str) -> str:
    """Name the device that a word stands for."""
    import torch

    from tutelage.nets.inputs import pick_device

    place = pick_device(device)
    return torch.cuda.get_device_name(place) if place.type == "cuda" else place.type


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
