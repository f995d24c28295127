"""What a release claims, read strictly: no unknown field, no second meaning, and no sentence that its ledger contradicts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tutelage import manifest
from tutelage.data.provenance import SHOWN
from tutelage.guarantee import EXCEPTED, INTENDED, SCHEMA, opened_with, planned, protects, statement, warned
from tutelage.privacy.errors import Error, LedgerError
from tutelage.privacy.events import NonPrivate, Reserved, Sampled
from tutelage.privacy.files import read_json
from tutelage.privacy.files import reading as reading_file
from tutelage.privacy.ledger import SCHEMA as LEDGER_SCHEMA
from tutelage.privacy.ledger import Entry, charges
from tutelage.privacy.units import Adjacency
from tutelage.tasks.table import TABLE, reading, readings, sealed_scores

FIGURES = ("epsilon", "data_independent_epsilon", "budget_epsilon", "delta", "mu", "implied_tpr_at_fpr_0.001")
_HASH = re.compile(r"[0-9a-f]{64}")
_RANDOM = re.compile(r"[0-9a-f]{32}")
_DTYPE = re.compile(r"[<|][biuf][1-9][0-9]?")
_ALIGNMENT = re.compile(r"alignment-[0-9a-f]{12}\.npz")


def number(value: Any) -> float:
    """Read a figure: a number, or the word for infinity."""
    return math.inf if value == "infinity" else float(value)


def _is_score(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_score(value) and value >= 0


def _is_figure(value: Any) -> bool:
    return value == "infinity" or _is_number(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and bool(_HASH.fullmatch(value))


def _maybe(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: value in words


def _is_labels(value: Any) -> bool:
    return (
        isinstance(value, dict) and set(value) == {"released", "distinct", "reinforced"} and all(map(_is_count, value.values()))
    )


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


#: Every field of guarantee.json, and what it may hold.
_FIELDS: dict[str, Callable[[Any], bool]] = {
    "schema": lambda value: value == SCHEMA and _is_count(value),
    "epsilon": _is_figure,
    "delta": _is_number,
    "mu": _is_figure,
    "unit": _one_of("record", "patient", "institution"),
    "unit_teachers": _is_count,
    "adjacency": _one_of("replace-one", "add-remove"),
    "statement": _is_text,
    "protects": _is_text,
    "excepted": lambda value: value in ([], list(EXCEPTED)),
    "quotes": _one_of("cost", "budget"),
    "mu_is_exact": _is_truth,
    "budget_epsilon": _is_number,
    "data_independent_epsilon": _is_figure,
    "sanitised_epsilon": _maybe(_is_figure),
    "accountant": _is_text,
    "events": lambda value: isinstance(value, list) and all(map(_is_table, value)),
    "labels": _is_labels,
    "task": lambda value: isinstance(value, str) and value in TABLE,
    "adaptive": _is_truth,
    "units": _maybe(_is_count),
    "roster": _maybe(_is_hash),
    "shards": _is_text,
    "ledger": _one_of("own", "shared"),
    "recipe_sha256": _maybe(_is_hash),
    "tuned_on": _is_text,
    "data": _maybe(_is_table),
    "plan": _is_table,
    "warnings": _is_texts,
    "run": _is_text,
    "ledger_head": _is_hash,
    "versions": lambda value: isinstance(value, dict) and _is_texts(list(value.values())),
    "implied_tpr_at_fpr_0.001": lambda value: _is_number(value) and value <= 1,
}


def read_claim(path: Path) -> dict[str, Any]:
    """Read guarantee.json: its documented fields, each once, and nothing else."""
    claim = read_json(path, "guarantee", error=LedgerError)
    if isinstance(claim, dict) and claim.get("schema") == 1:
        raise LedgerError(
            "guarantee.json must have schema 2. Got 1 instead: in releases of that form one unit could move every teacher, so "
            "that their ε does not hold. Run the recipe again with this version, in a new folder."
        )
    wrong = sorted(set(_FIELDS) ^ set(claim)) if isinstance(claim, dict) else ["schema"]
    wrong = wrong or [name for name, check in _FIELDS.items() if not check(claim[name])]
    if wrong:
        raise LedgerError(
            f"guarantee.json must have its documented fields and no others. Got a wrong one, {wrong[0]!a}, instead."
        )
    return dict(claim)


# ── rows of the ledger ────────────────────────────────────────────────────────────────────────────────────────────────


def _is_named(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_share(value: Any) -> bool:
    return isinstance(value, float) and value > 0


def _is_random(value: Any) -> bool:
    return isinstance(value, str) and bool(_RANDOM.fullmatch(value))


#: Every field of a row, and what it may hold. A note has any public facts beside its run.
_BODIES: dict[str, dict[str, Callable[[Any], bool]]] = {
    "open": {
        "schema": lambda value: value == LEDGER_SCHEMA and _is_count(value),
        "ledger": _is_random,
        "epsilon": _is_share,
        "delta": _is_share,
        "unit": _is_text,
        "unit_teachers": _is_count,
        "adjacency": _is_text,
    },
    "start": {"run": _is_named, "plan": _is_named},
    "charge": {"event": _is_table, "count": _is_count, "nonce": _is_random, "run": _is_text},
    "release": {
        "count": _is_count,
        "dtype": lambda value: isinstance(value, str) and bool(_DTYPE.fullmatch(value)),
        "shape": lambda value: isinstance(value, list) and all(map(_is_count, value)),
        "sha256": _is_hash,
        "run": _is_text,
    },
}
_FACT = (str, int, float, type(None))


def check_rows(rows: list[Entry]) -> None:
    """Refuse rows that no ledger writes, and more answers than had been charged for when they were released."""
    charged = released = 0
    for row in rows:
        if row.kind not in ("start", "charge", "release", "note") and row is not rows[0]:
            raise LedgerError(
                f"the book's rows must be starts, charges, releases and notes. Got another at row {row.seq!a} instead."
            )
        if not (_is_count(row.seq) and _is_body(row)):
            raise LedgerError(f"the book's rows must hold what a ledger writes. Got something else at row {row.seq!a} instead.")
        count = row.body["count"] if row.kind in ("charge", "release") else 0
        charged, released = charged + count * (row.kind == "charge"), released + count * (row.kind == "release")
        if released > charged:
            raise LedgerError(
                f"every answer must be charged for before it is released. Got more answers at row {row.seq} instead."
            )
    with reading_file("book.jsonl", "book", error=LedgerError):
        budget = opened_with(rows)
        _check_sampled(rows, budget.adjacency)


def _is_body(row: Entry) -> bool:
    if row.kind == "note":
        named = _is_text(row.body.get("run")) and _is_text(row.body.get("declared", ""))
        return named and all(isinstance(fact, _FACT) for fact in row.body.values())
    checks = _BODIES[row.kind]
    return set(row.body) == set(checks) and all(check(row.body[name]) for name, check in checks.items())


def _check_sampled(rows: list[Entry], adjacency: Adjacency) -> None:
    """Refuse sampled events where no theorem covers them, as a ledger does when they are charged."""
    proved = {"poisson": Adjacency.ADD_REMOVE, "fixed": Adjacency.REPLACE_ONE}
    plans: dict[str, set[str]] = {}
    runs, sampled = set[str](), False
    for row in rows:
        if row.kind == "start":
            plans.setdefault(row.body["run"], set()).add(row.body["plan"])
        for event, _ in charges([row]):
            runs.add(run := row.body["run"])
            sampled |= isinstance(event, (Sampled, Reserved))
            inner = event.event if isinstance(event, Reserved) else event
            if isinstance(inner, Sampled) and proved[inner.sampler] != adjacency:
                raise LedgerError(f"a sampled event must be proved for {adjacency} books. Got {inner.sampler!r} instead.")
            if sampled and not isinstance(event, NonPrivate) and (len(runs) > 1 or len(plans.get(run, ())) > 1):
                raise LedgerError(
                    f"sampled events must be in a book of one run with one plan. Got another at row {row.seq} instead."
                )


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_words(claim: dict[str, Any], rows: list[Entry]) -> None:
    """Hold what guarantee.json says in words to its figures, and to what the ledger noted when the run started."""
    budget, epsilon = opened_with(rows), number(claim["epsilon"])
    if claim["statement"] != statement(epsilon, budget, bool(claim["excepted"])):
        raise LedgerError("`statement` must say what the figures say. Got another sentence instead.")
    if claim["protects"] != protects(budget, claim):
        raise LedgerError("`protects` must say what the unit, the roster and the ledger say. Got another sentence instead.")
    if claim["warnings"] != warned(epsilon, claim["delta"], claim["units"], rows):
        raise LedgerError(
            "`warnings` must hold what the figures and the book's notes need, and no more. Got another list instead."
        )
    plans = [row.body["plan"] for row in rows if row.kind == "start" and row.body["run"] == claim["run"]]
    if not plans or plans[-1] != planned(claim):
        names = ", ".join(f"`{name}`" for name in INTENDED)
        raise LedgerError(f"{names} must be what the book noted when the run started. Got something else instead.")
    _check_shards(claim)
    if len({row.body["run"] for row in rows if row.kind == "start"}) > 1 and claim["ledger"] == "own":
        raise LedgerError("`ledger` must be 'shared' where the book holds several runs. Got 'own' instead.")
    if claim["recipe_sha256"] not in (None, claim["run"]):
        raise LedgerError("`recipe_sha256` must name the run in the book. Got another instead.")
    if claim["sanitised_epsilon"] is not None and not any(event.get("kind") == "SmoothRelease" for event in claim["events"]):
        raise LedgerError("`sanitised_epsilon` must be null where no such release was charged. Got a figure instead.")


def _check_shards(claim: dict[str, Any]) -> None:
    """Hold the rule of the shards, the roster's hash and its length to each other."""
    placed = claim["shards"].startswith("place on the roster ")
    same = claim["shards"].startswith(f"place on the roster {claim['roster']}|")
    if (claim["units"] is None) != (claim["roster"] is None) or placed != same:
        raise LedgerError("`units`, `roster` and `shards` must be about one roster, or none. Got different ones instead.")


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_files(claim: dict[str, Any], rows: list[Entry], release: Path, files: frozenset[str]) -> None:
    """Hold the files of a release to its guarantee, and both to how much the ledger released."""
    if strangers := sorted(name for name in files if not manifest.allowed(name)):
        raise LedgerError(f"a release must hold files of known names alone. Got {strangers[0]!a} instead.")
    if not any(name.split(".")[0] in ("student", "generator") for name in files):
        raise LedgerError("a release must hold a student or a generator. Got none instead.")
    scores = read_json(release / "scores.json", "scores", error=LedgerError)
    if not isinstance(scores, dict) or not all(map(_is_score, scores.values())):
        raise LedgerError("scores.json must hold figures by their names. Got something else instead.")
    if not claim["excepted"] and (sealed_scores() & set(scores) or "stages.npy" in files):
        raise LedgerError("`excepted` must name what was computed without noise. Got an empty list beside such figures instead.")
    _check_counts(claim, rows, release, files)
    check_data(claim["data"], release, files)
    _check_recipe(claim["recipe_sha256"], release, files)


def _check_counts(claim: dict[str, Any], rows: list[Entry], release: Path, files: frozenset[str]) -> None:
    """Refuse more answers than the ledger released to this run."""
    labels, mine = claim["labels"], [row for row in rows if row.body.get("run") == claim["run"]]
    begun = {row.body["reservation"]: row.body["begun"] for row in mine if row.kind == "note" and "reservation" in row.body}
    kept = sum(row.body["count"] for row in mine if row.kind == "release") + sum(begun.values())
    paid = sum(_answers(row) for row in mine if row.kind == "charge")
    if not labels["distinct"] <= min(kept, paid) or not labels["distinct"] <= labels["released"]:
        raise LedgerError("`labels` must count no more answers than the book released to this run. Got more instead.")
    if (labels["distinct"] == 0) != (labels["released"] == 0):
        raise LedgerError("`labels` must count different records among those that were answered. Got none instead.")
    task = reading(claim["task"])
    if task.answers not in files:
        raise LedgerError(f"a release about {claim['task']} must hold {task.answers}. Got none instead.")
    if others := {one.answers for one in readings()} & files - {task.answers}:
        raise LedgerError(f"a release about {claim['task']} must hold no other answers. Got {min(others)} instead.")
    with reading_file(release / task.answers, "answers", error=LedgerError):
        counts = task.count(release / task.answers, labels["released"])
    if counts != (labels["released"], labels["reinforced"]):
        raise LedgerError(f"`labels` must count what {task.answers} holds. Got others instead.")


def _answers(row: Entry) -> int:
    """Count the answers that a charge pays for."""
    event, count = row.body["event"], int(row.body["count"])
    if event.get("kind") == "Reserved":
        return count * int(event["rounds"])
    return count if event.get("kind") in ("NoisyMax", "Gaussian", "SummedGaussian", "Laplace") else 0


def check_data(data: Any, release: Path, files: frozenset[str]) -> None:
    """Refuse a hash of anything but public parts: one of private records is a function of them, without noise."""
    if data is None:  # a run from Python
        return
    known = set(data) - {"alignment"} == {"set", "split", "published", "hashes"}
    hashes = data.get("hashes") if known else None
    if not isinstance(hashes, dict) or not set(hashes) <= set(SHOWN):
        raise LedgerError(f"`data` must name a set, its split and hashes of {', '.join(SHOWN)} alone. Got others instead.")
    plain = isinstance(data["published"], bool) and all(isinstance(data[name], (str, type(None))) for name in ("set", "split"))
    if not plain or not all(map(_is_hash, hashes.values())):
        raise LedgerError("`data` must hold names, a truth value and hashes of 64 digits. Got others instead.")
    named = "alignment" in data and isinstance(data["alignment"], str) and bool(_ALIGNMENT.fullmatch(data["alignment"]))
    if not named == ("moved" in hashes) == ("alignment" in data):
        raise LedgerError(
            "`data.alignment` must name the file that says where public images went, beside the hash `moved` of where that is. "
            "Got one without the other, or another name, instead."
        )
    if named and (data["alignment"] not in files or _moved(release / data["alignment"]) != hashes["moved"]):
        raise LedgerError(
            f"`{data['alignment']}` must move the public pool to where `data.hashes.moved` says. Got another file instead."
        )
    if "split" in hashes and data.get("published") is not True:
        raise LedgerError("`data` must hash the split of a published set alone. Got that of another instead.")


def _moved(file: Path) -> str:
    """Read which pool a file moves the images to."""
    with reading_file(file, "alignment", error=LedgerError), np.load(file, allow_pickle=False) as arrays:
        return bytes(arrays["moved"]).hex()


def _check_recipe(digest: str | None, release: Path, files: frozenset[str]) -> None:
    """Refuse another recipe than the run's, and any other way to write it."""
    if (digest is None) != ("recipe.toml" not in files):
        raise LedgerError(
            "recipe.toml must be there where `recipe_sha256` names it, and only there. Got one without the other instead."
        )
    if digest is None:
        return
    from tutelage.recipes.recipe import parse  # here: releases of runs from Python need no recipes to be checked
    from tutelage.recipes.written import written

    path = release / "recipe.toml"
    with reading_file(path, "recipe", error=LedgerError):
        text = path.read_bytes().decode()
        try:
            recipe = parse(text)
        except Error:
            recipe = None
    if recipe is None or recipe.sha256 != digest or written(recipe) != text:
        raise LedgerError("recipe.toml must be the recipe that `recipe_sha256` names. Got another instead.")


def unbound(claim: dict[str, Any], files: frozenset[str]) -> tuple[str, ...]:
    """List what cannot be checked in a release: only the manifest's hash binds it."""
    listed = [
        "that everything went through the curator, and that no second ledger exists for the same data",
        "that shards were divided as `shards` says, and that ids stand for different units",
        f"the answers' own values ({reading(claim['task']).answers}): the book holds their number and a hash for its owner",
        "what the student learned, scores, measures, pictures and pages",
        "`tuned_on`, `versions`, `accountant`, and what `data` and `plan` describe",
        "figures above what the book costs (a more modest claim is the owner's to make)",
    ]
    if "inputs.json" in files:
        listed.append("that what inputs.json declares was fixed beforehand, and not read off private records")
    if claim["roster"] is not None:
        listed.append("that the roster was fixed beforehand and is public")
    if claim["sanitised_epsilon"] is not None:
        listed.append("`sanitised_epsilon`: an estimate whose release was charged; the figure itself is not in the book")
    if claim["labels"]["distinct"] < claim["labels"]["released"]:
        listed.append("that records which are answered together are equal")
    if claim["recipe_sha256"] is None:
        listed.append("how the run was made: it was started from Python, without a recipe")
    return tuple(listed)
