"""What `tutelage federation status` shows: phases, times and budgets; never a site's data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tutelage.federation.status import read_status
from tutelage.privacy.errors import Error, RecipeError
from tutelage.sharing import summary


def overview(folder: Path) -> list[dict[str, Any]]:
    """Give one row for each participant whose folder this is, or who is in it."""
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []
    rows = [row for place in places if (row := _row(place)) is not None]
    if not rows:
        raise RecipeError(f"`DIR` must hold a participant that was started. Got {folder.name!r} without one instead.")
    return rows


def _row(place: Path) -> dict[str, Any] | None:
    found = read_status(place / "private")
    if found is None:
        return None
    passed = max(0, int(time.time()) - int(found.get("since", 0)))
    limit = found.get("seconds")
    waiting = isinstance(limit, (int, float)) and str(found.get("phase", "")).startswith("asking")
    return {
        "who": str(found.get("who", place.name)),
        "phase": str(found.get("phase", "unknown")),
        "since": f"{passed} s ago",
        "time_left": f"{max(0, int(limit - passed))} s" if waiting else "",
        "budget_left": "; ".join(_budgets(place)),
    }


def _budgets(place: Path) -> list[str]:
    files = {name: place / "private" / f"{name}.sqlite" for name in ("patient", "institution")}
    if not any(path.exists() for path in files.values()):
        files = {"study": place / "private" / "book.sqlite"}
    said = []
    for name, path in files.items():
        try:
            told = summary(path)
        except Error:
            continue
        left = max(0.0, told["budget_epsilon"] - told["spent_epsilon"])
        said.append(f"{name}: ε {told['spent_epsilon']:.3g} of {told['budget_epsilon']:g} spent, {left:.3g} left")
    return said
