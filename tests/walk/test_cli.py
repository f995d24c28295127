"""Every command, as people and programs call it: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import typer
from tests.walk.tiny import tiny_run

from tutelage import cli, manifest
from tutelage.privacy.ledger import Entry, read_lines
from tutelage.recipes.run import EMBEDDED
from tutelage.tasks.table import read_controls

RECIPES = Path(cli.__file__).parent / "recipes"
DOCUMENTED = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
PAPER = "--teachers 8 --queries 62 --sigma 0.075 --delta 1e-2"  # 003 (2020)


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Said]


@pytest.fixture
def tutelage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call main() as the installed command does."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(command: str = "", *words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["tutelage", *command.split(), *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        return Said(int(left.value.code or 0), said.out, said.err)

    return call


def refused(said: Said, *parts: str) -> None:
    assert said.code == 2, said
    assert said.out == ""
    for part in parts:
        assert part in said.err
    assert "Traceback" not in said.err


# ── plan ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_plan_finds_epsilon_under_every_adjacency(tutelage: Call) -> None:
    said = tutelage(f"plan {PAPER}")
    assert said.code == 0
    assert "404.546" in said.out  # a record changes
    assert "115.722" in said.out  # rounded up: an institution comes or goes
    assert "epsilon = 404.546 for replace-one, unit record" in said.out


def test_plan_speaks_json(tutelage: Call) -> None:
    found = tutelage(f"plan {PAPER}", "--json").document
    assert found["solved_for"] == "epsilon"
    assert found["epsilon"] == pytest.approx(404.546, abs=5e-4)
    replaced, removed = found["by_adjacency"].values()
    assert (replaced["epsilon"], removed["epsilon"]) == pytest.approx((404.546, 115.721), abs=5e-4)
    assert found["plan"]["queries"] == 62


SOLVED = [
    (PAPER, "epsilon", 404.546),
    (f"{PAPER} --unit institution --adjacency add-remove", "epsilon", 115.721),
    ("--queries 62 --sigma 0.075 --epsilon 10 --delta 1e-2", "teachers", 74),
    ("--queries 62 --sigma 0.075 --epsilon 10 --delta 1e-2 --unit institution --adjacency add-remove", "teachers", 37),
    ("--teachers 74 --sigma 0.075 --epsilon 10 --delta 1e-2", "queries", 62),
    ("--teachers 74 --queries 62 --epsilon 9.9037 --sigma 0.075", "delta", 1e-2),
    ("--teachers 74 --queries 62 --epsilon 9.9037 --delta 1e-2", "sigma", 0.075),
    ("--teachers 74 --queries 62 --epsilon 9.9037 --delta 1e-2 --sigma 0.075 --norm open", "norm", 1.0),
    ("--bound cube --teachers 16 --queries 16384 --epsilon 2 --delta 1e-7", "sigma", 156.74),
    ("--bound votes --queries 200 --epsilon 8 --delta 1e-5", "sigma", 12.0046),
    ("--bound votes --queries 200 --sigma 12.0046 --delta 1e-5", "epsilon", 8.0),
    ("--bound votes --sigma 12.0046 --epsilon 8 --delta 1e-5", "queries", 200),
    ("--bound votes --queries 200 --sigma 12.0046 --epsilon 8", "delta", 1e-5),
]


@pytest.mark.parametrize(("words", "unknown", "value"), SOLVED)
def test_plan_solves_for_whatever_is_left_open(tutelage: Call, words: str, unknown: str, value: float) -> None:
    found = tutelage(f"plan {words}", "--json").document
    assert found["solved_for"] == unknown
    assert found[unknown] == pytest.approx(value, rel=5e-4)
    assert f"solved for {unknown}" in tutelage(f"plan {words}").out


@pytest.mark.parametrize("form", ["svg", "png"])
def test_plan_draws(tutelage: Call, tmp_path: Path, form: str) -> None:
    found = tutelage(f"plan {PAPER}", "--plots", tmp_path / "plots", "--format", form, "--json").document
    names = {"epsilon_against_teachers", "queries_against_epsilon", "sigma_against_queries"}
    assert {Path(file).stem for file in found["plots"]} == names
    for file in map(Path, found["plots"]):
        content = file.read_bytes()
        assert len(content) > 10_000
        assert content.startswith(b"\x89PNG" if form == "png" else b"<?xml")
        assert form == "png" or content.count(b"<path") > 20


def test_plan_warns(tutelage: Call) -> None:
    said = tutelage(f"plan {PAPER}", "--records", "248")
    assert "warning: δ = 0.01 is not below 1/n = 0.00403" in said.out
    assert "warning: ε = 404.6 is above 20: practically no guarantee." in said.out
    quiet = tutelage("plan --teachers 250 --queries 10 --sigma 0.1 --delta 1e-5 --records 1000")
    assert "warning" not in quiet.out
    votes = tutelage("plan --bound votes --queries 9 --sigma 1 --delta 0.5 --records 2")
    assert votes.out.count("warning") == 1


@pytest.mark.parametrize("name", EMBEDDED)
def test_plan_prices_a_recipe_before_any_data(tutelage: Call, name: str) -> None:
    found = tutelage("plan", RECIPES / f"{name}.toml", "--json").document
    assert found["recipe"] == name
    assert 7 < found["planned_epsilon"] <= found["epsilon"] <= 8 * (1 + 1e-9)
    assert sum(event["count"] for event in found["events"]) == (300 if name == "digits-confident" else 200)
    said = tutelage("plan", RECIPES / f"{name}.toml", "--epsilon", "30", "--records", "1000")
    assert "budget ε = 30" in said.out
    assert "practically no guarantee" in said.out


def changed(tmp_path: Path, name: str, old: str, new: str) -> Path:
    """Write a recipe of the package with one change."""
    text = (RECIPES / f"{name}.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "changed.toml").write_text(text.replace(old, new), encoding="utf-8")
    return tmp_path / "changed.toml"


def test_plan_warns_where_the_budget_holds_fewer_answers_than_asked(tutelage: Call, tmp_path: Path) -> None:
    path = changed(tmp_path, "segmentation/scenes-demo", "queries = 64", "queries = 16\nsigma = 2.0")
    said = tutelage("plan", path)
    assert said.code == 0
    warning = "the budget of ε = 8 holds 5 of 16 answers; σ ≥ 3.396 fits what is planned."
    assert f"warning: {warning}" in said.out
    assert tutelage("plan", path, "--json").document["warnings"] == [warning]
    enough = changed(tmp_path, "segmentation/scenes-demo", "queries = 64", "queries = 16\nsigma = 3.396")
    assert tutelage("plan", enough, "--json").document["warnings"] == []
    none = changed(tmp_path, "segmentation/scenes-demo", "queries = 64", "queries = 16\nsigma = 0.01")
    refused(tutelage("plan", none), "`sigma` must let one answer fit ε = 8 at δ = 1e-05: σ ≥ 0.8489. Got 0.01 instead.")


def test_plan_says_what_an_officer_needs(tutelage: Call) -> None:
    said = tutelage("plan hippocampus").out
    for words in (
        "so that a teacher hands in 49,152 numbers ≥ 0, cut to a length of 58",
        "teachers: 130",
        "unit: one patient, behind 1 of the teachers; neighbours: all its data is replaced (replace-one)",
        "μ = 0.719118; best attack at 0.1 % FPR: 0.887 %",
    ):
        assert words in said
    found = tutelage("plan hippocampus --json").document
    assert (found["unit"], found["unit_teachers"], found["adjacency"], found["teachers"]) == ("patient", 1, "replace-one", 130)
    assert found["mu"] == pytest.approx(0.719117, rel=1e-5)
    assert found["implied_tpr_at_fpr_0.001"] == pytest.approx(0.00887, rel=1e-2)
    assert "μ = ~" in tutelage("plan mnist-lnmax-100").out  # not Gaussian: that of an answer with this ε and δ


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_plan_names_the_risk_that_the_guarantee_will_name(tutelage: Call, outcomes: Any, name: str) -> None:
    planned, found = tutelage("plan", name, "--json").document, outcomes(name).guarantee
    for key in ("unit", "unit_teachers", "adjacency", "mu_is_exact"):
        assert planned[key] == found[key]
    if found["mu_is_exact"] or found["adaptive"]:
        assert planned["mu"] == pytest.approx(found["mu"], rel=1e-9)
        assert planned["implied_tpr_at_fpr_0.001"] == pytest.approx(found["implied_tpr_at_fpr_0.001"], rel=1e-9)


REFUSED = [
    ("--teachers 8", "exactly one of teachers, queries, sigma, epsilon, delta and norm must be left open. Got 4 (queries"),
    (f"{PAPER} --epsilon 3", "must be left open. Got 0 (none)"),
    ("--teachers 8 --queries 62 --sigma -1 --delta 0.01", "`sigma` must be a finite number > 0. Got -1.0"),
    ("--teachers 0 --queries 62 --sigma 1 --delta 0.01", "`teachers` must be a whole number ≥ 1. Got 0"),
    ("--teachers 8 --queries 62 --sigma nan --delta 0.01", "`sigma` must be a finite number > 0. Got nan"),
    ("--teachers 8 --queries 62 --sigma 1 --delta 1", "`delta` must be in (0, 1). Got 1.0"),
    ("--teachers 8 --queries 62 --epsilon 0 --delta 0.1", "`epsilon` must be a finite number > 0. Got 0.0"),
    (f"{PAPER} --norm wide", "`norm` must be a number or 'open'. Got 'wide'"),
    (f"{PAPER} --adjacency near", "`adjacency` must be 'replace-one' or 'add-remove'. Got 'near'"),
    (f"{PAPER} --adjacency add-remove", "`adjacency` must be 'replace-one' unless the unit is a whole institution"),
    (f"{PAPER} --bound sphere", "`bound` must be one of ball, orthant, cube, simplex, onehot, binary or votes. Got 'sphere'"),
    (f"{PAPER} --bound simplex --dimension 1", "`dimension` must be ≥ 2 for the bound 'simplex'. Got 1"),
    (f"{PAPER} --unit person", "`unit` must be 'record', 'patient' or 'institution'. Got 'person'"),
    (f"{PAPER} --plots p --format pdf", "`format` must be 'svg' or 'png'. Got 'pdf'"),
    (
        "--bound votes --queries 9 --sigma 1 --delta 0.1 --teachers 5",
        "Got --teachers instead. How many teachers there are does not",
    ),
    ("--bound votes --queries 9 --sigma 1 --delta 0.1 --plots x", "Got --plots instead"),
    (f"{RECIPES / 'digits.toml'} --unit-teachers 5 --format png", "Got --unit-teachers, --format instead"),
    ("scenes-demo --teachers 8", "options for a recipe must be among --epsilon, --records, --json. Got --teachers instead."),
    ("scenes-demo --choose", "Got one whose teachers vote for regions instead."),
    ("hippocampus --choose", "Got one that lets out codes of masks instead."),
    ("adult-shares --choose", "Got one that lets out means of what they say instead."),
    ("--teachers 8 --sigma 1e-9 --epsilon 1 --delta 1e-5", "`queries` must come out at 1 or more"),
    ("--teachers 8 --sigma 1e300 --epsilon 1 --delta 1e-5", "`queries` must come out at 10^12 or fewer"),
]


@pytest.mark.parametrize(("words", "why"), REFUSED)
def test_plan_refuses(tutelage: Call, words: str, why: str) -> None:
    refused(tutelage(f"plan {words}"), why)


def test_plan_shows_the_other_adjacency_even_where_one_has_no_solution(tutelage: Call) -> None:
    # One answer costs a removed institution just less than this budget, and a changed record more.
    words = "plan --teachers 10 --sigma 0.1 --epsilon 5 --delta 1e-5 --unit institution --adjacency add-remove"
    found = tutelage(words, "--json").document
    replaced, removed = found["by_adjacency"].values()
    assert replaced is None
    assert removed["queries"] == 1
    assert "no solution" in tutelage(words).out


def test_plots_under_a_file_are_refused(tutelage: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    refused(tutelage(f"plan {PAPER}", "--plots", tmp_path / "file" / "plots"), "`plots` must be a folder that can be written")


# ── run and demo ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_run_makes_a_release_once_and_again_only_on_request(tutelage: Call, tmp_path: Path, monkeypatch: Any) -> None:
    text = (RECIPES / "digits.toml").read_text(encoding="utf-8")
    (tmp_path / "small.toml").write_text(text.replace("= 200", "= 40"), encoding="utf-8")
    words = ("run", tmp_path / "small.toml", "--out", tmp_path / "run")
    said = tutelage(*words)
    assert said.code == 0
    assert "private student" in said.out
    assert "ε to quote" in said.out
    assert "asking the teachers" in said.err  # progress is no part of the output
    assert (tmp_path / "run" / "release" / "report.html").exists()
    refused(tutelage(*words), "`out` must be a new folder, or say --resume")
    monkeypatch.setattr(sys.modules["tutelage.report.page"], "pages", lambda *_, **__: None)  # once is enough
    again = tutelage(*words, "--resume", "--json")
    assert again.err == ""
    written = (tmp_path / "run" / "release" / "guarantee.json").read_text(encoding="utf-8")
    assert again.document["guarantee"] == json.loads(written)
    assert "control: non-private, all private labels" in again.document["scores"]


def test_a_changed_recipe_needs_a_folder_of_its_own(tutelage: Call, tmp_path: Path, outcomes: Any) -> None:
    shutil.copytree(outcomes("digits").folder.root, tmp_path / "run")
    for old, new in (("epsilon = 8.0", "epsilon = 7.0"), ("queries = 200", "queries = 40")):
        path = changed(tmp_path, "digits", old, new)
        refused(tutelage("run", path, "--resume", "--out", tmp_path / "run"), "`recipe` must be the one that", "take a new --out")


def test_words_that_are_not_known_are_answered_once_and_to_the_point(tutelage: Call, tmp_path: Path) -> None:
    words = ("run digits", "--out", tmp_path / "run")
    refused(tutelage(*words, "--device", "gpu"), "Got 'gpu' instead. Did you mean 'cuda'?")
    said = tutelage(*words, "--engine", "fast")
    refused(said, "Got 'fast' instead.")
    assert "Did you mean" not in said.err
    assert tutelage("pln").err.count("Did you mean 'plan'?") == 1
    assert tutelage("reproduce pat").err.count("Did you mean 'pate'?") == 1


def test_folders_that_do_not_exist_are_refused_before_anything_is_said(tutelage: Call, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    said = tutelage("demo --templates", tmp_path / "none")
    refused(said, "`templates` must be a folder that exists. Got ")
    assert "private scenes" not in said.err
    (tmp_path / "empty").mkdir()
    said = tutelage("demo --templates", tmp_path / "empty")
    refused(said, "`templates` must hold images in bird/.")
    assert "private scenes" not in said.err


def test_small_figures_have_a_folder_of_their_own(tutelage: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from tutelage.reproduction import printing

    went: list[Path] = []
    monkeypatch.setattr(printing, "made", lambda only, out, **_: went.append(out))
    monkeypatch.setattr(printing, "told", lambda *_, **__: 0)
    for words in ("", "--small", "--small --out x"):
        assert tutelage(f"reproduce segmentation {words}").code == 0
    assert went == [Path("runs/segmentation"), Path("runs/segmentation-small"), Path("x")]


def test_run_says_that_the_budget_ended_before_the_questions(tutelage: Call, tmp_path: Path) -> None:
    path = changed(tmp_path, "digits", "queries = 200", "queries = 16\nsigma = 2.0")
    words = ("run", path, "--out", tmp_path / "run")
    assert "warning: 5 of 16 questions were answered: the budget was used up." in tutelage(*words).out
    assert tutelage(*words, "--resume", "--json").document["warnings"] == [
        "5 of 16 questions were answered: the budget was used up."
    ]


def test_figures_from_private_data_are_not_printed_unless_published(tutelage: Call, tmp_path: Path, monkeypatch: Any) -> None:
    hidden = tiny_run(tmp_path / "run")
    assert read_controls(hidden.folder)
    monkeypatch.setattr(cli, "_carried_out", lambda *_, **__: hidden)
    for said in (tutelage("run", RECIPES / "digits.toml", "--out", "x").out, tutelage("demo --only digits --json").out):
        assert "control: same questions, true labels" in said
        for secret in ("non-private", "plurality", "one teacher"):
            assert secret not in said


def test_demo_takes_the_walk_three_times(tutelage: Call, tmp_path: Path, outcomes: Any, monkeypatch: Any) -> None:
    for name in EMBEDDED:  # what a first demo left behind: the second is harmless
        shutil.copytree(outcomes(name).folder.root, tmp_path / f"demo{name.removeprefix('digits')}")
    written: list[str] = []
    monkeypatch.setattr(sys.modules["tutelage.report.page"], "pages", lambda folder, *, name: written.append(name))
    said = tutelage("demo --only digits", "--out", tmp_path / "demo")
    assert written == list(EMBEDDED)
    assert said.code == 0
    assert all(name in said.out for name in EMBEDDED)
    assert f"Open {tmp_path / 'demo' / 'release' / 'report.html'}" in said.out
    assert "the three would add up" in said.out
    for name in EMBEDDED:
        statement = tmp_path / f"demo{name.removeprefix('digits')}" / "release" / "guarantee.json"
        told = json.loads(statement.read_text(encoding="utf-8"))
        assert {**told, "ledger_head": ""} == {**outcomes(name).guarantee, "ledger_head": ""}


def test_demo_speaks_json(tutelage: Call, outcomes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_carried_out", lambda recipe, *_, **__: outcomes(recipe.name))
    found = tutelage("demo --only digits --json").document
    assert set(found) == set(EMBEDDED)
    assert all(one["scores"]["private student"] > 0.6 and one["guarantee"]["epsilon"] <= 8.0001 for one in found.values())


def test_demo_is_private_segmentation(tutelage: Call, outcomes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    asked: list[tuple[str, Path]] = []

    def carried_out(recipe: Any, folder: Path, **_: Any) -> Any:
        asked.append((recipe.name, folder))
        return outcomes("digits")

    monkeypatch.setattr(cli, "_carried_out", carried_out)
    said = tutelage("demo", "--out", tmp_path / "demo")
    assert asked == [("scenes-demo", tmp_path / "demo")]
    assert "private scenes" in said.err
    assert "would add up" not in said.out  # one run, one budget
    assert tutelage("demo --json").code == 0
    assert asked[-1] == ("scenes-demo", Path("runs/demo"))
    refused(tutelage("demo --only faces"), "`only` must be 'scenes', 'digits', 'images' or 'nopool'. Got 'faces' instead.")


def test_recipes_for_masks_are_priced(tutelage: Call, tmp_path: Path) -> None:
    said = tutelage("plan", RECIPES / "segmentation" / "hippocampus.toml")
    assert "bound: Orthant(dimension=49152, norm=58.0)" in said.out
    assert "planned: ε = 3 at δ = 1e-05 (exact Gaussian)" in said.out
    text = (RECIPES / "segmentation" / "hippocampus.toml").read_text(encoding="utf-8").replace("norm = 58.0\n", "")
    (tmp_path / "open.toml").write_text(text, encoding="utf-8")
    found = tutelage("plan", tmp_path / "open.toml", "--json").document
    assert (found["norm_known"], found["bound"]) == (False, "Orthant(dimension=49152, norm=1.0)")
    assert found["epsilon"] == pytest.approx(3.0)
    (tmp_path / "fixed.toml").write_text(text.replace("queries = 36", "sigma = 700.0\nqueries = 36"), encoding="utf-8")
    refused(tutelage("plan", tmp_path / "fixed.toml"), "`codec.norm` must be given where `aggregation.sigma` is")


BAD = [
    (
        ("shards = 100", "shrads = 100"),
        "`teachers.shrads` must be a known key. Got an unknown one instead. Did you mean `shards`?",
    ),
    (("shards = 100", ""), "`teachers.shards` must be given"),
    (("epsilon = 8.0", "epsilon = -8.0"), "`privacy.epsilon` must be greater than 0. Got -8.0"),
    (("epsilon = 8.0", "epsilon = nan"), "`privacy.epsilon` must be a finite number. Got nan"),
    (("delta = 1e-5", "delta = 1.5"), "`privacy.delta` must be less than 1. Got 1.5"),
    (('unit = "record"', 'unit = "person"'), "`privacy.unit` must be 'record', 'patient' or 'institution'. Got 'person'"),
    (('kind = "kernel"\nshards', 'kind = "kernal"\nshards'), "Got 'kernal' instead. Did you mean 'kernel'?"),
    (("queries = 200", "queries = 500"), "`aggregation.queries` must be between 1 and the public pool's 400 records. Got 500"),
    (("queries = 200", "queries = 2.5"), "`aggregation.queries` must be a valid integer. Got 2.5"),
    (('set = "digits"', 'set = "faces"'), "`data.set` must be one of 'digits', 'mnist',"),
    (('set = "digits"', 'set = "digits"\nsplit = "paper"'), "`data.split` must stay open"),
    (("shards = 100", "shards = 2000"), "`teachers.shards` must be between 1 and the 1000 places of the roster. Got 2000"),
    (('unit = "record"', 'unit = "patient"'), "`unit` of the budget must be the data's, 'record'. Got 'patient'"),
    (('method = "gnmax"', 'method = "gnmax'), "`recipe` must be valid TOML"),
]


@pytest.mark.parametrize(("change", "why"), BAD)
def test_run_refuses_a_bad_recipe_and_writes_nothing(tutelage: Call, tmp_path: Path, change: tuple[str, str], why: str) -> None:
    text = (RECIPES / "digits.toml").read_text(encoding="utf-8")
    assert change[0] in text
    (tmp_path / "bad.toml").write_text(text.replace(*change), encoding="utf-8")
    refused(tutelage("run", tmp_path / "bad.toml", "--out", tmp_path / "run"), why)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.toml"]


def test_run_refuses_missing_files_and_folders_it_cannot_write(tutelage: Call, tmp_path: Path) -> None:
    refused(
        tutelage("run", tmp_path / "none.toml", "--out", tmp_path / "run"), "`recipe` must be a readable TOML file", "none.toml"
    )
    refused(tutelage("run", tmp_path, "--out", tmp_path / "run"), "`recipe` must be a readable TOML file")
    (tmp_path / "file").write_text("here")
    words = ("run", RECIPES / "digits.toml", "--out", tmp_path / "file" / "run")
    refused(tutelage(*words), "`out` must be a folder that can be written", "Not a directory")


# ── verify ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "private"), [("digits", False), ("digits-confident", True)])
def test_verify_agrees_with_a_good_run(tutelage: Call, copied: Callable[..., Path], name: str, private: bool) -> None:
    found = tutelage("verify", copied(name, private=private), "--json").document
    assert found["verified"] is True
    assert found["against_private_book"] is private
    assert found["recomputed_epsilon"] <= found["claimed_epsilon"] * 1.005


def test_verify_shows_a_table(tutelage: Call, copied: Callable[..., Path]) -> None:
    said = tutelage("verify", copied("digits-lnmax"))
    assert "ε recomputed from the book" in said.out
    assert "privacy loss distributions" in said.out
    assert "42 rows unbroken, 200 events" in said.out


def rechained(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Write rows with a chain that is whole again: what a forger does who knows the format."""
    previous = "0" * 64
    for number, row in enumerate(rows, start=1):
        row.update(seq=number, previous=previous)
        previous = row["hash"] = Entry(**row).digest()
        yield json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n"


def spoil_row(lines: list[str]) -> list[str]:
    row = json.loads(lines[3])
    row["body"]["count"] = 1
    return [*lines[:3], json.dumps(row) + "\n", *lines[4:]]


def forged(lines: list[str]) -> list[str]:
    rows = [json.loads(line) for line in lines]
    next(row for row in rows if row["kind"] == "charge")["body"]["count"] = 1
    return list(rechained(rows))


BOOKS: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "tampered": (spoil_row, "one unbroken chain. Got a break at row 4"),
    "truncated": (lambda lines: lines[:-2], "must end at the row that guarantee.json names"),
    "beheaded": (lambda lines: lines[1:], "one unbroken chain"),
    "reordered": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "Got a break at row 2"),
    "lengthened": (lambda lines: [*lines, lines[-1]], "one unbroken chain"),
    "forged": (forged, "must end at the row that guarantee.json names"),
    "empty": (lambda lines: [], "must begin with its opening row"),
    "scribbled": (lambda lines: ["not json\n", *lines[1:]], "`book` must be a file that is whole and readable"),
}


@pytest.mark.parametrize("how", BOOKS)
@pytest.mark.parametrize("private", [True, False])
def test_verify_refuses_a_spoilt_book(tutelage: Call, copied: Callable[..., Path], how: str, private: bool) -> None:
    place, (spoil, why) = copied(private=private), BOOKS[how]
    book = place / "release" / "book.jsonl"
    book.write_text("".join(spoil(book.read_text(encoding="utf-8").splitlines(keepends=True))), encoding="utf-8")
    refused(tutelage("verify", place), "LedgerError", "'book.jsonl' must be the file that the manifest lists")
    manifest.write(place / "release")
    refused(tutelage("verify", place), "LedgerError", why)


def test_only_the_private_book_tells_a_forger_who_rewrites_everything(tutelage: Call, copied: Callable[..., Path]) -> None:
    place = copied()
    book, statement = place / "release" / "book.jsonl", place / "release" / "guarantee.json"
    book.write_text("".join(forged(book.read_text(encoding="utf-8").splitlines(keepends=True))), encoding="utf-8")
    claim = json.loads(statement.read_text(encoding="utf-8"))
    claim["ledger_head"] = read_lines(book)[-1].hash
    claim["events"][0]["count"] = 191
    statement.write_text(json.dumps(claim), encoding="utf-8")
    manifest.write(place / "release")
    refused(tutelage("verify", place), "the exported book must equal the one under private/")


CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "head": ({"ledger_head": "0" * 64}, "must end at the row that guarantee.json names"),
    "epsilon": ({"epsilon": 3.0}, "`epsilon` must not be below what the book costs, 8"),
    "charged": ({"data_independent_epsilon": 3.0}, "`data_independent_epsilon` must not be below what the book costs"),
    "delta": ({"delta": 1e-3}, "`delta` must be what the book was opened with"),
    "budget": ({"budget_epsilon": 4.0}, "`budget_epsilon` must be what the book was opened with"),
    "unit": ({"unit": "patient"}, "`unit` must be what the book was opened with"),
    "reach": ({"unit_teachers": 9}, "`unit_teachers` must be what the book was opened with"),
    "mu": ({"mu": 0.5}, "`mu` must not be below"),
    "attack": ({"implied_tpr_at_fpr_0.001": 0.01}, "`implied_tpr_at_fpr_0.001` must not be below"),
    "events": ({"events": []}, "guarantee.json must list the book's events"),
    "not events": ({"events": 7}, "Got a wrong one, 'events', instead"),
    "not a number": ({"epsilon": float("nan")}, "`guarantee` must be a file that is whole and readable"),
    "a word": ({"epsilon": "small"}, "Got a wrong one, 'epsilon', instead"),
    "negative": ({"epsilon": -1}, "Got a wrong one, 'epsilon', instead"),
    "a field of its own": ({"epsilon_": 0.1}, "Got a wrong one, 'epsilon_', instead"),
}


@pytest.mark.parametrize("what", CLAIMS)
def test_verify_refuses_a_spoilt_guarantee(tutelage: Call, copied: Callable[..., Path], what: str) -> None:
    place, (change, why) = copied(private=False), CLAIMS[what]
    statement = place / "release" / "guarantee.json"
    statement.write_text(json.dumps({**json.loads(statement.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    manifest.write(place / "release")
    refused(tutelage("verify", place), why)


def test_verify_refuses_events_with_other_counts_and_too_small_a_quote(tutelage: Call, copied: Callable[..., Path]) -> None:
    place = copied("digits-confident", private=False)
    statement = place / "release" / "guarantee.json"
    claim = json.loads(statement.read_text(encoding="utf-8"))
    for change, why in (
        ({"epsilon": 7.9, "adaptive": False}, "`epsilon` must not be below"),
        ({"adaptive": False}, "`adaptive` must be true where a test decides"),
        ({"quotes": "cost"}, "`quotes` must be 'budget' where answers decide what is asked"),
    ):
        statement.write_text(json.dumps({**claim, **change}), encoding="utf-8")
        manifest.write(place / "release")
        refused(tutelage("verify", place), why)
    claim["events"][0]["count"] += 1
    statement.write_text(json.dumps(claim), encoding="utf-8")
    manifest.write(place / "release")
    refused(tutelage("verify", place), "guarantee.json must list the book's events")


def test_verify_speaks_json_when_it_refuses(tutelage: Call, tmp_path: Path) -> None:
    said = tutelage("verify", tmp_path, "--json")
    assert said.code == 2
    assert said.out == ""
    assert json.loads(said.err)["error"] == "RecipeError"
    assert "`run` must be a run folder" in json.loads(said.err)["message"]


# ── report, reproduce, version ────────────────────────────────────────────────────────────────────────────────────────


def test_report_is_written_again(tutelage: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_run(tmp_path / "run").folder
    assert tutelage("report", folder.root, "--name", "A <study>").out == f"wrote {folder.report}\n"
    assert "<h1>A &lt;study&gt;</h1>" in folder.report.read_text(encoding="utf-8")
    monkeypatch.setattr(sys.modules["tutelage.report.page"], "report", lambda *_, **__: folder)  # once is enough
    assert tutelage("report", folder.root, "--json").document == {"report": str(folder.report)}


def test_report_refuses_what_is_no_run(tutelage: Call, tmp_path: Path) -> None:
    refused(tutelage("report", tmp_path / "none"), "`run` must be a run folder")


def test_reproduce_accounting_gives_published_and_true_figures(tutelage: Call) -> None:
    said = tutelage("reproduce accounting")
    assert said.code == 0
    for figure in ("125.94", "115.72", "404.55", "424.10", "K ≥ 37", "K ≥ 74", "K ≥ 45", "187", "1,010", "109", "329"):
        assert figure in said.out
    assert "With --votes DIR" in said.out


def test_reproduce_refuses_a_folder_without_votes(tutelage: Call, tmp_path: Path) -> None:
    refused(tutelage("reproduce accounting", "--votes", tmp_path), "`votes` must be a directory with mnist_250_teachers.npy")


def test_version(tutelage: Call) -> None:
    from tutelage import __version__

    assert tutelage("version").out == f"{__version__}\n"
    assert tutelage("version", "--json").document == {"version": __version__}


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unforeseen_failure_says_its_kind_and_withholds_its_message(tutelage: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("patient 4711 has a rare disease")

    monkeypatch.setattr(cli.planning, "side_by_side", broken)
    said = tutelage(f"plan {PAPER}")
    assert said.code == 1
    assert "ValueError: failed at test_cli.py:" in said.err
    assert "4711" not in said.err + said.out
    assert "Traceback" not in said.err
    monkeypatch.setenv("TUTELAGE_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["tutelage", "plan", *PAPER.split()])
    with pytest.raises(ValueError, match="4711"):
        cli.main()


def test_a_full_disk_is_a_message(tutelage: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(cli.planning, "side_by_side", full)
    refused(tutelage(f"plan {PAPER}"), "No space left on device", "somewhere")


def test_the_module_runs_as_a_program(tmp_path: Path) -> None:
    def process(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tutelage.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ, timeout=120)

    good = process("plan", *PAPER.split(), "--json")
    assert good.returncode == 0
    assert json.loads(good.stdout)["solved_for"] == "epsilon"
    bad = process("verify", str(tmp_path))
    assert bad.returncode == 2
    assert bad.stderr.startswith("RecipeError: `run` must be a run folder")
    assert "Traceback" not in bad.stderr
    assert process("frobnicate").returncode == 2


# ── help and documentation ────────────────────────────────────────────────────────────────────────────────────────────


def commands() -> dict[str, click.Command]:
    """Every command by its words."""
    found = {}
    waiting: list[tuple[str, click.Command]] = [("", typer.main.get_command(cli.app))]
    while waiting:
        words, command = waiting.pop()
        if isinstance(command, click.Group):
            waiting += [(f"{words} {name}".strip(), one) for name, one in command.commands.items()]
        else:
            found[words] = command
    return found


def options(command: click.Command) -> list[str]:
    return [name for param in command.params if isinstance(param, click.Option) for name in param.opts]


def test_all_commands_are_known_here() -> None:
    assert set(commands()) == {
        "audit",
        "plan",
        "run",
        "demo",
        "ledger",
        "report",
        "verify",
        "reproduce accounting",
        "reproduce pate",
        "reproduce segmentation",
        "version",
        "init",
        "data",
        "export",
        "predict",
        "compare",
        "generate",
        "distill",
        "hospital",
        "coordinate",
        "federation init",
        "federation up",
        "federation status",
    }


@pytest.mark.parametrize("words", sorted(commands()))
def test_help_mentions_every_option(tutelage: Call, words: str) -> None:
    said = tutelage(words, "--help")
    assert said.code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said.out)
    for option in options(commands()[words]):
        assert option in plain


@pytest.mark.parametrize("words", sorted(commands()))
def test_every_command_and_option_is_documented(words: str) -> None:
    text = DOCUMENTED.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `tutelage ([^`]+)`\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE))
    section = next(body for heading, body in sections.items() if re.match(rf"{words}\b", heading))
    for option in options(commands()[words]):
        assert f"`{option}" in section, f"{words} {option}"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("run", "The recipe: a TOML file"),
        ("plan", "A recipe, or its name"),
        ("plan", "Choose a recipe's [aggregation] on public"),
        ("reproduce segmentation", "segmentation.md"),
        ("reproduce segmentation", "nothing is downloaded"),
        ("verify", "Run folders, or releases alone."),
        ("report", "A run folder."),
    ],
)
def test_help_says_what_comes_without_a_name(tutelage: Call, words: str, told: str) -> None:
    """click 8.5 and typer 0.20 lose it between them."""
    assert told in tutelage(words, "--help").out


def test_without_a_command_help_is_shown(tutelage: Call) -> None:
    said = tutelage()
    assert "Train models that may be published" in said.out + said.err
