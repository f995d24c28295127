"""The further measures of a release as rows of a table: what a clinic asks beside accuracy or Dice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tutelage.privacy.files import read_json

Row = tuple[str, str]


def read(release: Path) -> dict[str, Any] | None:
    """Read metrics.json, which older releases do not hold."""
    path = release / "metrics.json"
    return read_json(path, "metrics") if path.is_file() else None


def rows(found: dict[str, Any] | None) -> list[Row]:
    """Write measures with their intervals, one row each, and the constants beside them."""
    if not found or "records" not in found:
        return []
    return _masks(found) if "Dice" in found else _labels(found)


def _labels(found: dict[str, Any]) -> list[Row]:
    common = found["majority"]
    told = [
        ("accuracy", _share(found["accuracy"])),
        (f"always answering “{common['class']}”", f"{common['accuracy']:.1%} (balanced {common['balanced accuracy']:.1%})"),
        ("balanced accuracy", f"{found['balanced accuracy']:.1%}"),
    ]
    told += [("AUC, mean over classes", f"{found['AUC']:.3f}")] if found.get("AUC") is not None else []
    if "ECE" in found:
        told += [("calibration: ECE, Brier", f"{found['ECE']:.3f}, {found['Brier']:.3f}")]
    return told + [(f"class “{one['class']}”, {one['records']:,} records", _class(one)) for one in found["classes"]]


def _class(one: dict[str, Any]) -> str:
    parts = [f"{what} {_share(one[what])}" for what in ("sensitivity", "specificity") if one[what] is not None]
    parts += [f"AUC {one['AUC']:.3f}"] if one["AUC"] is not None else []
    return "; ".join(parts)


def _masks(found: dict[str, Any]) -> list[Row]:
    told = [("Dice, mean", _mean(found["Dice"]))]
    told += [(f"{what} of pixels, mean", _mean(found[what])) for what in ("sensitivity", "precision") if found[what] is not None]
    told.append(
        (
            f"drawing nothing ({found['empty masks']:,} of {found['records']:,} masks are empty)",
            f"{found['constants']['nothing']:.3f}",
        )
    )
    return [*told, ("calling all of it the object", f"{found['constants']['all object']:.3f}")]


def _share(one: dict[str, float] | None) -> str:
    return "" if one is None else f"{one['value']:.1%} ({one['low']:.1%} to {one['high']:.1%})"


def _mean(one: dict[str, float]) -> str:
    return f"{one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
