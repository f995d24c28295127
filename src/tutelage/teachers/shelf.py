"""Finished scikit-learn teachers in a folder, so that an interrupted fit goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private
from tutelage.estimators import load, packed, store_private, unpacked
from tutelage.privacy.errors import RecipeError, Unsealed
from tutelage.privacy.units import Shards
from tutelage.teachers import notes

Array = npt.NDArray[Any]
KIND = "tutelage.estimators/1"
FAILED = "failed.json"
EVERY = 5.0  # seconds of work that a kill may cost


@final
class Shelf:
    """Keep finished teachers under `private/`. Every file says which settings and which fit it is of.

    Other settings are refused. What learned from other records is discarded without a word: a refusal would tell that one
    unit's record has changed.
    """

    def __init__(self, folder: str | Path, settings: str, fingerprint: str) -> None:
        self.folder, self.settings, self.fingerprint = Path(folder), settings, fingerprint
        if "private" not in self.folder.resolve().parts:
            raise Unsealed("`checkpoint` must lie in a folder named 'private', or be one. Got one outside instead.")
        self._waiting: dict[int, Any] = {}
        self._due = time.monotonic() + EVERY

    def taken_up(self) -> dict[int, Any]:
        """Give the teachers that were finished before, by their number."""
        for half in self.folder.glob(".*.skops.*"):  # of a process that was killed while it wrote
            half.unlink()
        contents = {path: self._checked(load(path)) for path in sorted(self.folder.glob("models-*.skops"))}
        if any(content["fingerprint"] != self.fingerprint for content in contents.values()):
            notes.count_restart(self.folder)
            for path in (*contents, self.folder / FAILED):
                path.unlink(missing_ok=True)
            return {}
        return {
            number: unpacked(parts)
            for content in contents.values()
            for number, parts in zip(content["teachers"], content["models"], strict=True)
        }

    def _checked(self, content: Any) -> dict[str, Any]:
        if not isinstance(content, dict) or content.get("kind") != KIND or content.get("settings") != self.settings:
            raise RecipeError("`checkpoint` must hold teachers of these same settings, or nothing. Got others instead.")
        return content

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
        content = {
            "kind": KIND,
            "settings": self.settings,
            "fingerprint": self.fingerprint,
            "teachers": numbers,
            "models": models,
        }
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
        """Write which teachers failed, for the owner of the private data alone."""
        content = {"fingerprint": self.fingerprint, "failed": {str(teacher): failed[teacher] for teacher in sorted(failed)}}
        notes.write(self.folder / FAILED, content)


def fingerprint(settings: dict[str, Any], private: Private, shards: Shards) -> str:
    """Hash all that a teacher depends on: settings, records, shards."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in (private.inputs, private.targets, *shards.indices):
        given = np.ascontiguousarray(array)
        digest.update(f"{given.dtype}{given.shape}".encode())
        digest.update(repr(given.tolist()).encode() if given.dtype == object else given)  # of objects an array holds addresses
    return digest.hexdigest()
