"""A run on disk: `release/` is what may leave the building, `private/` is what may not."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

import numpy as np

from tutelage.privacy.errors import LedgerError, RecipeError

#: What private/controls.npy holds, in order.
CONTROLS = ("control: non-private, all private labels", "control: plurality of teachers, no noise", "control: one teacher")
#: What private/corrected.npy holds, in order, where a guess was corrected.
CORRECTED = (CONTROLS[0], "control: the same corrections, no noise")
#: What private/heir.npy holds, where the corrected guess has an heir: what it would be without any of this.
INHERITED = ("control: non-private, the heir's network on all private labels",)
#: What private/strong.npy holds, where records are rows of a table.
STRONG = ("control: non-private, boosted trees on all private records",)
#: What private/stages.npy holds, in order: Dice on the way from a teacher's mask to an answer.
STAGES = ("control: non-private, all private masks", "stage: teacher", "stage: encoded teacher", "stage: ensemble, no noise")


@final
class RunFolder:
    """Name the places of a run. Everything under `private/` is readable by its owner alone."""

    def __init__(self, root: str | os.PathLike[str], *, release: Path | None = None) -> None:
        self.root = Path(root)
        self.release = release or self.root / "release"
        self.private = self.root / "private"
        self.book = self.private / "book.sqlite"
        self.exported_book = self.release / "book.jsonl"
        self.guarantee = self.release / "guarantee.json"
        self.labels = self.release / "labels.csv"
        self.scores = self.release / "scores.json"
        self.answers = self.release / "answers.npz"
        self.weights = self.release / "weights.npz"
        self.samples = self.release / "samples.npz"
        self.shown_stages = self.release / "stages.npy"
        self.rounds = self.release / "rounds"
        self.report = self.release / "report.html"
        self.controls = self.private / "controls.npy"
        self.corrected = self.private / "corrected.npy"
        self.heir = self.private / "heir.npy"
        self.strong = self.private / "strong.npy"
        self.stages = self.private / "stages.npy"
        self.pictures = self.private / "pictures.npy"
        self.inside_report = self.private / "report.html"
        self.inside_data = self.private / "data.json"

    def create(self, *, resume: bool = False) -> RunFolder:
        """Make the two folders; an existing run is only entered on request."""
        if os.path.exists(self.book) and not resume:
            raise RecipeError(
                f"`out` must be a new folder, or say --resume to go on. Got {self.root.name!r}, which holds a run, instead."
            )
        with self._writable():
            self.release.mkdir(parents=True, exist_ok=True)
            self.private.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.private.chmod(0o700)  # one that was there before keeps its own mode otherwise
        return self

    def existing(self) -> RunFolder:
        """Enter a finished run: by its folder, or by its release, which may lie anywhere under any name."""
        found = self if self.release.is_dir() else self._entered()
        if os.path.isfile(found.guarantee):
            return found
        if os.path.exists(found.book):
            raise RecipeError(
                "`run` must be finished. Got one that ended before its guarantee was written instead; "
                "run the recipe again with --resume to go on."
            )
        raise RecipeError(
            "`run` must be a run folder with release/guarantee.json, or a release that holds guarantee.json and book.jsonl. "
            f"Got {self.root} instead."
        )

    def _entered(self) -> RunFolder:
        """Take this folder for a release: under its own name the run is around it, under another there is nothing beside it."""
        place = Path(os.path.abspath(self.root))
        if place.name == "release":
            return RunFolder(place.parent)
        alone = RunFolder(self.root, release=self.root)
        return alone if alone.exported_book.is_file() else self

    @property
    def holds_book(self) -> bool:
        """Tell whether the book itself is here and may be read: not where only release/ was handed over."""
        return os.access(self.book, os.R_OK)

    def read_controls(self) -> dict[str, float]:
        """Read the figures that were computed from private data: for eyes inside the building."""
        found: dict[str, float] = {}
        kept = ((CONTROLS, self.controls), (CORRECTED, self.corrected), (INHERITED, self.heir))
        for names, path in (*kept, (STRONG, self.strong), (STAGES, self.stages)):
            if os.access(path, os.R_OK):
                found |= dict(zip(names, np.load(path, allow_pickle=False).tolist(), strict=True))
        return found

    def write_inside(self, path: Path, text: str) -> None:
        """Write a file under `private/`, readable by its owner alone from the first byte on."""
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            path.chmod(0o600)  # an older file keeps its own mode otherwise
            file.write(text)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second run off this book. The lock goes with the process, also when it is killed."""
        with self._writable():
            lock = os.open(self.private / "run.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LedgerError("`out` must be used by one run at a time. Got a folder in use by another instead.") from None
            if not os.path.exists(self.book):  # SQLite gives the files beside a book the book's own mode
                with self._writable():
                    os.close(os.open(self.book, os.O_RDWR | os.O_CREAT, 0o600))
            yield
        finally:
            os.close(lock)

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RecipeError(
                f"`out` must be a folder that can be written. Got «{error.strerror}» for {self.root} instead."
            ) from None
