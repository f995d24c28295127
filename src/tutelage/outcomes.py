"""How finished runs are told: as a table for people, as a document for programs. Never more than the release shows."""

from __future__ import annotations

import json
from typing import Any

from tutelage.console import console, promised, table, warn
from tutelage.metrics import BESIDE
from tutelage.report import page, stages
from tutelage.rounding import percent


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
    masks = any(outcome.folder.answers.exists() for _, outcome in runs)
    what = "Dice (two empty masks: 1)" if masks else "accuracy"
    made = table(f"{what} on held-out public data, and what it cost", "", *(title for title, _ in runs))
    for name in dict.fromkeys(name for one in scores for name in one if not name.startswith(BESIDE)):
        row = ("" if name not in one else f"{one[name]:.3f}" if masks else f"{one[name]:.1%}" for one in scores)
        made.add_row(name, *row, style="bold" if name == "private student" else None)
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
    told = [(title, stages.verdict(one) if masks else page.verdict(one)) for (title, _), one in zip(runs, scores, strict=True)]
    warn([f"{title}: {said}" for title, said in told if said])  # where a control wins, the page is not the only place to say so
    for title, outcome in runs:
        warn([f"{title}: {warning}" for warning in outcome.guarantee["warnings"]])
