"""`tutelage plan --choose`: a table for people, JSON for programs, and a plan that a recipe takes as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tutelage.cli import app
from tutelage.privacy.errors import RecipeError
from tutelage.recipes.recipe import parse
from tutelage.simulation import save, simulate

RECIPE = Path(__file__).parents[2] / "src" / "tutelage" / "recipes" / "digits.toml"


def call(*words: object) -> None:
    app([*map(str, words)], standalone_mode=False)


def test_a_choice_is_printed_with_its_provenance(capsys: pytest.CaptureFixture[str]) -> None:
    call("plan", RECIPE, "--choose", "--teacher-accuracy", 0.6, "--teacher-agreement", 0.5)
    said = capsys.readouterr().out
    assert "[aggregation]\nmethod = " in said
    assert "Chosen on simulated: accuracy 0.6, agreement 0.5, seed 0." in said
    assert "Votes of private teachers must never be used for this." in said


def test_a_choice_speaks_json_and_pastes_into_the_recipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = save(simulate(10, 100, 0.6, queries=300), tmp_path / "public")
    call("plan", RECIPE, "--choose", "--votes", file, "--penalty", 3, "--epsilon", 4, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found[0]["epsilon"] <= 4
    assert found[0]["source"] == "public.npz"
    text = RECIPE.read_text(encoding="utf-8")
    start, end = text.index("[aggregation]"), text.index("[student]")
    recipe = parse(text[:start] + found[0]["toml"] + "\n" + text[end:])
    assert recipe.aggregation.method == found[0]["method"]
    assert recipe.how().sigma == found[0]["sigma"]


def test_a_recipe_that_sanitises_gets_that_chosen_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = RECIPE.read_text(encoding="utf-8").replace(
        "[student]", "[aggregation.sanitise]\norder = 3.0\nbeta = 0.02\nsigma = 20.0\n\n[student]"
    )
    (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")
    call("plan", tmp_path / "recipe.toml", "--choose", "--teacher-accuracy", 0.8, "--json")
    found = json.loads(capsys.readouterr().out)
    assert "[aggregation.sanitise]" in found[0]["toml"]
    assert found[0]["sanitised_deviation"] > 0


def test_an_interactive_recipe_is_refused_and_not_turned_into_another(tmp_path: Path) -> None:
    text = RECIPE.read_text(encoding="utf-8").replace('method = "gnmax"', 'method = "interactive-gnmax"')
    assert "interactive" in text
    (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=r"`aggregation\.method` must be .* Got 'interactive-gnmax' instead"):
        call("plan", tmp_path / "recipe.toml", "--choose", "--teacher-accuracy", 0.6)


def test_what_votes_cost_is_never_more_than_what_any_votes_cost(capsys: pytest.CaptureFixture[str]) -> None:
    # Teachers that hardly agree, asked for any answer: their own reading would be the dearer one.
    call("plan", RECIPE, "--choose", "--teacher-accuracy", 0.3, "--penalty", 0, "--json")
    for found in json.loads(capsys.readouterr().out):
        assert 0 < found["dependent_epsilon"] <= found["epsilon"] + 0.001  # both are rounded


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ((RECIPE, "--choose"), "`votes` must be either simulated"),
        (("--choose", "--teacher-accuracy", 0.6), "`recipe` must be given with --choose"),
        ((RECIPE, "--teacher-accuracy", 0.6), "options for a recipe must be among those it has. Got --teacher-accuracy"),
        ((RECIPE, "--choose", "--teacher-accuracy", 0.6, "--sigma", 3), "options for a choice .* Got --sigma"),
        ((RECIPE, "--choose", "--teacher-accuracy", 1.5), r"`accuracy` must be in \(0, 1\). Got 1.5"),
    ],
)
def test_what_would_be_ignored_is_refused(words: tuple[object, ...], rule: str) -> None:
    with pytest.raises(RecipeError, match=rule):
        call("plan", *words)
