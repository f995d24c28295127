"""What `tutelage plan` prints: the one thing that was left open, with everything that follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tutelage import planning
from tutelage.console import console, emit, figure, promised, say, table, warn
from tutelage.privacy import accounting
from tutelage.privacy.errors import RecipeError
from tutelage.rounding import percent


def show_means(asked: planning.MeanPlan, records: int | None, plots: Path | None, form: str, *, as_json: bool) -> None:
    """Solve a plan of noisy means, under both kinds of neighbours, and print or draw it."""
    unknown, solved = asked.missing(), asked.solved()
    views = planning.side_by_side(asked)
    said = planning.warnings(solved.epsilon or 0.0, solved.delta or 0.0, records)
    files = _plan_plots(solved, plots, form) if plots is not None else []
    if as_json:
        emit(
            {
                "solved_for": unknown,
                unknown: getattr(solved, unknown),
                "mu": solved.mu(),
                "plan": _plain(solved),
                "by_adjacency": {name: None if view is None else {**_plain(view), "mu": view.mu()} for name, view in views},
                "warnings": said,
                "plots": [str(file) for file in files],
            }
        )
        return
    made = table(
        f"solved for {unknown}", "neighbours", "K", "N", "σ on the mean", "ε", "δ", "norm", "μ", "best attack at 0.1 % FPR"
    )
    for name, view in views:
        made.add_row(name, *(["no solution"] if view is None else _figures(view)))
    console().print(made)
    show = promised if unknown in ("epsilon", "delta") else figure
    say(f"{unknown} = {show(getattr(solved, unknown))} for {asked.adjacency}, unit {asked.unit.name}", style="bold")
    warn(said)
    for file in files:
        say(f"plot: {file}")


def _plain(view: planning.MeanPlan) -> dict[str, Any]:
    names = ("teachers", "queries", "sigma", "epsilon", "delta", "bound", "dimension", "norm")
    return {**{name: getattr(view, name) for name in names}, "unit": view.unit.name, "adjacency": str(view.adjacency)}


def _figures(view: planning.MeanPlan) -> list[str]:
    given, price = (view.teachers, view.queries, view.sigma), (view.epsilon, view.delta)
    cells = [*map(figure, given), *map(promised, price), figure(view.norm), promised(view.mu())]
    return [*cells, percent(accounting.implied_tpr(view.mu(), 1e-3))]


def _plan_plots(solved: planning.MeanPlan, folder: Path, form: str) -> list[Path]:
    import numpy as np

    from tutelage.report import plots

    if form not in ("svg", "png"):
        raise RecipeError(f"`format` must be 'svg' or 'png'. Got {form!r} instead.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecipeError(f"`plots` must be a folder that can be written. Got «{error.strerror}» for {folder} instead.") from None
    k, sigma, epsilon = solved.teachers or 1, solved.sigma or 1.0, solved.epsilon or 1.0
    figures = {
        "epsilon_against_teachers": plots.epsilon_against_teachers(solved, np.arange(max(2, k // 2), max(101, 4 * k))),
        "queries_against_epsilon": plots.queries_against_epsilon(
            solved, [sigma / 4, sigma / 2, sigma, 2 * sigma, 4 * sigma], np.geomspace(0.1, 20, 100)
        ),
        "sigma_against_queries": plots.sigma_against_queries(
            solved, sorted({1.0, 2.0, 4.0, 8.0, epsilon}), np.geomspace(1, 1e5, 100)
        ),
    }
    files = [folder / f"{name}.{form}" for name in figures]
    for file, drawing in zip(files, figures.values(), strict=True):
        plots.save(drawing, file)
    return files


def show_votes(asked: planning.MeanPlan, records: int | None, *, as_json: bool) -> None:
    """Solve a plan of noisy votes, and print it."""
    unknown, solved = asked.missing(), asked.solved()
    said = planning.warnings(solved.epsilon or 0.0, solved.delta or 0.0, records)
    if as_json:
        emit({"solved_for": unknown, unknown: getattr(solved, unknown), "mu": solved.mu(), "method": "gnmax", "warnings": said})
        return
    made = table(f"GNMax, solved for {unknown}", "N", "σ on counts", "ε", "δ", "μ", "best attack at 0.1 % FPR")
    given, price = (solved.queries, solved.sigma), (solved.epsilon, solved.delta, solved.mu())
    best = percent(accounting.implied_tpr(solved.mu(), 1e-3))
    made.add_row(*map(figure, given), *map(promised, price), best)
    console().print(made)
    warn(said)
