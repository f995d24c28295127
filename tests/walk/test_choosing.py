"""`tutelage plan --choose`: a table for people, JSON for programs, and a plan that a recipe takes as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tutelage.cli import app
from tutelage.privacy import accounting
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.errors import RecipeError
from tutelage.recipes.recipe import parse
from tutelage.recipes.shelf import taken
from tutelage.simulation import save, simulate, with_student

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


def test_an_interactive_recipe_stays_one_and_pastes_back(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = taken(Path("mnist-interactive"))
    call("plan", "mnist-interactive", "--choose", "--teacher-accuracy", 0.9, "--student-accuracy", 0.8, "--json")
    found = json.loads(capsys.readouterr().out)
    text = (RECIPE.parent / "pate" / "mnist-interactive.toml").read_text(encoding="utf-8")
    start, end = text.index("[aggregation]"), text.index("[student]")
    for one in found:
        pasted = parse(text[:start] + one["toml"] + "\n" + text[end:])
        assert pasted.how().method == "interactive-gnmax"
        assert (pasted.aggregation.questions, pasted.how().rounds) == ("uncertain", 3)
        assert pasted.how().sure == recipe.how().sure
        planned = pasted.how().planned(recipe.budget(), pasted.aggregation.queries, 250, OneHot(10))
        assert accounting.admits(planned, 2.0, 1e-5)
        assert pasted.aggregation.queries <= 300
        assert one["sanitised_epsilon"] is None
        assert one["source"].endswith("; a simulated student, accuracy 0.8")
    assert found[0]["known"] > 0


def test_an_interactive_choice_is_printed_and_a_file_may_hold_the_student(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # or headings are broken in two
    file = save(with_student(simulate(10, 250, 0.8, queries=300), 0.7), tmp_path / "public")
    call("plan", "mnist-interactive", "--choose", "--votes", file, "--penalty", 2)
    said = capsys.readouterr().out
    assert "Chosen on public.npz." in said
    assert "(interactive-gnmax)" in said
    assert 'questions = "uncertain"' in said
    words = re.findall(r"\w+", said)
    assert {"known", "own"} <= set(words)
    assert words.count("own") == 2  # its own labels, and the wrong ones of them


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
        ((RECIPE, "--teacher-accuracy", 0.6), "options for a recipe must be among --epsilon, .* Got --teacher-accuracy"),
        ((RECIPE, "--choose", "--teacher-accuracy", 0.6, "--sigma", 3), "options for a choice .* Got --sigma"),
        ((RECIPE, "--student-accuracy", 0.6), "options for a recipe must be among --epsilon, .* Got --student-accuracy"),
        (
            (RECIPE, "--choose", "--teacher-accuracy", 0.6, "--student-accuracy", 0.6),
            "`student_accuracy` must come .* Got 'gnmax'",
        ),
        (("mnist-interactive", "--choose", "--teacher-accuracy", 0.6), "`student` must be either simulated .* Got none instead"),
        (
            ("mnist-interactive", "--choose", "--teacher-accuracy", 0.6, "--student-accuracy", 0.05),
            "`student_accuracy` must be above 1/10, as of chance, and below 1. Got 0.05 instead",
        ),
        ((RECIPE, "--choose", "--teacher-accuracy", 1.5), r"`accuracy` must be in \(0, 1\). Got 1.5"),
    ],
)
def test_what_would_be_ignored_is_refused(words: tuple[object, ...], rule: str) -> None:
    with pytest.raises(RecipeError, match=rule):
        call("plan", *words)
