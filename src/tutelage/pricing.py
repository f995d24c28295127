"""The price of a recipe: what is planned, what bounds a ballot, and which ε to quote; before any data is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tutelage import planning
from tutelage.console import console, emit, promised, say, table, warn
from tutelage.drafting.advice import advice
from tutelage.guarantee import attack_bound
from tutelage.privacy import accounting
from tutelage.privacy.bounds import Ball, Binary, Bound, Cube, OneHot, Orthant, Simplex
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import Event, to_record
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Adjacency
from tutelage.rounding import percent


def price_recipe(path: Path, epsilon: float | None, records: int | None, *, as_json: bool = False) -> None:
    """Print what a recipe would release, and what that costs; no data is read."""
    from tutelage.recipes.run import bound as bound_of
    from tutelage.recipes.shelf import taken

    recipe = taken(path)
    if epsilon is not None:
        recipe = recipe.model_copy(update={"privacy": recipe.privacy.model_copy(update={"epsilon": epsilon})})
    budget, how, (bound, known) = recipe.budget(), recipe.how(), bound_of(recipe)
    if not known and how.sigma is not None:
        raise RecipeError("`codec.norm` must be given where `aggregation.sigma` is: it sets the price. Got none instead.")
    asked = (budget, recipe.aggregation.queries, recipe.teachers.shards, bound)
    events, short = how.planned(*asked), how.shortfall(*asked)
    price = accounting.cost(events, budget.delta)
    quoted = max(budget.epsilon, price.epsilon) if how.adaptive else price.epsilon
    said = planning.warnings(quoted, budget.delta, records) + ([] if short is None else [short])
    meant = advice(recipe, bound, known=known)
    risk = _risk(events, price, quoted, how.adaptive)
    if as_json:
        emit(
            {
                "recipe": recipe.name,
                "epsilon": quoted,
                "planned_epsilon": price.epsilon,
                "budget_epsilon": budget.epsilon,
                "delta": budget.delta,
                **risk,
                "unit": budget.unit.name,
                "unit_teachers": budget.unit.teachers,
                "adjacency": str(budget.adjacency),
                "teachers": recipe.teachers.shards,
                "method": price.method,
                "events": [{**to_record(event), "count": count} for event, count in events],
                "bound": repr(bound),
                "ballot": _ballot(bound, known),
                "norm_known": known,
                **({"learner": recipe.student.learner} if recipe.about_masks else {}),
                "advice": meant,
                "warnings": said,
            }
        )
        return
    made = table(f"{recipe.name}: what is planned", "event", "parameters", "count", numbers=False)
    for event, count in events:
        made.add_row(type(event).__name__, ", ".join(f"{k} {_worded(v)}" for k, v in vars(event).items()), f"{count:,}")
    console().print(made)
    later = "" if known else "; its norm will be learned from public masks, and with it sensitivity and σ are multiplied"
    say(f"bound: {bound!r}, so that a teacher hands in {_ballot(bound, known)}{later}")
    say(f"teachers: {recipe.teachers.shards:,}, each with a part of the private data")
    say(_neighbours(budget))
    if recipe.about_masks:
        say(_drawing(recipe))
    say(f"planned: ε = {promised(price.epsilon)} at δ = {promised(budget.delta)} ({price.method})")
    why = "the budget, because a test decides what is answered" if how.adaptive else "what is planned"
    say(f"to quote: ε = {promised(quoted)} ({why}); budget ε = {promised(budget.epsilon)}", style="bold")
    like = "" if risk["mu_is_exact"] else "~"
    say(f"μ = {like}{promised(risk['mu'])}; best attack at 0.1 % FPR: {percent(risk['implied_tpr_at_fpr_0.001'])}")
    for line in meant:
        say(f"what it means: {line}")
    warn(said)


def _risk(events: list[tuple[Event, int]], price: accounting.Cost, quoted: float, adaptive: bool) -> dict[str, Any]:
    """Give μ and the best attack, as the guarantee of such a run will have them."""
    exact = price.mu if not adaptive else None
    mu = float(accounting.epsilon_mu(quoted, price.delta)) if exact is None else exact
    found = {"epsilon": quoted, "delta": price.delta, "mu": mu, "mu_is_exact": price.mu is not None}
    records = [{**to_record(event), "count": count} for event, count in events]
    attack = attack_bound({**found, "quotes": "budget" if adaptive else "cost", "events": records}, 1e-3)
    return {"mu": mu, "mu_is_exact": found["mu_is_exact"], "implied_tpr_at_fpr_0.001": float(attack)}


def _ballot(bound: Bound, known: bool) -> str:
    """Say in plain words what a teacher may hand in for one question."""
    size, norm = f"{bound.dimension:,}", f"{getattr(bound, 'norm', 0):g}" if known else "that norm"
    words: dict[type[Bound], str] = {
        OneHot: f"one vote among {size}",
        Simplex: f"shares of one vote among {size}",
        Binary: f"{size} zeros and ones",
        Ball: f"{size} numbers, cut to a length of {norm}",
        Orthant: f"{size} numbers ≥ 0, cut to a length of {norm}",
        Cube: f"{size} numbers, each cut to between −{norm} and {norm}",
    }
    return words.get(type(bound), f"{size} numbers within this bound")


def _neighbours(budget: Budget) -> str:
    """Say whose data is protected against what change."""
    unit = budget.unit
    change = "all its data is replaced" if budget.adjacency == Adjacency.REPLACE_ONE else "it comes or goes"
    return f"unit: one {unit.name}, behind {unit.teachers:,} of the teachers; neighbours: {change} ({budget.adjacency})"


def _drawing(recipe: Any) -> str:
    """Say who will learn from the masks, and whether another was to be expected."""
    from tutelage.recipes.names import drawer

    learner, usual = recipe.student.learner, drawer(recipe)
    what = "from codes, which it never decodes" if learner == "latent" else "from decoded answers"
    return f"student: {learner!r} learns {what} ({'the default' if learner == usual else f'the default is {usual!r}'} here)"


def _worded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
