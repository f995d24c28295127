"""A recipe as text again: the same recipe, in one form, without places of this machine."""

from __future__ import annotations

import pytest

from tutelage.recipes.recipe import parse
from tutelage.recipes.run import DEMO, carried, embedded
from tutelage.recipes.shelf import of_templates
from tutelage.recipes.written import written


@pytest.mark.parametrize("name", [*carried(), "templates"])
def test_every_recipe_reads_back_to_its_hash(name: str) -> None:
    recipe = of_templates(embedded(DEMO)) if name == "templates" else embedded(name)
    text = written(recipe)
    again = parse(text)
    assert again.sha256 == recipe.sha256
    assert written(again) == text


def test_folders_of_the_machine_are_left_out() -> None:
    recipe = embedded("segmentation/hippocampus")
    places = {"directory": "elsewhere/scans", "public_directory": "../clinic/pool"}
    moved = recipe.model_copy(update={"data": recipe.data.model_copy(update=places)})
    text = written(moved)
    assert "elsewhere" not in text
    assert "clinic" not in text
    assert 'public_directory = "pool"' in text
    assert parse(text).sha256 == moved.sha256


@pytest.mark.parametrize("words", ['a "quoted" \\ word', "two\nlines\tand\x7f", "ü, Δ and 🙂", "[data]\nset = 7"])
def test_every_text_survives(words: str) -> None:
    recipe = embedded("digits").model_copy(update={"tuned_on": words})
    assert parse(written(recipe)).tuned_on == words
