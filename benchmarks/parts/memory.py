"""The most memory that this process has held."""

from __future__ import annotations

import resource
import sys


def peak() -> float:
    """Give it in GiB (Linux counts KiB, macOS bytes)."""
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 2)
