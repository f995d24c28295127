"""What a run was made on: the set, its split and hashes. What hashes private records stays inside; the rest may be told."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from tutelage.data.dataset import Private, Public

_BYTES = 1 << 24  # hashed at a time

#: The hashes that a release may hold. One of private records is a function of them, without noise: it is not among these.
SHOWN = ("public", "test", "split", "moved")


@final
@dataclass(frozen=True, repr=False)
class Provenance:
    """Say which data a run read.

    `published` tells that every file was recognised by its public checksum, or drawn by this package. Only then is the hash of
    the split shown: which rows are private may depend on the private rows (patients are divided by their names).
    """

    name: str
    split: str | None
    published: bool
    public: Public
    test: Public
    hashes: Mapping[str, str] = field(default_factory=dict)  # of the files, and of the split

    def told(self) -> dict[str, Any]:
        """Give what may leave: the set, its split, and hashes of what is public."""
        hashes = {"public": self.public.sha256, "test": self.test.sha256}
        if self.published and "split" in self.hashes:
            hashes["split"] = self.hashes["split"]
        return {"set": self.name, "split": self.split, "published": self.published, "hashes": hashes}

    def inside(self, private: Private) -> dict[str, Any]:
        """Give what stays under `private/`: hashes of files and private records, how many these are, and notes on them."""
        return {**self.told(), "files": dict(self.hashes), "private": fingerprint(private), **counted(private)}

    def __repr__(self) -> str:
        return f"Provenance({self.name!r}, split={self.split!r})"


def counted(private: Private) -> dict[str, Any]:
    """Count private records and units, and what was cleaned: for the owner, under `private/`."""
    units = np.unique(private.units)
    return {"records": len(private), "units": int((units != "").sum()), "notes": dict(private.notes)}


def fingerprint(private: Private) -> str:
    """Hash private records with their targets and units, some at a time: they may be mapped from a file."""
    state = hashlib.sha256()
    for array in (private.inputs, private.targets, private.units):
        rows = np.asarray(array)
        state.update(f"{rows.dtype.str}{rows.shape}".encode())
        step = max(1, _BYTES * len(rows) // max(1, rows.nbytes))
        for start in range(0, len(rows), step):
            some = np.ascontiguousarray(rows[start : start + step])
            state.update(repr(some.tolist()).encode() if some.dtype == object else some.tobytes())  # objects are addresses there
    return state.hexdigest()
