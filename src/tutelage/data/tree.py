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
    return sorted(_below(os.fspath(root), real, links))


def _below(place: str, root: str, links: bool) -> Iterator[Path]:
    """Walk a folder. What is neither a folder nor a file, such as a pipe, or a link that ends nowhere, is left out."""
    ahead: list[tuple[str, tuple[str, ...]]] = [(place, (root,))]  # with the real folders on the way: a ring of links ends
    while ahead:  # no call for every level: a file may lie deeper than Python goes
        place, chain = ahead.pop()
        try:
            entries = list(os.scandir(place))
        except OSError:  # a folder that may not be looked into holds nothing
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                folder, file = entry.is_dir(), entry.is_file()
            except OSError:  # a link to itself, or one more than the system follows
                continue
            if file:
                yield Path(entry.path)
            if not folder:
                continue
            real = os.path.realpath(entry.path)
            if entry.is_symlink() and (not links or _holds(real, root) or _holds(root, real) or real in chain):
                continue
            ahead.append((entry.path, (*chain, real)))


def _holds(above: str, inside: str) -> bool:
    return inside == above or inside.startswith(above.rstrip(os.sep) + os.sep)
