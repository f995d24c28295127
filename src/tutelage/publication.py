"""Begin a run on a ledger, and publish what it released: the same for every walk, whatever it asks."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tutelage import guarantee as guarantees
from tutelage.data.dataset import Private
from tutelage.data.provenance import counted
from tutelage.privacy.errors import LedgerError
from tutelage.privacy.ledger import Ledger, read_lines
from tutelage.privacy.units import Shards
from tutelage.runs import RunFolder

OPENED = "as the oracle was opened"  # the rule of the shards, where somebody else divided the records


def named(folder: RunFolder, purpose: str) -> str:
    """Name the run in its ledger: by its recipe's hash, or by a random name, so that no other run is given its answers."""
    begun = folder.state.get("run")
    name = purpose or begun or secrets.token_hex(16)
    if begun not in (None, name):
        raise LedgerError(
            "`recipe` must be the one that this folder was begun with. Got one that was changed since instead: take a new --out."
        )
    return name


def begin(
    folder: RunFolder,
    ledger: Ledger,
    run: str,
    *,
    task: str,
    adaptive: bool,
    plan: Mapping[str, Any],
    private: Private | None = None,
    parts: Shards | None = None,
    shards: str = OPENED,
    recipe: str = "",
    **facts: Any,
) -> dict[str, Any]:
    """Take an earlier release back, and write down what is planned: in the ledger its hash, for the guarantee all of it.

    `facts` are further fields of guarantee.intended. Without `private` the records are somebody else's, who divided them.
    """
    roster = None if private is None else private.roster
    about = guarantees.intended(
        task=task, adaptive=adaptive, plan=plan, ledger=folder.own(ledger), recipe_sha256=run if recipe else None,
        units=None if private is None else private.places, roster=None if roster is None else roster.sha256,
        shards=shards if parts is None else parts.key, **facts,
    )  # fmt: skip
    folder.reopen()
    folder.keep(ledger, run)
    ledger.begin(run, plan=guarantees.planned(about))
    folder.keep(ledger, run)
    if private is not None:
        folder.write_inside(folder.inside_data, json.dumps(counted(private), indent=2) + "\n")
    if recipe:
        folder.recipe.write_text(recipe, encoding="utf-8")
    return about


def publish(
    folder: RunFolder,
    ledger: Ledger,
    about: Mapping[str, Any],
    *,
    scores: Mapping[str, float],
    counts: Mapping[str, int],
    exposed: Mapping[str, float] | None = None,
    sanitised: float | None = None,
    declared: Sequence[str] = (),
    pages: Callable[[RunFolder], object] | None = None,
) -> dict[str, Any]:
    """Export the ledger, write the guarantee that follows from the exported rows alone, and publish the draft.

    `exposed` are figures computed from private data that is public anyway. `declared` counts as public on somebody's word.
    """
    known = guarantees.declared(ledger.entries())
    for sentence in dict.fromkeys(declared):
        if sentence not in known:  # once: `verify` misses it where a guarantee leaves it out
            ledger.note(declared=sentence)
    write_scores(folder, {**scores, **(exposed or {})})
    ledger.export(folder.exported_book)
    document = guarantees.guarantee(
        read_lines(folder.exported_book), run=ledger.run, about=about, sanitised_epsilon=sanitised, labels=counts,
        excepted=guarantees.EXCEPTED if exposed else (),
    )  # fmt: skip
    guarantees.write(document, folder.guarantee)
    if pages is not None:
        pages(folder)
    folder.publish(ledger)
    return document


def write_scores(folder: RunFolder, scores: Mapping[str, float]) -> None:
    """Write the published scores."""
    plain = {str(name): score for name, score in scores.items()}
    folder.scores.write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
