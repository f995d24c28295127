"""Finished networks in a checkpoint folder: chunk by chunk while a fit lasts, then one file."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import final

import torch

from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.nets.training import State
from tutelage.privacy.errors import RecipeError, Unsealed
from tutelage.teachers import notes
from tutelage.teachers.engines import Plan
from tutelage.teachers.fits import Fit

KIND, CHUNK_KIND, UNFINISHED_KIND = "tutelage.ensemble/1", "tutelage.ensemble.chunk/1", "tutelage.ensemble.unfinished/1"
EVERY = 60.0  # seconds between two saves of a stack that is still training
SHARE = 20  # times the time that a save takes must lie between it and the next: a large stack is saved less often


@final
class Chunks:
    """Keep what was learned in a folder under `private/`, so that an interrupted fit goes on where it stopped.

    Every file says which settings and which fit it is of. Other settings are refused. What learned from other records is
    discarded without a word, and all is trained again: a refusal would tell that one unit's record has changed.

    A kill between the file of all teachers and the removal of its chunks leaves both: the whole file is read, the chunks go.
    """

    def __init__(self, folder: str | Path, fit: Fit) -> None:
        self.folder, self.fit = Path(folder), fit
        if "private" not in self.folder.resolve().parts:  # now, not when the first teachers were trained
            raise Unsealed("`checkpoint` must lie in a folder named 'private', or be one. Got one outside instead.")
        self._due = time.monotonic() + EVERY
        self._asked, self._plan = "", ""

    @property
    def whole(self) -> Path:
        """Give the path of the file of all teachers; `Ensemble.load` reads it."""
        return self.folder / "teachers.safetensors"

    @property
    def unfinished(self) -> Path:
        """Give the path of the file of a stack that is still training."""
        return self.folder / "unfinished.safetensors"

    def resume(self, state: State) -> list[int]:
        """Fill in the teachers that were finished before, and give the numbers of the others."""
        for half in self.folder.glob(".*.safetensors.*"):  # of a process that was killed while it wrote
            half.unlink()
        self._discard_others()
        if self.whole.exists():
            state.update(read_tensors(self.whole, kind=KIND)[0])
            self._clear()
            return []
        missing = set(range(len(next(iter(state.values())))))
        for path in self._chunks():
            learned, metadata = read_tensors(path, kind=CHUNK_KIND)
            teachers = json.loads(metadata["teachers"])
            for name, tensor in learned.items():
                state[name][teachers] = tensor
            missing -= set(teachers)
        return sorted(missing)

    def planned(self, asked: str) -> Plan | None:
        """Give the plan that the teachers found here were trained by, if the same was asked for then.

        Which teachers were finished before a kill is a matter of time. With the plan of the first start the others are still
        trained in the same stacks, to the last bit.
        """
        return Plan(**json.loads(self._plan)) if self._plan and self._asked == asked else None

    def note(self, asked: str, plan: Plan) -> None:
        """Write this plan into every file from now on, beside what was asked for."""
        self._asked, self._plan = asked, json.dumps(asdict(plan))

    def write(self, teachers: Sequence[int], learned: State) -> None:
        """Put one finished chunk on disk."""
        path = self.folder / f"chunk-{teachers[0]:06d}-{teachers[-1]:06d}.safetensors"
        write_tensors(path, learned, self._metadata(CHUNK_KIND, teachers), private=True)
        self.unfinished.unlink(missing_ok=True)

    def finish(self, state: State, metadata: dict[str, str]) -> None:
        """Put all teachers into one file, and remove the chunks only after that."""
        if not self.whole.exists():
            write_tensors(self.whole, state, {**metadata, **self.fit.metadata}, private=True)
        self._clear()

    # ── a stack that is still learning: the `Bookmark` of nets.training ───────────────────────────────────────────────

    def due(self) -> bool:
        """Say whether the last save is long ago."""
        return time.monotonic() >= self._due

    def keep(self, teachers: Sequence[int], device: torch.device, learning: State) -> None:
        """Save all that a stack needs to go on."""
        begin = time.monotonic()
        metadata = {**self._metadata(UNFINISHED_KIND, teachers), "device": device.type}
        write_tensors(self.unfinished, learning, metadata, private=True)
        now = time.monotonic()
        self._due = now + max(EVERY, SHARE * (now - begin))

    def kept(self, teachers: Sequence[int], device: torch.device) -> State | None:
        """Give what was saved of this same stack on this same kind of device; of another one nothing."""
        if not self.unfinished.exists():
            return None
        learning, metadata = read_tensors(self.unfinished, kind=UNFINISHED_KIND)
        same = (
            self.fit.wrote(metadata) and json.loads(metadata["teachers"]) == list(teachers) and metadata["device"] == device.type
        )
        return learning if same else None

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _chunks(self) -> list[Path]:
        return sorted(self.folder.glob("chunk-*.safetensors"))

    def _clear(self) -> None:
        for path in (*self._chunks(), self.unfinished):
            path.unlink(missing_ok=True)

    def _discard_others(self) -> None:
        """Remove all that is here if some of it learned from other records; the plan is kept, for it is public."""
        kinds = {self.whole: KIND, **dict.fromkeys(self._chunks(), CHUNK_KIND), self.unfinished: UNFINISHED_KIND}
        found = [read_tensors(path, kind=kind, only=True)[1] for path, kind in kinds.items() if path.exists()]
        if not all(map(self.fit.asked, found)):
            raise RecipeError("`checkpoint` must hold networks of these same settings, or nothing. Got others instead.")
        for metadata in found:
            self._asked, self._plan = metadata.get("asked", ""), metadata.get("plan", "")
        if not all(map(self.fit.wrote, found)):
            notes.count_restart(self.folder)
            self._clear()
            self.whole.unlink(missing_ok=True)

    def _metadata(self, kind: str, teachers: Sequence[int]) -> dict[str, str]:
        given = {"asked": self._asked, "plan": self._plan}
        return {"kind": kind, **self.fit.metadata, **given, "teachers": json.dumps(list(teachers))}
