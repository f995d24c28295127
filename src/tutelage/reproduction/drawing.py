"""The papers' figures, drawn again; without pyplot's global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from tutelage.report.plots import BLUE, COLOURS, GREY, ORANGE

Array = npt.NDArray[Any]
Curves = dict[str, tuple[Sequence[float], Sequence[float]]]  # name → (x, y)
_MARKS = "osD^vPX*"
MANY = 5  # curves, whose names would lie on them


def panels(count: int, *, width: float = 4.2, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """Make a row of plain axes."""
    figure = Figure(figsize=(width * count, height), layout="constrained")
    found = [figure.add_subplot(1, count, place + 1) for place in range(count)]
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, color="#e4e7eb", linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, found


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG with text as text, without the date: a committed file is small, and changes when the figure does."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tutelage"}):
        figure.savefig(path, dpi=100, metadata={"Date": None})


def priced(axes: Axes, epsilons: Mapping[float, str], *, what: str = "ε") -> None:
    """Write above an axis of noise what some of it costs; its curves have to be there already."""
    above, scale = axes.twiny(), axes.xaxis.get_transform()  # a secondary axis would be linear above one that is so in part
    above.set_xscale("function", functions=(scale.transform, scale.inverted().transform))
    above.set_xlim(axes.get_xlim())
    above.spines["right"].set_visible(False)
    above.set_xticks(list(epsilons), labels=list(epsilons.values()), fontsize=7)
    above.xaxis.set_minor_locator(NullLocator())
    above.set_xlabel(what, fontsize=8)


def lines(
    axes: Axes,
    curves: Curves,
    *,
    epsilons: Mapping[float, str] | None = None,
    above: str = "ε",
    linear: float | None = None,
    **labels: Any,
) -> None:
    """Draw curves with marks, in the house's colours; above the axis what its noise costs.

    `linear` makes the axis linear up to there, and logarithmic beyond.
    """
    for place, (name, (x, y)) in enumerate(curves.items()):
        mark, dashes = _MARKS[place % 8], "-" if place < len(COLOURS) else "--"  # a colour's second curve is dashed
        given = {"marker": mark, "markersize": 3.5, "linestyle": dashes, "linewidth": 1.3, "label": name}
        axes.plot(x, y, color=COLOURS[place % len(COLOURS)], **given)
    axes.set(**labels)
    if linear is not None:
        axes.set_xscale("symlog", linthresh=linear, linscale=0.5)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks([tick for tick in axes.get_xticks() if tick == 0 or tick >= linear])  # others would lie on zero
    if "xticks" in labels:  # a logarithmic axis would put its own numbers in between
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(labels["xticks"], labels=[f"{tick:g}" for tick in labels["xticks"]])
    if epsilons:
        priced(axes, epsilons, what=above)
    beside = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if len(curves) > MANY else {}
    axes.legend(frameon=False, fontsize=7, **beside)


def curves(groups: Sequence[tuple[Curves, dict[str, Any]]]) -> Figure:
    """Draw one panel per group."""
    figure, found = panels(len(groups), width=5.6 if any(len(group) > MANY for group, _ in groups) else 4.2)
    for axes, (group, labels) in zip(found, groups, strict=True):
        lines(axes, group, **labels)
    return figure


def components(
    rows: Sequence[tuple[float, int, int, float, float]], pixels: int, *, title: str, epsilons: Mapping[float, str]
) -> Figure:
    """Show the error and the share of components over the noise, by the criterion and by search (000 Fig. 1)."""
    figure, (left, right) = panels(2)
    variance = [row[0] ** 2 for row in rows]
    for axes, chosen, searched in ((left, 3, 4), (right, 1, 2)):
        scale = pixels if axes is right else 1
        axes.plot(variance, [row[searched] / scale for row in rows], color=ORANGE, marker="o", label="exhaustive search")
        axes.plot(variance, [row[chosen] / scale for row in rows], color=BLUE, ls="--", marker="x", label="variance > σ²")
        axes.set(xscale="log", xlabel="variance of the noise, σ²")
        priced(axes, {noise**2: cost for noise, cost in epsilons.items()})
    left.set(ylabel="squared error", yscale="log", title=f"{title}, {pixels:,} pixels")
    right.set(ylabel="share of components kept", ylim=(0, None))
    right.legend(frameon=False, fontsize=8)
    return figure


def ball(activated: Array, uniform: Array, *, cells: int = 40) -> Figure:
    """Show two densities on the disc, and their absolute difference on a scale of its own (003 Fig. 2)."""
    edges = np.linspace(-1, 1, cells + 1)
    area = (2 / cells) ** 2
    densities = [
        np.histogram2d(points[:, 0], points[:, 1], bins=[edges, edges])[0] / len(points) / area for points in (activated, uniform)
    ]
    shown = [*densities, np.abs(densities[0] - densities[1])]
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    top = float(np.quantile(densities[1], 0.99)) * 1.2
    for place, (image, title) in enumerate(zip(shown, ("activation", "uniform", "absolute difference"), strict=True)):
        axes = figure.add_subplot(1, 3, place + 1)
        drawn = axes.imshow(image, cmap="Blues", vmin=0, vmax=top if place < 2 else None, extent=(-1, 1, -1, 1))
        axes.set_title(title, fontsize=9)
        axes.set_xticks([-1, 0, 1])
        axes.set_yticks([-1, 0, 1])
        axes.tick_params(labelsize=7)
        figure.colorbar(drawn, ax=axes, shrink=0.8).ax.tick_params(labelsize=7)
    return figure


def strip(columns: Sequence[tuple[str, Array]], images: int = 4) -> Figure:
    """Show some images at every stage (002 Fig. 4.3): one column per (title, (images, height, width))."""
    count = min(images, len(columns[0][1]))
    figure = Figure(figsize=(1.15 * len(columns), 1.15 * count + 0.3), layout="constrained")
    for place, (title, masks) in enumerate(columns):
        for row in range(count):
            axes = figure.add_subplot(count, len(columns), row * len(columns) + place + 1)
            low, high = (None, None) if place == 0 else (0, 1)
            axes.imshow(np.asarray(masks[row], dtype=float), cmap="gray_r", vmin=low, vmax=high, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set_color(GREY)
            if row == 0:
                axes.set_title(title, fontsize=7)
    return figure
