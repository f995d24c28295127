"""A run as one page: everything inline, nothing fetched."""

from __future__ import annotations

import math
import os
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from tutelage import manifest
from tutelage.guarantee import attack_bound, later
from tutelage.privacy import accounting
from tutelage.privacy.errors import LedgerError, RecipeError
from tutelage.privacy.events import Event
from tutelage.privacy.files import read_json, write_whole
from tutelage.privacy.ledger import Entry, charges, read_lines
from tutelage.report import measures, words
from tutelage.rounding import percent, rounded_up
from tutelage.runs import RunFolder
from tutelage.tasks.scores import Score
from tutelage.tasks.table import read_controls, reading, sealed_scores


def report(run: str | os.PathLike[str] | RunFolder, *, name: str | None = None, out: Path | None = None) -> RunFolder:
    """Write the pages of a finished run again, and the public page's row in the manifest.

    With `out` the public page is written there, and the run is not changed: it may be a release alone, or on a disk that cannot
    be written. A place inside of the release is refused.
    """
    folder = (run if isinstance(run, RunFolder) else RunFolder(run)).existing()
    if out is not None:
        if Path(out).resolve().is_relative_to(folder.release.resolve()):
            raise RecipeError("`out` must be outside of the release, whose files the manifest lists. Got a place inside instead.")
        write_whole(out, _public(folder, name))
        return folder
    if not folder.holds_book:
        raise RecipeError(
            "`out` must be a file where RUN is a release without its private/ folder, because such a release is not changed: "
            "give --out FILE. Got none instead."
        )
    with folder.locked(), folder.opened() as ledger:
        _check_current(folder, ledger.entries())
        pages(folder, name=name)
        ledger.note(manifest=manifest.renew(folder.release, folder.report.name))
        folder.keep(ledger, folder.state["run"])
    return folder


def pages(folder: RunFolder, *, name: str | None = None) -> None:
    """Write report.html from the release alone, and private/report.html with the figures that stay inside."""
    write_whole(folder.report, _public(folder, name))
    inside = read_controls(folder)
    if inside:
        guarantee, shown = _read(folder)
        figures = {**_figures(folder, guarantee), "strip": _strip(folder, inside=True)}
        page = _page(_title(folder, name), guarantee, figures, {**shown, **inside}, inside=True)
        folder.write_inside(folder.inside_report, page)


def _public(folder: RunFolder, name: str | None) -> str:
    guarantee, shown = _read(folder)
    figures = {**_figures(folder, guarantee), "strip": _strip(folder, inside=False)}
    return _page(_title(folder, name), guarantee, figures, shown, inside=False)


def _read(folder: RunFolder) -> tuple[dict[str, Any], dict[str, float]]:
    return read_json(folder.guarantee, "guarantee"), read_json(folder.scores, "scores")


def _title(folder: RunFolder, name: str | None) -> str:
    return name or folder.root.resolve().name


def _check_current(folder: RunFolder, rows: list[Entry]) -> None:
    """Refuse a guarantee that its own ledger has left behind: this run asked, or somebody looked, since."""
    shown, run = read_lines(folder.exported_book), folder.state.get("run")
    if rows[: len(shown)] != shown or not later(rows[len(shown) :], run):
        raise LedgerError(
            "guarantee.json must cover all that its run was charged for. Got an older one instead; "
            "run the recipe again with --resume to renew the release."
        )


def _strip(folder: RunFolder, *, inside: bool) -> Any:
    """Draw the stages of some masks; None for a run about labels."""
    from tutelage.report import strips

    return strips.strip(folder, inside=inside) if folder.samples.exists() else None


def _figures(folder: RunFolder, guarantee: dict[str, Any]) -> dict[str, Any]:
    """Draw what both pages show."""
    from tutelage.report import plots

    rows = read_lines(folder.exported_book)
    infinite = guarantee["epsilon"] == "infinity"
    gallery = None
    if folder.samples.exists():
        with np.load(folder.samples, allow_pickle=False) as samples:
            gallery = plots.gallery(samples["inputs"], samples["labels"]) if "labels" in samples else None
    return {
        "measures": measures.rows(measures.read(folder.release)),
        "answered": guarantee["labels"]["released"],
        "charges": sum(1 for _ in charges(rows)),
        "gallery_svg": "" if gallery is None else plots.svg(gallery),
        "attack_svg": "" if infinite else plots.svg(plots.attack_curve(lambda fpr: attack_bound(guarantee, fpr))),
        "spending_svg": "" if infinite else plots.svg(plots.spending(_spent(rows), guarantee["budget_epsilon"])),
    }


def _page(name: str, g: dict[str, Any], figures: dict[str, Any], scores: dict[str, float], *, inside: bool) -> str:
    """Render one page."""
    import jinja2

    from tutelage.report import plots

    task = reading(g["task"])
    section, student = task.section(g, scores), scores.get(Score.STUDENT)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["coded"] = words.coded
    template = environment.from_string(resources.files("tutelage.report").joinpath("page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        **figures,
        name=name,
        inside=inside,
        g=g,
        epsilon=rounded_up(g["epsilon"], 3),
        delta=rounded_up(g["delta"], 6),
        mu=rounded_up(g["mu"], 3),
        mu_means="μ (Gaussian DP)" if g["mu_is_exact"] else "μ of a Gaussian answer with this (ε, δ)",
        tpr=percent(g["implied_tpr_at_fpr_0.001"]),
        charged=rounded_up(g["data_independent_epsilon"], 4),
        sanitised="not released" if g["sanitised_epsilon"] is None else _figure(g["sanitised_epsilon"], 4),
        student="" if student is None else _spaced(task.figure(student)),
        measure=task.measure,
        section=section,
        statement_note=words.statement(g),
        events_notes=words.events(g),
        counts_note=words.counts(g, figures["charges"]),
        behind_note=words.behind(g, inside=inside),
        verdict=task.verdict(scores),
        controls_note=_controls_note(scores, inside=inside),
        accuracies=[] if section.stages else [(what, f"{100 * score:.2f} %") for what, score in scores.items()],
        scores_svg=plots.svg(plots.scores_chart(scores)) if scores and not section.stages else "",
        data=g.get("data"),  # older runs do not say
        events=[_described(event) for event in g["events"]],
    )


def _figure(value: float | str, digits: int) -> str:
    return "∞" if value == "infinity" else f"{value:.{digits}g}"


def _spent(rows: list[Entry]) -> list[float]:
    """ε after each charge."""
    delta = float(rows[0].body["delta"])
    totals: dict[Event, int] = {}
    line = []
    for event, count in charges(rows):
        totals[event] = totals.get(event, 0) + count
        line.append(accounting.cost(totals.items(), delta).epsilon)
    return [value for value in line if math.isfinite(value)]


def _spaced(figure: str) -> str:
    return figure.replace("%", " %")


def _controls_note(scores: dict[str, float], *, inside: bool) -> str:
    read = [score.plain for score in Score if score in sealed_scores() and score in scores]
    if not read:
        return "Controls that read private data are under private/, not here."
    why = "this page stays inside" if inside else "this data set is public"
    return f"Computed from private data without noise, and shown because {why}: {'; '.join(read)}."


def _described(event: dict[str, Any]) -> dict[str, Any]:
    parameters = ", ".join(
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in event.items()
        if name not in ("kind", "count")
    )
    return {"kind": event["kind"], "parameters": parameters, "count": event["count"]}
