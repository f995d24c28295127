"""What a run promises, in one file that people and programs can read. Schema: docs/reference/guarantee.md."""

from __future__ import annotations

import hashlib
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
from tutelage.privacy.events import Event, from_record, to_record
from tutelage.privacy.files import write_whole
from tutelage.privacy.ledger import Budget, Entry, charges, quotable
from tutelage.privacy.units import Adjacency, Unit
from tutelage.rounding import rounded_up

SCHEMA = 2
#: What is shown where the private data is public anyway.
EXCEPTED = (
    "controls in scores.json and report.html (for masks also the stages' pictures, stages.npy): computed without noise, "
    "from a data set that is public anyway",
)
_PACKAGES = ("numpy", "scipy", "dp-accounting", "scikit-learn", "torch")


def guarantee(
    rows: Sequence[Entry],
    *,
    run: str,
    about: Mapping[str, Any],
    sanitised_epsilon: float | None = None,
    excepted: Sequence[str] = (),
    labels: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Describe what an exported ledger guarantees for one of its runs.

    `epsilon` is the figure to quote. It is the cost where that was fixed beforehand: by one run alone, under one plan, without a
    test. Elsewhere it is the budget, which the filter held; the cost so far is `data_independent_epsilon` and bounds nothing.
    `about` is what was planned (see `intended`): the ledger holds its hash. `excepted` names what in the release the figures do
    not cover. What the ledger's notes declare public on somebody's word stands among the
    warnings, whichever start of the run declared it.
    """
    budget, tested = opened_with(rows), bool(about["adaptive"])
    pairs = counted(rows)
    spent = accounting.cost(pairs, budget.delta)
    own = quotable(rows, run)
    infinite, quotes = math.isinf(spent.epsilon), "budget" if tested or not own else "cost"
    quoted = math.inf if infinite else max(budget.epsilon, spent.epsilon) if quotes == "budget" else spent.epsilon
    mu, exact = _mu(quoted, spent, quotes, own)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "epsilon": _number(quoted),
        "delta": budget.delta,
        "mu": _number(mu),
        "unit": budget.unit.name,
        "unit_teachers": budget.unit.teachers,
        "adjacency": str(budget.adjacency),
        "statement": statement(quoted, budget, bool(excepted)),
        "protects": protects(budget, about),
        "excepted": list(excepted),
        "quotes": quotes,
        "mu_is_exact": exact,
        "budget_epsilon": budget.epsilon,
        "data_independent_epsilon": _number(spent.epsilon),
        "sanitised_epsilon": None if sanitised_epsilon is None else _number(sanitised_epsilon),
        "accountant": spent.method,
        "events": [{**to_record(event), "count": count} for event, count in pairs],
        "labels": dict(labels or {"released": 0, "distinct": 0, "reinforced": 0}),
        **about,
        "warnings": warned(quoted, budget.delta, about["units"], rows),
        "run": run,
        "ledger_head": rows[-1].hash,
        "versions": versions(),
    }
    document["implied_tpr_at_fpr_0.001"] = float(attack_bound(document, 1e-3))
    return document


def intended(
    *,
    task: str,
    adaptive: bool,
    units: int | None,
    roster: str | None,
    shards: str,
    ledger: str,
    recipe_sha256: str | None = None,
    tuned_on: str = "not stated",
    data: Mapping[str, Any] | None = None,
    plan: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Give what a run says about itself before it starts: the fields of its guarantee whose hash its ledger holds.

    `units` is the number of places on a public roster, whose hash is `roster`: None without one, as their number is private
    then. `shards` is the rule that divided them, `ledger` "own" or "shared". `data` is what may be told about the data
    (data.provenance): never a hash of private records. `plan` says what will be asked and how.
    """
    return {
        "task": task,
        "adaptive": adaptive,
        "units": units,
        "roster": roster,
        "shards": shards,
        "ledger": ledger,
        "recipe_sha256": recipe_sha256,
        "tuned_on": tuned_on,
        "data": None if data is None else dict(data),
        "plan": dict(plan or {}),
    }


#: The fields of a guarantee whose hash a ledger's start row holds.
INTENDED = ("task", "adaptive", "units", "roster", "shards", "ledger", "recipe_sha256", "tuned_on", "data", "plan")


def planned(document: Mapping[str, Any]) -> str:
    """Hash what was planned: what the ledger notes when a run starts."""
    text = json.dumps({name: document[name] for name in INTENDED}, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def opened_with(rows: Sequence[Entry]) -> Budget:
    """Read the budget out of a ledger's first row."""
    body = rows[0].body
    return Budget(body["epsilon"], body["delta"], Unit(body["unit"], body["unit_teachers"]), Adjacency(body["adjacency"]))


def counted(rows: Sequence[Entry]) -> list[tuple[Event, int]]:
    """Count every kind of event that was charged."""
    tally: dict[Event, int] = {}
    for event, count in charges(rows):
        tally[event] = tally.get(event, 0) + count
    return list(tally.items())


def warned(epsilon: float, delta: float, units: int | None, rows: Iterable[Entry]) -> list[str]:
    """List the warnings that these figures need, and what is public on somebody's word alone."""
    return [*warnings(epsilon, delta, units), *declared(rows)]


def declared(rows: Iterable[Entry]) -> list[str]:
    """List, each once, all that a book's notes declare public on somebody's word."""
    found = [row.body["declared"] for row in rows if row.kind == "note" and "declared" in row.body]
    return list(dict.fromkeys(found))


def later(rows: Iterable[Entry], run: str) -> bool:
    """Tell whether rows that were written after a release leave it as it is: notes, starts, and what other runs were charged."""
    return all(row.kind in ("note", "start") or row.body.get("run") not in ("", run) for row in rows)


def _mu(quoted: float, spent: accounting.Cost, quotes: str, own: bool) -> tuple[float, bool]:
    """Give μ, and whether the whole release is μ-Gaussian DP or only has the same (ε, δ) at this δ."""
    if math.isinf(quoted) or quoted == 0:
        return quoted, True
    if spent.mu is not None and quotes == "cost":
        return spent.mu, True
    # Of one plan whose events are all Gaussian, the filter's own μ. Another plan might have had other events.
    return float(accounting.epsilon_mu(quoted, spent.delta)), spent.mu is not None and own


def attack_bound(document: dict[str, Any], fpr: Any) -> Any:
    """Bound any attack's true-positive rate: by the Gaussian curve where that is proved, else by many (ε, δ) at once.

    What a run spent bounds nothing where the budget is quoted: there, without a Gaussian curve, only the quoted pair counts.
    """
    if document["epsilon"] == "infinity":
        return 1.0 + 0 * fpr
    if document["mu_is_exact"]:
        return accounting.implied_tpr(document["mu"], fpr)
    if document["quotes"] == "budget":
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
    write_whole(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


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


def protects(budget: Budget, about: Mapping[str, Any]) -> str:
    """Say whom and what the guarantee protects, what it does not, and which other runs it covers."""
    who = budget.unit.name
    if budget.adjacency == Adjacency.ADD_REMOVE:
        whom = f"Protected is whether one {who} takes part, and all that it holds; how many there may be is public."
    else:
        whom = (
            f"Protected is everything under the id of one {who}: labels, contents, the order of rows, more records, fewer, none. "
            f"A {who} that comes back under another id counts as two. "
            "Data sets that share a record with the public pool or the test part are refused: "
            "neighbours are data sets that do not."
        )
        whom += (
            f" How many {who}s there are is private."
            if about["units"] is None
            else f" The roster of {about['units']:,} places is public: being on it is not protected."
        )
    if about["ledger"] == "shared":
        return f"{whom} The budget covers all runs that share this ledger."
    return f"{whom} These figures cover this run alone: those of other runs on the same data add to them."
