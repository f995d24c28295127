"""The papers' figures and tables about masks, made again: each by its name, each computed once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

from tutelage.console import unforeseen
from tutelage.data.sources import MissingFiles
from tutelage.privacy.errors import Error, RecipeError
from tutelage.recipes.sections import unknown
from tutelage.reproduction import activation, components, compression, curves, naive, origin, stages, studies, thesis
from tutelage.reproduction.findings import Finding
from tutelage.reproduction.pools import Bench


@final
@dataclass(frozen=True)
class Item:
    """Name one figure or table, and what makes it."""

    name: str
    title: str
    make: Callable[[Bench], Finding]
    form: int  # raised when it is computed otherwise: what was kept is then computed anew

    def settings(self, bench: Bench) -> str:
        """Name what it is computed with."""
        return f"form {self.form}, {bench.settings}"


ITEMS = (
    Item("theorem-4", "000 Theorem 4 and Eq. 13", components.theorem, form=8),
    Item("components", "000 Fig. 1", components.search, form=8),
    Item("naive", "000 Fig. 2", naive.naive, form=8),
    Item("students", "000 Fig. 3", curves.students, form=7),
    Item("thesis-compression", "002 Figs 4.1 and 4.2", thesis.thesis, form=8),
    Item(studies.THESIS_STAGES, "002 Table 4.1 and Fig. 4.3", stages.thesis, form=studies.THESIS_FORM),
    Item("ball", "003 Fig. 2", activation.ball, form=7),
    Item("compression", "003 Fig. 3", compression.compression, form=compression.FORM),
    Item("teachers", "003 Fig. 4", curves.teachers, form=7),
    Item(studies.STAGES, "003 Table 1", stages.tumours, form=studies.STAGES_FORM),
)


def chosen(only: tuple[str, ...] = ()) -> list[Item]:
    """Pick figures and tables by their names; without any, all."""
    known = tuple(item.name for item in ITEMS)
    for word in only:
        if word not in known:
            raise unknown("only", word, known)
    return [item for item in ITEMS if not only or item.name in only]


def reproduce(item: Item, bench: Bench) -> Finding:
    """Make a figure, or read it where it is finished; missing files skip it, an error ends it, and both are told."""
    folder, settings = bench.out / item.name, item.settings(bench)
    kept = _kept(folder, settings)
    if kept is not None:
        return kept
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecipeError(
            f"`out` must be a folder that can be written. Got «{error.strerror}» for {bench.out} instead."
        ) from None
    begin = time.perf_counter()
    try:
        made = item.make(bench)
    except MissingFiles as error:
        return Finding(name=item.name, title=item.title, settings=settings, missing=str(error))
    except Error as error:
        return Finding(name=item.name, title=item.title, settings=settings, failed=f"{type(error).__name__}: {error}")
    except Exception as error:  # a GPU without memory, a full disk, a bug: other figures have nothing to do with it
        return Finding(name=item.name, title=item.title, settings=settings, failed=unforeseen(error))
    took = round(time.perf_counter() - begin, 1)
    finding = replace(made, settings=settings, seconds=took, device=origin.where(bench.device))
    finding.save(folder)
    return finding


def beside(findings: list[Finding], bench: Bench) -> list[Finding]:
    """Add the figures that were finished here before and not asked for now: the summary is of all of them."""
    now = {finding.name: finding for finding in findings}
    every = [now.get(item.name) or _kept(bench.out / item.name, item.settings(bench)) for item in ITEMS]
    return [finding for finding in every if finding is not None]


def _kept(folder: Path, settings: str) -> Finding | None:
    """Read a figure that was finished with the same settings, pictures and all."""
    kept = Finding.read(folder)
    whole = kept is not None and kept.settings == settings and all((folder / name).exists() for name in kept.pictures)
    return kept if whole else None


def document(findings: list[Finding]) -> list[dict[str, Any]]:
    """Write findings as plain data."""
    return [json.loads(json.dumps(asdict(finding))) for finding in findings]


def read(path: Path) -> list[Finding]:
    """Read a summary; one that an earlier version wrote is a list of figures without a head."""
    told = json.loads(path.read_text(encoding="utf-8"))
    return [Finding.of(one) for one in (told["figures"] if isinstance(told, dict) else told)]


CAPTION = (
    "Published beside ours: at the papers' own settings with the ε that they really cost, and at an honest (ε, δ). "
    "Stages behind the door are shown for drawn images, and for a folder of which it is said that it is published anyway; "
    "else they stay under private/. "
    "000 is Fay, Sjölund and Oechtering 2022, 002 is Fay's thesis of 2019, 003 is Fay, Sjölund and Oechtering 2020."
)


def pages(out: Path) -> tuple[Path, Path]:
    """Name the summary for programs, and the page for people."""
    return out / "segmentation.json", out / "segmentation.md"


def write(findings: list[Finding], out: Path, *, device: str = "auto") -> None:
    """Leave a summary for programs, with where it comes from at its head, and a page for people."""
    out.mkdir(parents=True, exist_ok=True)
    plain, page = pages(out)
    record = {**origin.head("segmentation", device), "figures": document(findings)}
    plain.write_text(json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    took = sum(finding.seconds for finding in findings)
    body = "\n".join(finding.markdown() for finding in findings)
    page.write_text(f"# Segmentation: the papers' figures\n\n{CAPTION}\n\n{body}\n{took:.0f} s in all.\n", encoding="utf-8")
