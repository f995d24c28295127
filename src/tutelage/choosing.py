"""The choosing: a recipe's budget and teachers, public or simulated votes, and a table of what to take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tutelage.choice import Choice, best, dependent_epsilon, sanitised
from tutelage.console import console, emit, figure, say, table
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.ledger import Budget
from tutelage.simulation import read, simulate

USEFUL = 0.95  # of the more useful plan: how much worth a smaller sanitised figure may cost
HEADINGS = {
    "method": "method",
    "queries": "questions",
    "sigma": "σ",
    "threshold": "threshold",
    "test_ratio": "ratio",
    "answers": "answers",
    "right": "right",
    "wrong": "wrong",
    "utility": "worth",
    "epsilon": "ε",
    "dependent_epsilon": "ε of votes",
    "sanitised_epsilon": "sanitised",
    "sanitised_deviation": "±",
}


def choose_for(
    path: Path | None,
    epsilon: float | None,
    accuracy: float | None,
    agreement: float | None,
    votes: Path | None,
    penalty: float,
    *,
    as_json: bool = False,
) -> None:
    """Print the plans that suit a recipe's budget, teachers and most questions, and the best one as the recipe would have it."""
    from tutelage.recipes.run import classes
    from tutelage.recipes.shelf import taken

    if path is None:
        raise RecipeError("`recipe` must be given with --choose: its budget, teachers and most questions. Got none instead.")
    recipe = taken(path)
    if recipe.about_masks or recipe.how().vectors:
        raise RecipeError(
            "`recipe` must be one whose teachers vote for labels, with --choose. Got one that lets out codes instead."
        )
    if recipe.how().interactive:
        raise RecipeError(
            "`aggregation.method` must be 'gnmax', 'lnmax' or 'confident-gnmax' with --choose. Got 'interactive-gnmax' instead: "
            "what its test lets pass depends on a student, which votes alone do not tell."
        )
    budget = recipe.budget() if epsilon is None else replace(recipe.budget(), epsilon=epsilon)
    found = choices(
        budget,
        classes(recipe),
        recipe.teachers.shards,
        recipe.aggregation.queries,
        accuracy=accuracy,
        agreement=agreement,
        file=votes,
        penalty=penalty,
        sanitise=recipe.aggregation.sanitise is not None,
    )
    rows = [choice.figures() for choice in found]
    if as_json:
        emit([{**row, "source": choice.source, "toml": choice.toml()} for row, choice in zip(rows, found, strict=True)])
        return
    shown = [name for name in HEADINGS if any(row[name] is not None for row in rows)]
    made = table(f"{recipe.name}: expected on these votes; the first is to be taken", *(HEADINGS[name] for name in shown))
    for row in rows:
        made.add_row(*(row[name] if isinstance(row[name], str) else figure(row[name]) for name in shown))
    console().print(made)
    say(found[0].toml())
    say(f"Chosen on {found[0].source}. Votes of private teachers must never be used for this.", style="bold")


def choices(
    budget: Budget,
    classes: int,
    teachers: int,
    queries: int,
    *,
    accuracy: float | None = None,
    agreement: float | None = None,
    file: Path | None = None,
    penalty: float = 1.0,
    sanitise: bool = False,
) -> list[Choice]:
    """Choose on simulated teachers of an accuracy or on a file of public votes; with the data-dependent ε to expect."""
    if file is None and accuracy is not None:
        votes = simulate(classes, teachers, accuracy, agreement=agreement)
    elif file is not None and accuracy is None and agreement is None:
        votes = read(file)
    else:
        raise RecipeError("`votes` must be either simulated (--teacher-accuracy) or a file (--votes). Got both or none instead.")
    if (votes.classes, votes.teachers) != (classes, teachers):
        raise RecipeError(
            f"`votes` must be of the recipe's {teachers} teachers and {classes} classes. "
            f"Got {votes.teachers} and {votes.classes} instead."
        )
    found = best(votes, budget, queries=queries, penalty=penalty)
    if sanitise:  # more noise is cheaper whatever the votes, and dearer on votes that agree: try the cheapest and the most useful
        tried = [sanitised(votes, one, budget) for one in found[:2]]
        useful = [one for one in tried if one.utility >= USEFUL * max(other.utility for other in tried)]
        found = [min(useful, key=lambda one: (one.sanitised_epsilon or 0.0) + (one.sanitised_deviation or 0.0)), *found[2:]]
    if budget.unit.teachers != 1:  # the data-dependent price is that of one vote
        return found
    # What holds for all votes holds for these: the lesser of the two readings, as a run keeps it.
    return [replace(one, dependent_epsilon=min(dependent_epsilon(votes, one, budget), one.epsilon)) for one in found]
