"""The files below a folder, also those that links lead to: large data sets are often kept as folders of links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def files(root: Path, *, links: bool = True) -> list[Path]:
    """Find all files at any depth, sorted by path; what is hidden below `root` is some tool's and left out.

    Without `links` no folder is entered through one. A link to a place inside `root`, or above it, is never entered: what is
    inside is read where it is. A folder elsewhere is entered by every link to it: whether one patient's link is followed must not
    depend on another patient's.
    """
    real = os.path.realpath(root)
    return sorted(_below(os.fspath(root), [real], real, links))


def _below(place: str, chain: list[str], root: str, links: bool) -> Iterator[Path]:
    """Walk a folder; `chain` holds the real folders on the way here, so that a ring of links ends."""
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:  # a folder that may not be looked into holds nothing
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            yield Path(entry.path)
            continue
        real = os.path.realpath(entry.path)
        if entry.is_symlink() and (not links or _holds(real, root) or _holds(root, real) or real in chain):
            continue
        yield from _below(entry.path, [*chain, real], root, links)


def _holds(above: str, inside: str) -> bool:
    return inside == above or inside.startswith(above.rstrip(os.sep) + os.sep)
