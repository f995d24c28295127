"""How finished runs are told: as a table for people, as a document for programs. Never more than the release shows."""

from __future__ import annotations

import json
import math
from typing import Any

from tutelage.console import console, promised, say, table, warn
from tutelage.metrics import BESIDE
from tutelage.rounding import percent
from tutelage.tasks.scores import Score
from tutelage.tasks.table import reading


def published(outcome: Any) -> dict[str, float]:
    """Read the scores that the release shows; those that stay under private/ are not printed either."""
    scores: dict[str, float] = json.loads(outcome.folder.scores.read_text(encoding="utf-8"))
    return scores


def summary(outcome: Any) -> dict[str, Any]:
    """Give guarantee, published scores and folder."""
    return {"guarantee": outcome.guarantee, "scores": published(outcome), "folder": str(outcome.folder.root)}


def show(runs: list[tuple[str, Any]]) -> None:
    """Print runs side by side: what each reached, and what it cost."""
    scores = [published(outcome) for _, outcome in runs]
    guarantees = [outcome.guarantee for _, outcome in runs]
    tasks = [reading(one["task"]) for one in guarantees]
    made = table(f"{tasks[0].heading} on held-out public data, and what it cost", "", *(title for title, _ in runs))
    for name in dict.fromkeys(name for one in scores for name in one if not name.startswith(BESIDE)):
        row = (task.figure(one[name]) if name in one else "" for task, one in zip(tasks, scores, strict=True))
        made.add_row(name, *row, style="bold" if name == Score.STUDENT else None)
    made.add_section()
    for label, key in (("ε to quote", "epsilon"), ("ε as charged", "data_independent_epsilon"), ("δ", "delta")):
        made.add_row(label, *(promised(g[key]) for g in guarantees))
    mus = (("" if g["mu_is_exact"] else "~") + promised(g["mu"]) for g in guarantees)
    made.add_row("μ (~: of a Gaussian answer with this ε, δ)", *mus)
    made.add_row("best attack at 0.1 % FPR", *(percent(g["implied_tpr_at_fpr_0.001"]) for g in guarantees))
    made.add_row("answers", *(f"{g['labels']['released']:,}" for g in guarantees))
    if any(g["labels"]["reinforced"] for g in guarantees):
        made.add_row("the student's own labels", *(f"{g['labels']['reinforced']:,}" for g in guarantees))
    console().print(made)
    # Where a control wins, the page is not the only place to say so.
    verdicts = [(title, task.verdict(one)) for (title, _), task, one in zip(runs, tasks, scores, strict=True)]
    warn([f"{title}: {verdict}" for title, verdict in verdicts if verdict])
    for title, outcome in runs:
        warn([f"{title}: {warning}" for warning in outcome.guarantee["warnings"]])


def verified(verdicts: list[Any], together: Any) -> dict[str, Any]:
    """Give what was found of one release, or of several and of all together."""
    plain = [{"verified": True, **written(vars(verdict))} for verdict in verdicts]
    return plain[0] if together is None else {"verified": True, "releases": plain, "together": written(vars(together))}


def written(found: dict[str, Any]) -> dict[str, Any]:
    """Write infinite figures as a word: JSON has none."""
    return {name: "infinity" if isinstance(one, float) and math.isinf(one) else one for name, one in found.items()}


def show_verdicts(titles: list[str], verdicts: list[Any], together: Any) -> None:
    """Print what was found of each release, what was not checked, and what holds for all of them."""
    for title, verdict in zip(titles, verdicts, strict=True):
        what = "what was charged" if verdict.quotes == "cost" else "the budget"
        made = table("verified" if together is None else f"verified: {title}", "what", "found", numbers=False)
        made.add_row("ε claimed", f"{promised(verdict.claimed_epsilon)} ({what})")
        made.add_row("ε recomputed from the book", f"{promised(verdict.recomputed_epsilon)} ({verdict.accountant})")
        made.add_row("δ", promised(verdict.delta))
        made.add_row("chain", f"{verdict.rows} rows unbroken, {verdict.events:,} events")
        made.add_row("book", "the one under private/ begins with it" if verdict.against_private_book else "the export alone")
        made.add_row("head", verdict.head)
        made.add_row("SHA-256 of the manifest", verdict.manifest)
        console().print(made)
        say("Not checked: for these you have to trust the maker of the release:")
        for word in verdict.unbound:
            say(f"  {word}")
        if not verdict.against_private_book:
            say("Compare the SHA-256 of the manifest with the one that the data's owner prints: it binds every file.")
    if together is not None:
        say(
            f"Together: one ledger, ε {promised(together.epsilon)} of {promised(together.budget_epsilon)} spent; "
            "its budget holds for all of them."
        )


def show_ledger(found: dict[str, Any]) -> None:
    """Print a ledger's budget, what was spent of it, and by whom."""
    made = table("ledger", "what", "found", numbers=False)
    made.add_row("budget", f"ε {promised(found['budget_epsilon'])}, δ {promised(found['delta'])}")
    made.add_row("unit", found["unit"])
    made.add_row("ε spent", promised(found["spent_epsilon"]))
    made.add_row("runs", ", ".join(run[:12] for run in found["runs"]) or "none")
    made.add_row("head", f"{found['head']} ({found['rows']} rows)")
    console().print(made)
    say("What was spent is for planning. Where several runs share the ledger, each quotes the budget.")
