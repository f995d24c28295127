"""Advice follows from the planner's own noise, and what it advises is no longer advised against."""

from __future__ import annotations

import re

import pytest

from tutelage.drafting.advice import advice, bought_nothing
from tutelage.drafting.method import CLEAR, MANY, best_queries, choose
from tutelage.planning import Aggregation
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.ledger import Budget
from tutelage.recipes.run import bound, carried, embedded


def digits(**changes: int) -> object:
    recipe = embedded("digits")
    parts = {
        "teachers": recipe.teachers.model_copy(update={"shards": changes["shards"]}),
        "aggregation": recipe.aggregation.model_copy(update={"queries": changes["queries"]}),
        "privacy": recipe.privacy.model_copy(update={"epsilon": float(changes["epsilon"])}),
    }
    return recipe.model_copy(update=parts)


def said(**changes: int) -> str:
    recipe = digits(**changes)
    return " ".join(advice(recipe, bound(recipe)[0]))


def test_eight_teachers_cannot_carry_two_hundred_votes() -> None:
    found = said(shards=8, queries=200, epsilon=3)
    assert "8 teachers cannot carry 200 votes at ε = 3" in found
    needed = int(re.search(r"take ([\d,]+) teachers", found)[1].replace(",", ""))
    assert "cannot carry" not in said(shards=needed, queries=200, epsilon=3)
    assert "cannot carry" in said(shards=needed - 2, queries=200, epsilon=3)


def test_the_questions_it_names_can_be_carried() -> None:
    found = said(shards=100, queries=1000, epsilon=3)
    fewer = int(re.search(r"Ask ([\d,]+) questions", found)[1].replace(",", ""))
    assert fewer < 1000
    assert "clear majority" in said(shards=100, queries=fewer, epsilon=3)


@pytest.mark.parametrize("name", carried())
def test_every_recipe_of_the_package_gets_advice_or_none(name: str) -> None:
    recipe = embedded(name)
    size, known = bound(recipe)
    lines = advice(recipe, size, known=known)
    assert all(line.endswith(".") for line in lines)
    assert any("ε" in line for line in bought_nothing(recipe))


@pytest.mark.parametrize(("units", "pool"), [(60, 200), (400, 500), (1500, 2000), (5000, 4000)])
def test_the_chosen_method_follows_the_page(units: int, pool: int) -> None:
    budget = Budget(8.0, 1e-5)
    chosen = choose(units, pool, 3, budget, features=40)
    assert (chosen.teachers == "records") == (units >= MANY)
    if chosen.method == "gnmax":
        mechanism, _ = Aggregation("gnmax").built(budget, chosen.queries, chosen.shards, OneHot(3))
        assert (chosen.shards / mechanism.sigma < CLEAR) == (chosen.doubt is not None)
        assert chosen.queries <= pool
        assert best_queries(chosen.shards, pool, 3, budget)[0] == chosen.queries
