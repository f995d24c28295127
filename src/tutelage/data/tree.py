"""The files below a folder, also those that links lead to: large data sets are often kept as folders of links."""

from __future__ import annotations

import os
from pathlib import Path


def files(root: Path, *, links: bool = True) -> list[Path]:
    """Find all files at any depth, sorted by path; what is hidden below `root` is some tool's and left out.

    A folder that several ways lead to is read once: where it lies, or by the first link to it. Folders above `root` are never
    entered, so that a link back ends there. Without `links` no folder is entered through one.
    """
    seen = {os.fspath(above) for above in Path(os.path.realpath(root)).parents}
    found, ways = [], [os.fspath(root)]
    for way in ways:  # links join the list as they are found
        for place, folders, names in os.walk(way):
            real = os.path.realpath(place)
            folders[:] = sorted(name for name in folders if not name.startswith(".") and real not in seen)
            if real in seen:
                continue
            seen.add(real)
            ways += [inside for name in folders if links and os.path.islink(inside := os.path.join(place, name))]
            found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(found)
