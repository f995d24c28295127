"""The price of a recipe: what is planned, what bounds a ballot, and which ε to quote; before any data is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tutelage import planning
from tutelage.console import console, emit, promised, say, table, warn
from tutelage.privacy import accounting
from tutelage.privacy.errors import RecipeError


def price_recipe(path: Path, epsilon: float | None, records: int | None, *, as_json: bool = False) -> None:
    """Print what a recipe would let out, and what that costs; no data is read."""
    from tutelage.privacy.events import to_record
    from tutelage.recipes.run import bound as bound_of
    from tutelage.recipes.shelf import taken

    recipe = taken(path)
    if epsilon is not None:
        recipe = recipe.model_copy(update={"privacy": recipe.privacy.model_copy(update={"epsilon": epsilon})})
    budget, how, (bound, known) = recipe.budget(), recipe.how(), bound_of(recipe)
    if not known and how.sigma is not None:
        raise RecipeError("`codec.norm` must be given where `aggregation.sigma` is: it sets the price. Got none instead.")
    events = how.planned(budget, recipe.aggregation.queries, recipe.teachers.shards, bound)
    price = accounting.cost(events, budget.delta)
    quoted = max(budget.epsilon, price.epsilon) if how.adaptive else price.epsilon
    said = planning.warnings(quoted, budget.delta, records)
    if as_json:
        emit(
            {
                "recipe": recipe.name,
                "epsilon": quoted,
                "planned_epsilon": price.epsilon,
                "budget_epsilon": budget.epsilon,
                "delta": budget.delta,
                "method": price.method,
                "events": [{**to_record(event), "count": count} for event, count in events],
                "bound": repr(bound),
                "norm_known": known,
                **({"learner": recipe.student.learner} if recipe.about_masks else {}),
                "warnings": said,
            }
        )
        return
    made = table(f"{recipe.name}: what is planned", "event", "parameters", "count", numbers=False)
    for event, count in events:
        made.add_row(type(event).__name__, ", ".join(f"{k} {_worded(v)}" for k, v in vars(event).items()), f"{count:,}")
    console().print(made)
    if recipe.about_masks:
        later = "" if known else "; its norm will be learned from public masks, and with it sensitivity and σ are multiplied"
        say(f"bound: {bound!r}{later}")
        say(_drawing(recipe))
    say(f"planned: ε = {promised(price.epsilon)} at δ = {promised(budget.delta)} ({price.method})")
    why = "the budget, because a test decides what is answered" if how.adaptive else "what is planned"
    say(f"to quote: ε = {promised(quoted)} ({why}); budget ε = {promised(budget.epsilon)}", style="bold")
    warn(said)


def _drawing(recipe: Any) -> str:
    """Say who will learn from the masks, and whether another was to be expected."""
    from tutelage.recipes.names import drawer

    learner, usual = recipe.student.learner, drawer(recipe)
    what = "from codes, which it never decodes" if learner == "latent" else "from decoded answers"
    return f"student: {learner!r} learns {what} ({'the default' if learner == usual else f'the default is {usual!r}'} here)"


def _worded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
