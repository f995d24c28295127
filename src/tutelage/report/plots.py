"""Pictures as SVG or PNG, without pyplot's global state."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tutelage.planning import MeanPlan, by_adjacency
from tutelage.privacy import accounting
from tutelage.tasks.scores import Score

Array = npt.NDArray[Any]

INK, BLUE, ORANGE, GREY = "#1f2933", "#2563eb", "#d97706", "#9aa5b1"
COLOURS = (BLUE, ORANGE, "#059669", "#9333ea", "#dc2626", GREY)


def _axes(width: float = 6.0, height: float = 3.6) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#e4e7eb", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def svg(figure: Figure) -> str:
    """Give a figure as an SVG element to stand inside a page."""
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "tutelage"}):  # equal pictures are equal texts: names inside are random otherwise
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the ending (.svg or .png) decides the format."""
    figure.savefig(path, dpi=150)


# ── for a run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def attack_curve(bound: Callable[[Array], Array]) -> Figure:
    """Show the best true-positive rate that any membership attack can have, on log axes."""
    figure, axes = _axes()
    fpr = np.geomspace(1e-4, 1, 200)[:-1]
    axes.loglog(fpr, bound(fpr), color=BLUE, label="best possible attack")
    axes.loglog(fpr, fpr, color=GREY, linestyle="--", label="guessing")
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate", xlim=(1e-4, 1), ylim=(1e-4, 1.2))
    axes.legend(frameon=False, loc="lower right")
    return figure


def scores_chart(scores: dict[str, float]) -> Figure:
    """Show the private student beside its controls."""
    figure, axes = _axes(height=0.45 * len(scores) + 0.8)
    names = list(scores)[::-1]
    values = [scores[name] for name in names]
    axes.barh(names, values, color=[BLUE if name == Score.STUDENT else GREY for name in names], height=0.65)
    for row, value in enumerate(values):
        axes.text(value + 0.01, row, f"{value:.1%}", va="center", color=INK, fontsize=9)
    axes.set(xlim=(0, 1.12), xlabel="accuracy")
    axes.grid(False, axis="y")
    return figure


def spending(epsilons: Sequence[float], budget: float) -> Figure:
    """Show how ε grew with every charge in the book."""
    figure, axes = _axes()
    axes.step(range(len(epsilons) + 1), [0.0, *epsilons], where="post", color=BLUE, label="spent")
    axes.axhline(budget, color=ORANGE, linestyle="--", label="budget")
    axes.set(xlabel="charges", ylabel="ε", xlim=(0, len(epsilons) + 1), ylim=(0, budget * 1.1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, loc="lower right")
    return figure


def gallery(inputs: Array, labels: Array) -> Figure | None:
    """Show public images with the labels that were released for them; None for what is not an image."""
    images = inputs[:, 0] if inputs.ndim == 4 else inputs
    if images.ndim != 3 or not len(images):
        return None
    room = max(4, images.shape[1] // 3)  # for the label above
    height, width = images.shape[1] + room, images.shape[2] + 2
    columns, rows = 10, -(-len(images) // 10)
    low = float(images.min())
    sheet = np.full((rows * height, columns * width), low)
    figure = Figure(figsize=(columns * 0.62, rows * 0.62 * height / width), layout="constrained")
    axes = figure.add_subplot()
    for place, (image, label) in enumerate(zip(images, labels, strict=True)):
        top, left = place // columns * height + room, place % columns * width + 1
        sheet[top : top + image.shape[0], left : left + image.shape[1]] = image
        axes.text(left + image.shape[1] / 2, top - 1, str(label), ha="center", va="bottom", fontsize=8, color=INK)
    axes.imshow(sheet, cmap="gray_r", interpolation="nearest")
    axes.axis("off")
    return figure


# ── for a plan ────────────────────────────────────────────────────────────────────────────────────────────────────────


def epsilon_against_teachers(plan: MeanPlan, teachers: Array) -> Figure:
    """ε over the number of teachers, one curve per adjacency (paper 003, Figure 4, which shows the lowest)."""
    figure, axes = _axes()
    queries, sigma, delta = plan.queries or 1, plan.sigma or 1.0, plan.delta or 1e-5
    for colour, (name, view) in zip(COLOURS, by_adjacency(plan), strict=False):
        mu = view.sensitivity() * np.sqrt(queries) / (teachers * sigma)
        axes.semilogy(teachers, accounting.mu_epsilon(mu, delta), color=colour, label=name)
    axes.axhline(10, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(xlabel="teachers K", ylabel=f"ε at δ = {delta:g}", title=f"N = {queries}, σ = {sigma:g} on the mean")
    axes.legend(frameon=False, fontsize=8)
    return figure


def queries_against_epsilon(plan: MeanPlan, sigmas: Sequence[float], epsilons: Array) -> Figure:
    """How many answers a budget holds, one curve per noise (paper 002, Figures 3.2 and 3.4)."""
    figure, axes = _axes()
    teachers, delta = plan.teachers or 1, plan.delta or 1e-5
    mu = accounting.epsilon_mu(epsilons, delta)
    for colour, sigma in zip(COLOURS, sigmas, strict=False):
        axes.loglog(epsilons, (mu * teachers * sigma / plan.sensitivity()) ** 2, color=colour, label=f"σ = {sigma:.3g}")
    axes.axhline(1, color=GREY, linewidth=0.8, linestyle=":")  # below it, not even one answer fits
    axes.set(
        xlabel=f"ε at δ = {delta:g}",
        ylabel="answers that fit",
        title=f"K = {teachers}, {plan.bound} of {plan.dimension}",
    )
    axes.legend(frameon=False, fontsize=8)
    return figure


def sigma_against_queries(plan: MeanPlan, epsilons: Sequence[float], queries: Array) -> Figure:
    """The noise on the mean that each number of answers needs, one curve per ε."""
    figure, axes = _axes()
    teachers, delta = plan.teachers or 1, plan.delta or 1e-5
    for colour, epsilon in zip(COLOURS, epsilons, strict=False):
        mu = float(accounting.epsilon_mu(epsilon, delta))
        axes.loglog(queries, plan.sensitivity() * np.sqrt(queries) / (teachers * mu), color=colour, label=f"ε = {epsilon:.3g}")
    axes.set(xlabel="answers N", ylabel="σ on the mean", title=f"K = {teachers}, δ = {delta:g}")
    axes.legend(frameon=False, fontsize=8)
    return figure
