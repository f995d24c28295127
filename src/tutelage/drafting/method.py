"""Which method is likely to work, from public facts: units, public records, ε. Calibrated by the planner itself.

The rules are those of docs/start/which-method.md, which benchmarks/decisions.py tries row by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from tutelage.planning import Aggregation
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.ledger import Budget

MANY = 2000  # units from which each one can be a teacher of its own
CLEAR = 6.0  # times the noise that all teachers' votes must be
_TRIED = (1000, 500, 400, 300, 200, 150, 100, 75, 50, 30, 20, 10)


@final
@dataclass(frozen=True)
class Method:
    """Hold what a recipe's [teachers], [aggregation] and [student] say, and why."""

    teachers: str
    shards: int
    method: str
    queries: int
    learner: str
    student: str | None
    why: str
    doubt: str | None = None
    axes: int | None = None


def choose(units: int, pool: int, classes: int, budget: Budget, *, features: int | None = None) -> Method:
    """Choose for labels; `features` is the width of a table, None for images."""
    if units >= MANY:
        axes = max(4, min(100 if features is not None else 200, (features or 400) - 1, pool // 4))
        return Method(
            "records", _rounded(units), "mean", 25, "linear", None,
            f"{_rounded(units):,} units or so: each is a teacher of its own and corrects a linear model in 25 rounds; "
            "noise on the mean of so many is small", axes=axes,
        )  # fmt: skip
    shards = max(4, min(250, _rounded(units // (12 if units < 600 else 20)) or 4))
    queries, ratio = best_queries(shards, pool, classes, budget)
    doubt = None
    if ratio < CLEAR:
        doubt = (
            f"{shards} teachers against noise of σ = {shards / ratio:.1f} on the counts, even for {queries} questions: the "
            "winner will often be noise. More units, or a larger ε, are needed"
        )
    kind = "forest" if features is not None else "kernel"
    learner, student = ("supervised", "forest") if features is not None else ("spreading", "kernel")
    about = f"{_rounded(units):,} units or so: {shards} teachers of about {max(1, units // shards)} units"
    why = f"{about} vote on {queries} public records"
    return Method(kind, shards, "gnmax", queries, learner, student, why, doubt)


def best_queries(shards: int, pool: int, classes: int, budget: Budget) -> tuple[int, float]:
    """Give the most questions that leave votes clearly above their noise, and how many times."""
    found = (min(_TRIED[-1], pool), 0.0)
    for queries in (count for count in _TRIED if count <= pool):
        mechanism, _ = Aggregation("gnmax").built(budget, queries, shards, OneHot(classes))
        ratio = shards / float(mechanism.sigma)  # type: ignore[union-attr]
        found = (queries, ratio)
        if ratio >= CLEAR:
            return found
    return found


def _rounded(count: int) -> int:
    """Round to one digit, downwards: a public figure that does not follow single units."""
    if count < 10:
        return count
    step = 10 ** math.floor(math.log10(count))
    return count // step * step
