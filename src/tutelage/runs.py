"""A run on disk: `release/` is what may leave the building, `private/` is what may not.

While a run is unfinished, its release is a draft under `private/`. It is published by one rename, and taken back by one.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, final

from tutelage import manifest
from tutelage.privacy.errors import LedgerError, RecipeError
from tutelage.privacy.files import read_json, sync_folder, write_whole
from tutelage.privacy.ledger import Ledger, read_lines
from tutelage.tasks.table import released_files

#: What a run writes anew whenever it goes on. What it learned of public data stays, and so do its rounds of questions.
_WRITTEN = (
    "guarantee.json", "manifest.json", "recipe.toml", "inputs.json", "metrics.json", "scores.json", "samples.npz", "report.html",
    "student", "student.*",
)  # fmt: skip


@contextmanager
def held(lock: int, refusal: str) -> Iterator[None]:
    """Hold an open file as a lock, or refuse. It goes with the process, also when it is killed."""
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LedgerError(refusal) from None
        yield
    finally:
        os.close(lock)


@final
class RunFolder:
    """Name the places of a run. Everything under `private/` is readable by its owner alone."""

    def __init__(self, root: str | os.PathLike[str], *, published: Path | None = None) -> None:
        self.root = Path(root)
        self.published = published or self.root / "release"
        self.private = self.root / "private"
        self.draft = self.private / "release"
        self.pictures = self.private / "pictures.npy"
        self.failed_controls = self.private / "controls-failed.txt"
        self.inside_report = self.private / "report.html"
        self.inside_data = self.private / "data.json"
        self._state = self.private / "run.json"

    # ── places in the release, wherever that is now ───────────────────────────────────────────────────────────────────

    @property
    def release(self) -> Path:
        """Give the published release, or the draft while there is none."""
        return self.published if self.published.is_dir() else self.draft

    @property
    def exported_book(self) -> Path:
        """Give the place of the exported ledger."""
        return self.release / "book.jsonl"

    @property
    def guarantee(self) -> Path:
        """Give the place of the guarantee."""
        return self.release / "guarantee.json"

    @property
    def recipe(self) -> Path:
        """Give the place of the recipe."""
        return self.release / "recipe.toml"

    @property
    def inputs(self) -> Path:
        """Give the place of what a raw record looks like, as it was declared."""
        return self.release / "inputs.json"

    @property
    def metrics(self) -> Path:
        """Give the place of further measures of the student."""
        return self.release / "metrics.json"

    @property
    def scores(self) -> Path:
        """Give the place of the published scores."""
        return self.release / "scores.json"

    @property
    def samples(self) -> Path:
        """Give the place of the answers that the report shows."""
        return self.release / "samples.npz"

    @property
    def shown_stages(self) -> Path:
        """Give the place of the stages' pictures, where private data is public anyway."""
        return self.release / "stages.npy"

    @property
    def rounds(self) -> Path:
        """Give the folder of the rounds of questions."""
        return self.release / "rounds"

    @property
    def report(self) -> Path:
        """Give the place of the public page."""
        return self.release / "report.html"

    # ── a run that is there ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> dict[str, Any]:
        """Read what the run keeps under `private/` about itself: its name in the ledger, which ledger, and its last head."""
        if not os.access(self._state, os.R_OK):
            return {}
        state = read_json(self._state, "run.json", error=LedgerError)
        kinds = {"run": str, "ledger": str | None, "length": int, "head": str}
        if not (isinstance(state, dict) and set(state) == set(kinds) and all(isinstance(state[k], kinds[k]) for k in kinds)):
            raise LedgerError("`run.json` must be what a run wrote about itself. Got another file instead.")
        if "\0" in (state["ledger"] or ""):
            raise LedgerError("`run.json` must name a ledger by its path. Got another text instead.")
        return state

    def keep(self, ledger: Ledger, run: str) -> None:
        """Write down the name, the ledger and the ledger's head: a resumed run refuses a ledger that is older."""
        place = None if self.is_own(ledger.path) else os.path.realpath(ledger.path)
        state = {"run": run, "ledger": place, "length": ledger.length, "head": ledger.head}
        self.write_inside(self._state, json.dumps(state, indent=2) + "\n")

    def own(self, ledger: Ledger) -> str:
        """Tell whether a ledger is the run's "own", which nobody else may open, or "shared"."""
        return "own" if self.is_own(ledger.path) else "shared"

    def is_own(self, place: Path) -> bool:
        """Tell whether this is the place of the run's own ledger, under whatever name."""
        return os.path.realpath(place) == os.path.realpath(self.private / "book.sqlite")

    @property
    def book(self) -> Path:
        """Give the ledger's file: the run's own, or the one that it shares with other runs."""
        shared = self.state.get("ledger")
        return self.private / "book.sqlite" if shared is None else Path(shared)

    @property
    def heads(self) -> list[tuple[int, str]]:
        """List every state of the ledger that this folder knows of: (rows, hash of the last one)."""
        state = self.state
        known = [(state["length"], state["head"])] if state else []
        for place in (self.draft, self.published):
            if (place / "book.jsonl").is_file():
                rows = read_lines(place / "book.jsonl")
                if not rows:
                    raise LedgerError("`book.jsonl` must hold the rows of a ledger. Got an empty file instead.")
                known.append((rows[-1].seq, rows[-1].hash))
        return known

    @property
    def begun(self) -> bool:
        """Tell whether a run was begun here."""
        mine = self._state.exists() or os.path.exists(self.private / "book.sqlite")
        return mine or (self.published.is_dir() and any(self.published.iterdir()))

    @property
    def finished(self) -> bool:
        """Tell whether a release was published here."""
        return (self.published / "guarantee.json").is_file()

    def create(self, *, resume: bool = False) -> RunFolder:
        """Make the folders of a run that is begun, or of one that is there."""
        with self._writable():
            if self.published.is_dir() and not any(self.published.iterdir()):
                self.published.rmdir()  # made by hand
        self.check(resume=resume)
        with self._writable():
            self.private.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.private.chmod(0o700)  # one that was there before keeps its own mode otherwise
            if not self.published.is_dir():
                self.draft.mkdir(exist_ok=True)
        return self

    def check(self, *, resume: bool) -> None:
        """Refuse to begin where a run is, and to go on with a release whose ledger is not here.

        Where `resume` finds no run, one begins: a script can be run again. The command line asks `check_there` first.
        """
        name = repr(self.root.name)
        if resume:
            if self.begun and not self.state:
                raise RecipeError(
                    f"`out` must hold private/run.json beside its release, to go on. Got {name} without it instead: "
                    "what was spent is not known."
                )
            return
        if self.begun:
            raise RecipeError(f"`out` must be a new folder, or say --resume to go on. Got {name}, which holds a run, instead.")

    def check_there(self) -> None:
        """Refuse to go on where no run was begun: the name may be mistyped, and another run would spend the budget again."""
        if not self.private.is_dir():
            raise RecipeError(
                f"`out` must hold a run to go on with. Got {self.root.name!r}, which holds no folder private/, instead; "
                "leave --resume out to begin one."
            )

    def reopen(self) -> None:
        """Take a published release back: by one rename, so that its guarantee is gone before anything is written.

        What the run writes anew is removed; what it learned of public data, its questions and the exported ledger stay.
        """
        with self._writable():
            if self.published.is_dir():
                os.replace(self.published, self.draft)
                sync_folder(self.root)
            self.draft.mkdir(exist_ok=True)
            for pattern in (*_WRITTEN, *released_files()):
                for stale in self.draft.glob(pattern):
                    stale.unlink()
            sync_folder(self.draft)

    def publish(self, ledger: Ledger) -> str:
        """Write the manifest, note its hash in the ledger, and rename the draft to `release/`. Give the manifest's SHA-256."""
        manifest.set_aside(self.draft, self.private / "set-aside")
        digest = manifest.write(self.draft)
        ledger.note(manifest=digest)
        self.keep(ledger, ledger.run)
        ledger.check_place()  # a release whose ledger has gone would be the last that anybody can account for
        os.rename(self.draft, self.published)
        sync_folder(self.private)
        sync_folder(self.root)
        os.utime(self.published, (manifest.TIME, manifest.TIME))  # some file systems count a move as a change
        return digest

    def existing(self) -> RunFolder:
        """Enter a finished run: by its folder, or by its release, which may lie anywhere under any name."""
        found = self if self.published.is_dir() else self._entered()
        if found.finished:
            return found
        if os.path.exists(found._state) or os.path.exists(found.private / "book.sqlite"):
            raise RecipeError(
                "`run` must be finished. Got one that ended before its release was published instead; "
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
        alone = RunFolder(self.root, published=self.root)
        return alone if (self.root / "book.jsonl").is_file() else self

    @property
    def holds_book(self) -> bool:
        """Tell whether the ledger itself is here and may be read: not where only release/ was handed over."""
        return os.access(self.private, os.R_OK | os.X_OK) and os.access(self.book, os.R_OK)

    @contextmanager
    def opened(self) -> Iterator[Ledger]:
        """Open the ledger: itself, or a copy of it where its folder cannot be written, as SQLite would."""
        if os.access(self.book.parent, os.W_OK):
            with Ledger(self.book) as ledger:
                yield ledger
            return
        with self.copied() as ledger:
            yield ledger

    @contextmanager
    def copied(self) -> Iterator[Ledger]:
        """Open a copy of the ledger, to read it: opening the ledger itself would write beside it."""
        with tempfile.TemporaryDirectory() as place:  # for its owner alone
            tries = (Path(place) / str(number) for number in range(20))
            # Where others never stop writing, the folder changes anyway.
            with Ledger(next(filter(None, map(self._copy_book, tries)), self.book)) as ledger:
                yield ledger

    def _copy_book(self, to: Path) -> Path | None:
        """Copy the ledger. Nothing where somebody wrote meanwhile: half of one state and half of another is no ledger."""
        to.mkdir()
        before = self._book_files()
        for file in before:
            with suppress(FileNotFoundError):
                shutil.copyfile(file, to / file.name)
        return to / self.book.resolve().name if self._book_files() == before else None

    def _book_files(self) -> dict[Path, tuple[int, int]]:
        """List the ledger's files but SQLite's own memory, with their sizes and times."""
        book = self.book.resolve()
        found = (file for file in book.parent.glob(f"{glob.escape(book.name)}*") if not file.name.endswith("-shm"))
        return {file: (status.st_size, status.st_mtime_ns) for file in found if stat.S_ISREG((status := file.lstat()).st_mode)}

    def sealed(self, name: str) -> Path:
        """Give the place of figures that were computed from private data (tasks.table says what they are)."""
        return self.private / f"{name}.npy"

    def write_inside(self, path: Path, text: str) -> None:
        """Write a file under `private/`, whole or not at all, readable by its owner alone from the first byte on."""
        partial = path.with_name(f".{path.name}.partial")
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        write_whole(path, text)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second run off this folder."""
        with self._writable():
            lock = os.open(self.private / "run.lock", os.O_RDWR | os.O_CREAT, 0o600)
        with held(lock, "`out` must be used by one run at a time. Got a folder in use by another instead."):
            yield

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RecipeError(
                f"`out` must be a folder that can be written. Got «{error.strerror}» for {self.root} instead."
            ) from None
