"""What a run promises, in one file that people and programs can read. Schema: docs/reference/guarantee.md."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tutelage.planning import warnings
from tutelage.privacy import accounting
from tutelage.privacy.events import from_record, to_record
from tutelage.privacy.ledger import Budget, Entry, Ledger
from tutelage.privacy.units import Adjacency
from tutelage.rounding import rounded_up

SCHEMA = 1
_PACKAGES = ("numpy", "scipy", "dp-accounting", "scikit-learn", "torch")


def guarantee(
    ledger: Ledger,
    *,
    adaptive: bool,
    units: int,
    sanitised_epsilon: float | None = None,
    excepted: Sequence[str] = (),
    recipe_sha256: str | None = None,
    tuned_on: str = "not stated",
    labels: Mapping[str, int] | None = None,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Describe what the book guarantees.

    `epsilon` is the figure to quote. Where the number of answers depended on the votes (adaptive), that is the budget the
    filter held, not the smaller sum of what happened; that sum is `data_independent_epsilon`. `units` counts the private
    units: public, because neighbours have equally many. `excepted` names what in the release the figures do not cover.
    `data` is what may be told about the data (data.provenance): never a hash of private records. What the book's notes declare
    public on somebody's word stands among the warnings, whichever life of the run declared it.
    """
    spent = ledger.spent()
    infinite = math.isinf(spent.epsilon)
    quoted = math.inf if infinite else max(ledger.budget.epsilon, spent.epsilon) if adaptive else spent.epsilon
    mu, exact = _mu(quoted, spent, adaptive)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "epsilon": _number(quoted),
        "delta": ledger.budget.delta,
        "mu": _number(mu),
        "unit": ledger.budget.unit.name,
        "unit_teachers": ledger.budget.unit.teachers,
        "adjacency": str(ledger.budget.adjacency),
        "statement": statement(quoted, ledger.budget, bool(excepted)),
        "excepted": list(excepted),
        "mu_is_exact": exact,
        "budget_epsilon": ledger.budget.epsilon,
        "data_independent_epsilon": _number(spent.epsilon),
        "sanitised_epsilon": None if sanitised_epsilon is None else _number(sanitised_epsilon),
        "adaptive": adaptive,
        "accountant": spent.method,
        "events": [{**to_record(event), "count": count} for event, count in ledger.totals()],
        "labels": dict(labels or {}),
        "units": units,
        "data": None if data is None else dict(data),
        "warnings": [*warnings(quoted, ledger.budget.delta, units), *declared(ledger.entries())],
        "tuned_on": tuned_on,
        "recipe_sha256": recipe_sha256,
        "ledger_head": ledger.head,
        "versions": versions(),
    }
    document["implied_tpr_at_fpr_0.001"] = float(attack_bound(document, 1e-3))
    return document


def declared(rows: Iterable[Entry]) -> list[str]:
    """List, each once, all that a book's notes declare public on somebody's word."""
    found = [row.body["declared"] for row in rows if row.kind == "note" and "declared" in row.body]
    return list(dict.fromkeys(found))


def _mu(quoted: float, spent: accounting.Cost, adaptive: bool) -> tuple[float, bool]:
    """Give μ, and whether the whole release is μ-Gaussian DP or only has the same (ε, δ) at this δ."""
    if math.isinf(quoted) or quoted == 0:
        return quoted, True
    if spent.mu is not None and not adaptive:
        return spent.mu, True
    return float(accounting.epsilon_mu(quoted, spent.delta)), spent.mu is not None  # adaptive Gaussians: the filter's own μ


def attack_bound(document: dict[str, Any], fpr: Any) -> Any:
    """Bound any attack's true-positive rate: by the Gaussian curve where that is proved, else by many (ε, δ) at once.

    What an adaptive run happened to spend bounds nothing: there, without a Gaussian curve, only the quoted pair counts.
    """
    if document["epsilon"] == "infinity":
        return 1.0 + 0 * fpr
    if document["mu_is_exact"]:
        return accounting.implied_tpr(document["mu"], fpr)
    if document["adaptive"]:
        return accounting.tpr_bound(document["epsilon"], document["delta"], fpr)
    pairs = [(from_record({k: v for k, v in event.items() if k != "count"}), event["count"]) for event in document["events"]]
    curve = [(accounting.cost(pairs, delta).epsilon, delta) for delta in np.geomspace(1e-9, 0.1, 33).tolist()]
    return np.minimum.reduce([accounting.tpr_bound(epsilon, delta, fpr) for epsilon, delta in curve])


def versions() -> dict[str, str]:
    """Name the software that made a run; packages that are not there are left out."""
    from tutelage import __version__  # not from the metadata: a checkout may run without being installed

    found = {"python": platform.python_version(), "tutelage": __version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def write(document: dict[str, Any], path: Path) -> None:
    """Write a document as JSON, whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


def _number(value: float) -> float | str:
    return "infinity" if math.isinf(value) else value


def statement(epsilon: float, budget: Budget, excepted: bool) -> str:
    """Say in one sentence what is promised: never less than the figures say."""
    if math.isinf(epsilon):
        return "No guarantee: a private value was looked at without noise."
    change = "Changing all data of" if budget.adjacency == Adjacency.REPLACE_ONE else "Adding or removing"
    what = "anything in this release but what `excepted` names" if excepted else "anything in this release"
    return (
        f"{change} one {budget.unit.name} changes the probability of {what} by a factor of at most "
        f"e^{rounded_up(epsilon, 4)} and an addend of {rounded_up(budget.delta, 6)}."
    )
