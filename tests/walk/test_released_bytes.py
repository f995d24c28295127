"""Two runs on neighbouring data, with the noise held fixed: every released byte, name, time and mode is the same.

Noise is the only thing that may tell neighbours apart. It is fixed here, and large votes hide one teacher's: what is left to
differ is what the curator never released. Each test has broken twins, which are the old behaviour.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from tests.walk.tiny import CLASSES, TEACHERS, clouds
from tests.walk.tiny_masks import Painters, mask_run

import tutelage as tt
from tutelage import manifest
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.units import Roster
from tutelage.report.page import pages
from tutelage.runs import RunFolder
from tutelage.students import supervised

UNITS, SOMEBODY = 40, 7
Released = dict[str, tuple[bytes, int, int]]
CHANGES = ("one record", "1,501 records", "relabelled", "not a number", "last in order", "absent")


class Nearest:
    """Teachers that remember the mean of every class of their shard, whatever is in it, and vote for the nearest."""

    key = "nearest class mean"

    def fit(self, private: tt.Private, shards: tt.Shards, *, progress: Any = None) -> Nearest:
        self.means = np.zeros((len(shards), CLASSES, 2))
        for teacher in range(len(shards)):
            part = private[shards[teacher]]
            for label in range(CLASSES):
                rows = part.inputs[(part.targets == label) & np.isfinite(part.inputs).all(axis=1)]
                self.means[teacher, label] = rows.mean(axis=0) if len(rows) else 100.0
        return self

    def vote(self, inputs: np.ndarray) -> tt.Sealed:
        away = inputs[None, :, None] - self.means[:, None]
        return tt.Sealed((away**2).sum(axis=-1).argmin(axis=-1))


def neighbour(change: str, *, listed: bool) -> tt.Private:
    """Give data in which one unit differs from everybody else's idea of it."""
    inputs, targets = clouds(480, 0)
    units = np.arange(480) % UNITS
    mine = units == SOMEBODY
    if change == "one record":
        keep = ~mine | (np.arange(480) == SOMEBODY)
        inputs, targets, units = inputs[keep], targets[keep], units[keep]
    elif change == "1,501 records":
        more = np.random.default_rng(3).normal(size=(1500, 2))
        inputs, targets = np.concatenate([inputs, more]), np.concatenate([targets, np.arange(1500) % CLASSES])
        units = np.concatenate([units, np.full(1500, SOMEBODY)])
    elif change == "relabelled":
        targets = np.where(mine, (targets + 1) % CLASSES, targets)
    elif change == "not a number":
        inputs = np.where(mine[:, None], np.nan, inputs)
    elif change == "last in order":
        order = np.concatenate([np.flatnonzero(~mine), np.flatnonzero(mine)])
        inputs, targets, units = inputs[order], targets[order], units[order]
    else:
        inputs, targets, units = inputs[~mine], targets[~mine], units[~mine]
    return tt.Private.of(inputs, targets, units=units, unit="patient", roster=Roster.places(UNITS) if listed else None)


@pytest.fixture
def fixed_noise(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Replace the operating system's generator, in tests alone, by one that can begin again."""
    drawn: list[np.random.Generator] = []
    monkeypatch.setattr(os, "urandom", lambda size: drawn[-1].bytes(size))
    return lambda: drawn.append(np.random.default_rng(5))


def released(folder: RunFolder) -> Released:
    """Read all that a release shows: names, contents, times and modes."""
    everything = [folder.published, *folder.published.rglob("*")]
    return {
        path.relative_to(folder.published).as_posix(): (
            b"" if path.is_dir() else path.read_bytes(),
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in everything
    }


def label_run(private: tt.Private, out: Path, again: Callable[[], None]) -> Released:
    again()
    pool, truth = clouds(60, 1)
    rest, answers = clouds(60, 2)
    outcome = tt.transfer(
        private, tt.Public.of(pool, truth), test=tt.Public.of(rest, answers), out=out, teachers=Nearest(),
        student=lambda: tt.SupervisedStudent("kernel"), codec=tt.Votes(CLASSES),
        budget=tt.Budget(80.0, 1e-5, tt.Unit("patient")), shards=TEACHERS, queries=30, purpose="neighbours",
        pages=functools.partial(pages, name="neighbours"),
    )  # fmt: skip
    assert (outcome.labels[:30] == truth[:30]).all()  # with this little noise one teacher changes no answer
    return released(outcome.folder)


@pytest.mark.parametrize("listed", [True, False], ids=["roster", "hashed"])
def test_neighbours_release_the_same_bytes(tmp_path: Path, fixed_noise: Callable[[], None], listed: bool) -> None:
    first = label_run(neighbour(CHANGES[0], listed=listed), tmp_path / "0", fixed_noise)
    assert set(first) >= {"student.skops", "report.html", "book.jsonl", "manifest.json", "guarantee.json"}
    for change in CHANGES[1:]:
        assert label_run(neighbour(change, listed=listed), tmp_path / change, fixed_noise) == first, change
    guarantee = json.loads(first["guarantee.json"][0])
    assert guarantee["units"] == (UNITS if listed else None)


def telling_times(folder: RunFolder, ledger: Ledger, real: Callable[..., str] = RunFolder.publish) -> str:
    """Export the book as it was exported before: with the time of every row."""
    times = [at for (at,) in ledger._db.execute("SELECT at FROM entries ORDER BY seq")]
    lines = folder.exported_book.read_text(encoding="utf-8").splitlines()
    rows = [{**json.loads(line), "at": at} for line, at in zip(lines, times, strict=True)]
    folder.exported_book.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return real(folder, ledger)


TWINS: dict[str, tuple[Any, str, Any]] = {
    "times in the book": (RunFolder, "publish", telling_times),
    "addresses in the student": (supervised, "store", lambda model, path: skops.io.dump(model, path)),
    "times of files": (manifest, "settle", lambda release: None),
    "units counted": (tt.Private, "places", property(lambda self: len(np.unique(self.units)))),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_twin_that_tells_is_caught(
    tmp_path: Path, fixed_noise: Callable[[], None], monkeypatch: pytest.MonkeyPatch, twin: str
) -> None:
    monkeypatch.setattr(*TWINS[twin])
    held = []  # so that a second model lies elsewhere in memory
    for change in ("1,501 records", "absent"):
        held.append(label_run(neighbour(change, listed=True), tmp_path / change, fixed_noise))
    assert held[0] != held[1]


# ── masks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Alike(Painters):
    """Painters whose stains do not depend on their records: a mean of masks would tell them apart, as it may."""

    key = "alike"

    def fit(self, private: tt.Private, shards: tt.Shards, *, progress: Any = None) -> Alike:
        self.stains = np.zeros((len(shards), 16, 16))
        return self


def masks_of(change: str, out: Path, again: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Released:
    again()
    real = tt.Private.of

    def changed(inputs: np.ndarray, targets: np.ndarray) -> tt.Private:
        keep = np.arange(len(inputs)) != (SOMEBODY if change == "absent" else -1)
        return real(inputs[keep], targets[keep], units=np.flatnonzero(keep), roster=Roster.places(len(inputs)))

    with monkeypatch.context() as patched:
        patched.setattr(tt.Private, "of", changed)
        outcome = mask_run(out, teachers=Alike(), pages=functools.partial(pages, name="neighbours"))
    return released(outcome.folder)


def test_neighbours_release_the_same_masks(
    tmp_path: Path, fixed_noise: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    first, second = (masks_of(change, tmp_path / change, fixed_noise, monkeypatch) for change in ("there", "absent"))
    assert set(first) >= {"student.safetensors", "answers.npz", "samples.npz", "report.html"}
    assert first == second
