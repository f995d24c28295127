"""How well an attack tells members from others: the whole ROC, with intervals, and no figure that the samples cannot give."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt
from scipy import stats

from tutelage.audits.bounds import checked, lower, upper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]
RATES = (1e-3, 1e-2)  # the false-positive rates that are reported


@final
@dataclass(frozen=True)
class Rate:
    """A true-positive rate at a false-positive rate, with its interval; or how many others it would take to know it."""

    fpr: float
    tpr: float | None
    low: float | None
    high: float | None
    needed: int

    def __str__(self) -> str:
        if self.tpr is None:
            return f"needs {self.needed:,} non-members"
        return f"{self.tpr:.2%} ({self.low:.2%} to {self.high:.2%})"


@final
@dataclass(frozen=True, eq=False)
class Roc:
    """The ROC of scores that are higher for members."""

    members: Array
    others: Array
    fpr: Array
    tpr: Array

    @classmethod
    def of(cls, members: npt.ArrayLike, others: npt.ArrayLike) -> Roc:
        """Sweep the threshold over all scores."""
        some, rest = np.sort(checked(members, "members")), np.sort(checked(others, "others"))
        cuts = np.concatenate([[np.inf], np.union1d(some, rest)[::-1]])
        true = some.size - np.searchsorted(some, cuts, side="left")
        false = rest.size - np.searchsorted(rest, cuts, side="left")
        return cls(some, rest, false / rest.size, true / some.size)

    @property
    def auc(self) -> float:
        """Give the area under the curve: how often a member's score is above another's, ties counting half."""
        order = stats.rankdata(np.concatenate([self.members, self.others]))[: self.members.size].sum()
        some, rest = self.members.size, self.others.size
        return float((order - some * (some + 1) / 2) / (some * rest))

    @property
    def balanced_accuracy(self) -> float:
        """Give the best mean of both sides' accuracies. It is chosen on the scores it is computed from: a little too high."""
        return float(np.max((self.tpr + 1 - self.fpr) / 2))

    def at(self, fpr: float, *, alarm: float = 0.05) -> Rate:
        """Give the largest true-positive rate where the share of others above the threshold is at most `fpr`."""
        needed = math.ceil(1 / fpr - 1e-9)
        if self.others.size < needed:
            return Rate(fpr, None, None, None, needed)
        place = int(np.flatnonzero(self.fpr <= fpr * (1 + 1e-12))[-1])
        hits = round(self.tpr[place] * self.members.size)
        low, high = lower(hits, self.members.size, alarm / 2), upper(hits, self.members.size, alarm / 2)
        return Rate(fpr, float(self.tpr[place]), float(low), float(high), needed)

    def document(self) -> dict[str, Any]:
        """Give the figures as plain data."""
        rates = {f"{fpr:g}": vars(self.at(fpr)) for fpr in RATES}
        sizes = {"members": int(self.members.size), "others": int(self.others.size)}
        return {"auc": self.auc, "balanced_accuracy": self.balanced_accuracy, "tpr_at_fpr": rates, **sizes}


def picture(curves: dict[str, Roc], ceiling: Callable[[Array], Array] | None = None) -> Figure:
    """Draw ROCs on log axes, with guessing and with the best that the claim lets any attack have."""
    from matplotlib.figure import Figure

    from tutelage.report.plots import COLOURS, GREY, INK

    figure = Figure(figsize=(6.0, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#e4e7eb", linewidth=0.6)
    least = min([1e-3, *(1 / roc.others.size for roc in curves.values())])
    for (name, roc), colour in zip(curves.items(), COLOURS * len(curves), strict=False):
        axes.step(np.maximum(roc.fpr, least / 10), roc.tpr, where="post", color=colour, label=f"{name} (AUC {roc.auc:.3f})")
    rates = np.geomspace(least, 1, 200)
    axes.plot(rates, rates, color=GREY, linestyle="--", label="guessing")
    if ceiling is not None:
        axes.plot(rates[:-1], ceiling(rates[:-1]), color=INK, linewidth=0.9, label="best attack that the claim allows")
    axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1.1))
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    return figure
