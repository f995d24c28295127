"""What the figures of a plan mean: noise against votes, against codes, and what would help. From public facts alone."""

from __future__ import annotations

import math
from typing import Any

from tutelage.drafting.method import CLEAR, best_queries
from tutelage.planning import Aggregation
from tutelage.privacy.bounds import Bound, OneHot
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.ledger import Budget
from tutelage.privacy.mechanisms import GNMax, LNMax, NoisyMean

_LONG = 1.0  # times the longest ballot, above which noise on one answer hides it


def advice(recipe: Any, bound: Bound, *, known: bool = True) -> list[str]:
    """Say what a plan's noise is against, in words; and what a run of it would refuse."""
    how, budget = recipe.how(), recipe.budget()
    queries, shards = recipe.aggregation.queries, recipe.teachers.shards
    said = _refused(recipe)
    try:
        mechanism, _ = how.built(budget, queries, shards, bound)
    except RecipeError:  # it is refused where it is priced
        return said
    if isinstance(mechanism, (GNMax, LNMax)):
        return said + votes(mechanism, shards, queries, bound.dimension, budget)
    if isinstance(mechanism, NoisyMean) and known:
        return said + means(mechanism, shards, queries, bound, budget, rounds=recipe.teachers.kind == "records")
    return said


def votes(mechanism: GNMax | LNMax, shards: int, queries: int, classes: int, budget: Budget) -> list[str]:
    """Put all votes beside their noise."""
    noise = mechanism.sigma if isinstance(mechanism, GNMax) else math.sqrt(2) / mechanism.gamma
    ratio, least = shards / noise, CLEAR
    line = f"{shards:,} teachers' votes against noise of {noise:.3g} on each count: {ratio:.1f} times it"
    if ratio >= least:
        return [f"{line}. A clear majority survives that."]
    if isinstance(mechanism, LNMax):
        return [f"{line}. Few winners are the teachers'; 'gnmax' has less noise for the same ε where questions are many."]
    fewer, at_best = best_queries(shards, queries, classes, budget)
    needed = math.ceil(least * noise)
    help_ = f"Ask {fewer:,} questions at most" if at_best >= least else "Fewer questions do not help enough"
    return [
        f"{shards:,} teachers cannot carry {queries:,} votes at ε = {budget.epsilon:g}: {line}, where {least:g} are needed. "
        f"{help_}, or take {needed:,} teachers (each needs records enough to learn), or a larger ε."
    ]


def means(mechanism: NoisyMean, shards: int, queries: int, bound: Bound, budget: Budget, *, rounds: bool) -> list[str]:
    """Put the longest ballot beside the length of the noise on one mean."""
    longest = float(getattr(bound, "norm", 0) or 1.0)
    if isinstance(bound, OneHot):
        longest = 1.0
    noise = float(mechanism.sigma) * math.sqrt(bound.dimension) / shards
    ratio = noise / longest
    what = "correction" if rounds else "answer"
    line = f"noise on the mean of {shards:,} is {noise:.3g} long, one ballot at most {longest:.3g}: {ratio:.2g} times it"
    if ratio <= _LONG:
        return [f"{line}. Single {what}s can be read."]
    pooled = ratio / math.sqrt(queries)
    if pooled <= _LONG or rounds:
        return [f"{line}. What {queries:,} {what}s have in common can be read ({pooled:.2g} times), one alone cannot."]
    needed = math.ceil(shards * pooled)
    return [
        f"{line}; over all {queries:,} {what}s {pooled:.2g} times: expect little but the mean shape. "
        f"About {needed:,} teachers, a larger ε, or a codec of fewer numbers would help."
    ]


def _refused(recipe: Any) -> list[str]:
    """Say what a run would refuse that a price does not."""
    if recipe.data.declared is False:
        return ["`tutelage run` refuses this recipe until `data.declared` is true: what it declares becomes public."]
    return []


def bought_nothing(recipe: Any) -> list[str]:
    """Say what to try next where a student does not beat what costs no privacy."""
    how, budget, shards = recipe.how(), recipe.budget(), recipe.teachers.shards
    tried = [
        "These answers bought nothing. What helps, in this order, each fixed before it is run and paid for anew on the ledger:",
        f"  more units: noise is fixed by ε = {budget.epsilon:g}, and {shards:,} teachers have to outvote it",
    ]
    if isinstance(how, Aggregation) and not how.vectors:
        tried.append("  fewer questions (noise falls with the root of their number), or more teachers while each still learns")
        tried.append("  from about 2,000 units on: teachers of kind 'records', where each unit corrects a linear student")
    else:
        tried.append("  fewer numbers per answer (coarser codes, fewer axes), a tighter public `norm`, more teachers")
    tried.append("  a larger ε, if the person responsible for the data agrees; `tutelage plan` says what it would mean")
    return tried
