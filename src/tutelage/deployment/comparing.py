"""Finished runs side by side: what each reached on public test data, and at which price. Read from releases alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tutelage.console import console, promised, say, table
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.files import read_json
from tutelage.runs import RunFolder


def rows(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """Read every run: its name, scores, and the figures of its guarantee. Runs on other test records are not comparable."""
    found = []
    for place in runs:
        folder = RunFolder(place).existing()
        guarantee: dict[str, Any] = read_json(folder.guarantee, "guarantee")
        scores = read_json(folder.scores, "scores") if folder.scores.is_file() else {}
        data = guarantee.get("data") or {}
        found.append(
            {
                "run": place.resolve().name if place.resolve().name != "release" else place.resolve().parent.name,
                "scores": scores,
                "epsilon": guarantee["epsilon"],
                "delta": guarantee["delta"],
                "unit": guarantee["unit"],
                "answers": guarantee["labels"]["released"],
                "test": (data.get("hashes") or {}).get("test"),
                "task": guarantee["task"],
            }
        )
    if len({row["task"] in ("masks",) for row in found}) > 1:
        raise RecipeError(
            "`runs` must be about labels, or all about masks: their scores mean different things. Got both instead."
        )
    return found


def show(found: Sequence[dict[str, Any]]) -> None:
    """Print one column per run."""
    made = table("runs on public test data, and what each cost", "", *(row["run"] for row in found))
    for name in dict.fromkeys(name for row in found for name in row["scores"]):
        cells = (f"{row['scores'][name]:.3f}" if name in row["scores"] else "" for row in found)
        made.add_row(name, *cells, style="bold" if name == "private student" else None)
    made.add_section()
    for label, key in (("ε to quote", "epsilon"), ("δ", "delta")):
        made.add_row(label, *(promised(row[key]) for row in found))
    made.add_row("unit", *(row["unit"] for row in found))
    made.add_row("answers", *(f"{row['answers']:,}" for row in found))
    console().print(made)
    if len({row["test"] for row in found}) > 1:
        say("warning: these runs were scored on different test records, or do not say on which.", style="yellow")
    if best := frontier(found):
        say(f"not beaten by a cheaper one: {', '.join(best)}")


def frontier(found: Sequence[dict[str, Any]]) -> list[str]:
    """Name the runs whose student no run with as small an ε beats."""
    known = [(_price(row), row["scores"].get("private student"), row["run"]) for row in found]
    scored = [(price, score, name) for price, score, name in known if score is not None]
    return [
        name for price, score, name in scored
        if not any((other <= price and more > score) or (other < price and more >= score) for other, more, _ in scored)
    ]  # fmt: skip


def draw(found: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw score against ε."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for row in found:
        score, price = row["scores"].get("private student"), _price(row)
        if score is not None and price != float("inf"):
            axes.plot(price, score, "o", color="#1f5fa8")
            axes.annotate(row["run"], (price, score), textcoords="offset points", xytext=(5, 4), fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("ε to quote")
    axes.set_ylabel("score of the private student, public test")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _price(row: dict[str, Any]) -> float:
    return float("inf") if row["epsilon"] == "infinity" else float(row["epsilon"])
