"""What one published figure or table came to: tables to print, checks that can fail, pictures, and a file to resume from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final


@final
@dataclass(frozen=True)
class Table:
    """Hold a table as it is printed."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Write it for people."""
        lines = [self.headings, ("---",) * len(self.headings), *self.rows]
        return f"**{self.title}**\n\n" + "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


@final
@dataclass(frozen=True)
class Check:
    """Say what was claimed, what was found, and whether the claim holds."""

    claim: str
    found: str
    holds: bool


@final
@dataclass(frozen=True, kw_only=True)
class Finding:
    """Hold all that is kept of one figure or table."""

    name: str
    title: str
    settings: str  # what it was computed with: another setting is computed anew
    tables: tuple[Table, ...] = ()
    checks: tuple[Check, ...] = ()
    pictures: tuple[str, ...] = ()  # files beside this one
    remarks: tuple[str, ...] = ()
    numbers: dict[str, Any] | None = None
    seconds: float = 0.0
    device: str = ""  # what it was computed on: what is kept may come from another machine than the page
    missing: str = ""  # files
    failed: str = ""

    def markdown(self) -> str:
        """Write it as a part of the page; pictures lie in a folder of its name."""
        parts = [f"## {self.title}\n"]
        if self.missing:
            parts.append(f"Skipped: {self.missing}\n")
        if self.failed:
            parts.append(f"**Failed**: {self.failed}\n")
        parts += [f"- {'holds' if check.holds else '**FAILS**'}: {check.claim}: {check.found}\n" for check in self.checks]
        parts += [f"\n![{self.title}]({self.name}/{picture})\n" for picture in self.pictures]
        parts += [f"\n{table.markdown()}" for table in self.tables]
        parts += [f"\n{remark}\n" for remark in self.remarks]
        return "".join(parts)

    def save(self, folder: Path) -> None:
        """Keep it; a file that was begun and not finished is none."""
        draft = folder / "figures.json.partial"
        draft.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        draft.replace(folder / "figures.json")

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Finding:
        """Take it out of plain data."""
        tables = tuple(Table(one["title"], tuple(one["headings"]), tuple(map(tuple, one["rows"]))) for one in plain["tables"])
        checks = tuple(Check(**one) for one in plain["checks"])
        listed = {name: tuple(plain[name]) for name in ("pictures", "remarks")}
        return cls(**{**plain, **listed, "tables": tables, "checks": checks})

    @classmethod
    def read(cls, folder: Path) -> Finding | None:
        """Read what was kept, if anything was."""
        try:
            return cls.of(json.loads((folder / "figures.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # computed anew: nothing here was paid for out of a budget
