"""The choosing: a recipe's budget and teachers, public or simulated votes and students, and a table of what to take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tutelage.choice import INTERACTIVE, PLAIN, Choice, best, dependent_epsilon, sanitised
from tutelage.console import console, emit, figure, say, table
from tutelage.planning import Aggregation
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.ledger import Budget
from tutelage.simulation import PublicVotes, read, simulate, with_student

USEFUL = 0.95  # of the more useful plan: how much worth a smaller sanitised figure may cost
HEADINGS = {
    "method": "method",
    "queries": "questions",
    "sigma": "σ",
    "threshold": "threshold",
    "test_ratio": "ratio",
    "answers": "answers",
    "right": "right",
    "known": "known",
    "wrong": "wrong",
    "own": "own",
    "mistaken": "own wrong",
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
    student: float | None = None,
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
            f"`recipe` must be one whose teachers vote for labels, with --choose. Got one {_what_leaves(recipe)} instead."
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
        student=student,
        penalty=penalty,
        how=recipe.how(),
    )
    texts = [choice.toml(questions=recipe.aggregation.questions) for choice in found]
    rows = [choice.figures() for choice in found]
    if as_json:
        emit([{**row, "source": found[0].source, "toml": text} for row, text in zip(rows, texts, strict=True)])
        return
    shown = [name for name in HEADINGS if any(row[name] is not None for row in rows)]
    title = f"{recipe.name}: expected on these votes; the first is to be taken"
    if recipe.how().interactive:  # the one method, with more figures than a line holds beside its name
        shown, title = shown[1:], f"{title} ({INTERACTIVE})"
    made = table(title, *(HEADINGS[name] for name in shown))
    for row in rows:
        made.add_row(*(row[name] if isinstance(row[name], str) else figure(row[name]) for name in shown))
    console().print(made)
    say(texts[0])
    say(f"Chosen on {found[0].source}. Votes of private teachers must never be used for this.", style="bold")


def _what_leaves(recipe: Any) -> str:
    """Say what a recipe lets out that is no vote for a label."""
    if not recipe.about_masks:
        return "that lets out means of what they say"
    return "whose teachers vote for regions" if recipe.codec["kind"] == "region-votes" else "that lets out codes of masks"


def choices(
    budget: Budget,
    classes: int,
    teachers: int,
    queries: int,
    *,
    accuracy: float | None = None,
    agreement: float | None = None,
    file: Path | None = None,
    student: float | None = None,
    penalty: float = 1.0,
    how: Aggregation | None = None,
) -> list[Choice]:
    """Choose on simulated teachers of an accuracy or on a file of public votes; with the data-dependent ε to expect.

    What `how` says of rounds, of when a student is sure and of whether a figure is sanitised is kept; and an interactive method
    stays one. It is chosen for a student: that of the file, or one simulated beside the votes with the accuracy `student`.
    """
    how = how or Aggregation()
    votes = _met(_heard(classes, teachers, accuracy, agreement, file), student, how)
    methods = (INTERACTIVE,) if how.interactive else PLAIN
    found = best(votes, budget, queries=queries, penalty=penalty, methods=methods, rounds=how.rounds, sure=how.sure)
    if how.sanitise is not None:  # more noise is cheaper whatever the votes, and dearer on votes that agree: try both ends
        tried = [sanitised(votes, one, budget) for one in found[:2]]
        useful = [one for one in tried if one.utility >= USEFUL * max(other.utility for other in tried)]
        found = [min(useful, key=lambda one: (one.sanitised_epsilon or 0.0) + (one.sanitised_deviation or 0.0)), *found[2:]]
    if budget.unit.teachers != 1:  # the data-dependent price is that of one vote
        return found
    # What holds for all votes holds for these: the lesser of the two readings, as a run keeps it.
    return [replace(one, dependent_epsilon=min(dependent_epsilon(votes, one, budget), one.epsilon)) for one in found]


def _heard(classes: int, teachers: int, accuracy: float | None, agreement: float | None, file: Path | None) -> PublicVotes:
    """Simulate teachers or read their votes."""
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
    return votes


def _met(votes: PublicVotes, accuracy: float | None, how: Aggregation) -> PublicVotes:
    """Put a student of an accuracy beside votes that come without one, if the method has one that is fitted between rounds."""
    if not (how.interactive and how.turns > 1):
        if accuracy is not None:
            raise RecipeError(
                "`student_accuracy` must come with the method 'interactive-gnmax' in 2 rounds or more. "
                f"Got {how.method!r} in {how.turns} instead."
            )
        return votes
    if (accuracy is None) is (votes.student is None):
        raise RecipeError(
            "`student` must be either simulated (--student-accuracy) or in the file of votes. "
            f"Got {'none' if accuracy is None else 'both'} instead."
        )
    return votes if accuracy is None else with_student(votes, accuracy)
