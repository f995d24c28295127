"""The command `tutelage audit`: print what was found, the result first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tutelage.audits.audit import audit, exit_code
from tutelage.audits.roc import RATES
from tutelage.audits.verdict import Verdict
from tutelage.console import bars, console, emit, say, table
from tutelage.privacy.errors import RecipeError


def carried_out(given: Mapping[str, Any], *, asked: bool, as_json: bool) -> int:
    """Audit, print, and give the exit code."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given["model"] is None and given["run"] is None:
        raise RecipeError("`run` must be a run folder, or --model a model. Got none instead.")
    if given["model"] is not None and (given["members"] is None or given["non_members"] is None):
        raise RecipeError("`members` and `non_members` must be given with a model. Got one or none of them instead.")
    with bars(as_json) as tell:
        found = audit(**given, progress=tell, say=None if as_json else (lambda text: say(text, stderr=True)))
    if as_json:
        emit(found.document())
    else:
        _show(found)
        if given["run"] is not None or given["out"] is not None:
            place = given["out"] or given["run"]
            say(f"wrote {place}/private/audit: audit.html, audit.json and the rows of single records")
    # What a mechanism alone shows follows from no record. A model's members are the caller's own.
    return exit_code(found, asked=asked or found.models == 0)


def _show(found: Verdict) -> None:
    """Print the result, then tables."""
    say(found.line, style="bold red" if found.refuted else "bold")
    for other in found.findings[1:]:
        say(other, style="red")
    if found.bounds:
        title = f"lower bounds on ε, {1 - found.alarm:.0%} confidence"
        made = table(title, "bound", "ε ≥", "μ ≥", "samples", "assumes that", numbers=False)
        for bound in found.bounds:
            mu = "" if bound.mu is None else f"{bound.mu:.3f}"
            made.add_row(bound.method, f"{bound.epsilon:.3f}", mu, f"{bound.members} + {bound.others}", bound.assumption)
        console().print(made)
    if found.curves:
        made = table("attacks", "attack", "AUC", "balanced accuracy", *(f"TPR at {rate:.1%} FPR" for rate in RATES))
        for name, roc in found.curves.items():
            rates = (str(roc.at(rate)) for rate in RATES)
            made.add_row(name, f"{roc.auc:.3f}", f"{roc.balanced_accuracy:.1%}", *rates)
        console().print(made)
        say(f"{found.models} shadow runs; {found.canaries}" if found.models else found.canaries)
    if not found.public_data and found.models:
        say("These figures follow from private records, and nobody has paid for them: they stay on this machine.")
