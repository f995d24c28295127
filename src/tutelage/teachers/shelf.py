"""Finished scikit-learn teachers in a folder, so that an interrupted fit goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private
from tutelage.estimators import load, packed, store_private, unpacked
from tutelage.privacy.errors import RecipeError, Unsealed
from tutelage.privacy.units import Shards

Array = npt.NDArray[Any]
KIND = "tutelage.estimators/1"
FAILED = "failed.json"
EVERY = 5.0  # seconds of work that a kill may cost


@final
class Shelf:
    """Keep finished teachers under `private/`. Every file holds its fit's fingerprint, and another fit refuses it."""

    def __init__(self, folder: str | Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = Path(folder), fingerprint
        if "private" not in self.folder.resolve().parts:
            raise Unsealed("`checkpoint` must lie in a folder named 'private', or be one. Got one outside instead.")
        self._waiting: dict[int, Any] = {}
        self._due = time.monotonic() + EVERY

    def taken_up(self) -> dict[int, Any]:
        """Give the teachers that were finished before, by their number."""
        for half in self.folder.glob(".*.skops.*"):  # of a process that was killed while it wrote
            half.unlink()
        found: dict[int, Any] = {}
        for path in sorted(self.folder.glob("models-*.skops")):
            content = load(path)
            if not isinstance(content, dict) or content.get("kind") != KIND or content.get("fingerprint") != self.fingerprint:
                raise RecipeError("`checkpoint` must hold teachers of this same fit, or nothing. Got another fit's instead.")
            found |= {number: unpacked(parts) for number, parts in zip(content["teachers"], content["models"], strict=True)}
        return found

    def put(self, teacher: int, model: Any) -> None:
        """Keep one more; files are written every few seconds, because each costs a sync."""
        self._waiting[teacher] = model
        if time.monotonic() >= self._due:
            self.write()

    def write(self) -> None:
        """Write the teachers that are not on disk yet."""
        if not self._waiting:
            return
        numbers = sorted(self._waiting)
        models = [packed(self._waiting[number]) for number in numbers]
        content = {"kind": KIND, "fingerprint": self.fingerprint, "teachers": numbers, "models": models}
        store_private(content, self.folder / f"models-{numbers[0]:06d}-{numbers[-1]:06d}.skops")
        self._waiting, self._due = {}, time.monotonic() + EVERY

    def failed(self) -> dict[int, str]:
        """Give the teachers of this fit that failed before, each with the type of its error."""
        try:
            content = json.loads((self.folder / FAILED).read_text(encoding="utf-8"))
            known = content["fingerprint"] == self.fingerprint
            return {int(teacher): str(kind) for teacher, kind in content["failed"].items()} if known else {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # it only informs

    def note(self, failed: dict[int, str]) -> None:
        """Write which teachers failed, for the owner of the private data alone: whole or not at all."""
        content = {"fingerprint": self.fingerprint, "failed": {str(teacher): failed[teacher] for teacher in sorted(failed)}}
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self.folder / f".{FAILED}.{os.getpid()}"
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            beside.replace(self.folder / FAILED)
        finally:
            beside.unlink(missing_ok=True)


def fingerprint(settings: dict[str, Any], private: Private, shards: Shards) -> str:
    """Hash all that a teacher depends on: settings, records, shards."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in (private.inputs, private.targets, *shards.indices):
        given = np.ascontiguousarray(array)
        digest.update(f"{given.dtype}{given.shape}".encode())
        digest.update(repr(given.tolist()).encode() if given.dtype == object else given)  # of objects an array holds addresses
    return digest.hexdigest()
