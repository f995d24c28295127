"""A table of one's own, from `init` to predictions of an exported model: every command, and what the release says."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from tests.walk.own_table import Call, caller, clinic, write

from tutelage.deployment import exporting, samples, students
from tutelage.recipes.recipe import read
from tutelage.recipes.written import written


@pytest.fixture
def tutelage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(monkeypatch, capsys)


def confirmed(recipe: Path) -> Path:
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("declared = false", "declared = true"), encoding="utf-8")
    return recipe


def test_the_whole_walk(tutelage: Call, tmp_path: Path) -> None:
    clinic(tmp_path / "clinic")
    recipe, run = tmp_path / "clinic.toml", tmp_path / "run"
    code, said, _ = tutelage("init", tmp_path / "clinic", "--out", recipe, "--epsilon", 8)
    assert code == 0
    assert "declared" in said
    text = recipe.read_text(encoding="utf-8")
    assert 'classes = ["healthy", "sick"]' in text
    assert 'unit = "patient"' in text
    assert tutelage("plan", recipe)[0] == 0  # it can be priced before anybody confirms
    code, _, said = tutelage("run", recipe, "--out", run)
    assert code == 2
    assert "`data.declared` must be true" in said
    assert not run.exists()
    confirmed(recipe)
    code, said, err = tutelage("run", recipe, "--out", run, "--json")
    assert code == 0, err
    scores = json.loads(said)["scores"]
    assert scores["private student"] > scores["control: public only, no answers (ε = 0)"] + 0.05
    assert any("declared public" in warning for warning in json.loads(said)["guarantee"]["warnings"])
    assert read(recipe).sha256 == json.loads((run / "release" / "guarantee.json").read_text(encoding="utf-8"))["recipe_sha256"]
    assert str(tmp_path) not in "".join(path.read_text(encoding="utf-8", errors="ignore") for path in (run / "release").iterdir())
    assert tutelage("verify", run)[0] == 0

    new = write(tmp_path / "new.csv", range(5000, 5040), label=False)
    answers = {}
    for place in (run, run / "release", tmp_path / "model"):
        if place.name == "model":
            code, said, err = tutelage("export", run, "--out", place)
            assert code == 0, err
            assert "checked against the student" in said
        code, said, err = tutelage("predict", place, new)
        assert code == 0, err
        answers[place.name] = list(csv.reader(io.StringIO(said)))
    assert answers["run"] == answers["release"]
    header, *rows = answers["model"]
    assert header == ["patient", "label", "p(healthy)", "p(sick)"]
    assert {row[1] for row in rows} == {"healthy", "sick"}  # words come back
    assert [row[0] for row in rows] == [line.split(",")[0] for line in new.read_text(encoding="utf-8").splitlines()[1:]]
    assert [row[:2] for row in rows] == [row[:2] for row in answers["run"][1:]]
    code, _, err = tutelage("export", run, "--format", "skops", "--out", tmp_path / "plain")
    assert code == 0, err
    assert list(csv.reader(io.StringIO(tutelage("predict", tmp_path / "plain", new)[1]))) == answers["run"]
    for words, rule in (
        (("--format", "torchscript", "--out", tmp_path / "a"), "no torch network"),
        (("--format", "pickle", "--out", tmp_path / "b"), "must be one of"),
        (("--out", run / "release" / "here"), "outside of the release"),
        (("--out", tmp_path / "model"), "new or empty folder"),
    ):
        code, _, err = tutelage("export", run, *words)
        assert (code, rule in err) == (2, True), err
    found = json.loads(tutelage("compare", run, run / "release", "--json", "--plot", tmp_path / "frontier.svg")[1])
    assert [row["run"] for row in found] == ["run", "run"]
    assert found[0]["scores"]["private student"] == scores["private student"]
    assert (tmp_path / "frontier.svg").read_text(encoding="utf-8").startswith("<?xml")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "differential-privacy" in card
    assert "| `marker` |" in card


def test_a_model_that_differs_is_refused(tutelage: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is real: an exporter that forgets a column, or whose classes are exchanged, is caught."""
    clinic(tmp_path / "clinic")
    tutelage("init", tmp_path / "clinic", "--out", tmp_path / "c.toml", "--epsilon", 8)
    assert tutelage("run", confirmed(tmp_path / "c.toml"), "--out", tmp_path / "run")[0] == 0
    right = samples.feeds

    def wrong(schema: object, cells: object) -> dict[str, np.ndarray]:
        found = right(schema, cells)  # type: ignore[arg-type]
        return {**found, "marker": np.zeros_like(found["marker"])}

    monkeypatch.setattr(samples, "feeds", wrong)
    code, _, said = tutelage("export", tmp_path / "run", "--out", tmp_path / "model")
    assert code == 2
    assert "must give the student's answers" in said
    monkeypatch.setattr(samples, "feeds", right)
    student = students.read(tmp_path / "run")
    turned = students.Student(student.form, student.model, student.accepted, student.schema, student.count, student.release)
    monkeypatch.setattr(students.Student, "names", property(lambda self: ("sick", "healthy")))
    content = exporting.onnx_model(turned).SerializeToString()
    monkeypatch.undo()
    (tmp_path / "turned.onnx").write_bytes(content)
    with pytest.raises(ValueError, match="student's labels"):
        exporting._check(student, tmp_path / "turned.onnx", "onnx", samples.raw(student))


def test_data_shows_what_is_read(tutelage: Call, tmp_path: Path) -> None:
    clinic(tmp_path / "clinic")
    with (tmp_path / "clinic" / "private.csv").open("a", encoding="utf-8") as file:
        file.write("p0,40,f,5.0,unclear\np0,one cell too few\n")
    tutelage("init", tmp_path / "clinic", "--out", tmp_path / "c.toml")
    code, said, err = tutelage("data", tmp_path / "c.toml", "--json", "--pictures", tmp_path / "look.html")
    assert code == 0, err
    private = json.loads(said)["parts"]["private"]
    assert private["labels"]["no class"] == 2
    assert private["units"] == 240
    assert any("another number of cells" in note for note in private["notes"])
    assert "NOT FOR RELEASE" in (tmp_path / "look.html").read_text(encoding="utf-8")
    assert (tmp_path / "look.html").stat().st_mode & 0o077 == 0
    code, said, _ = tutelage("data", tmp_path / "clinic")
    assert code == 0
    assert "label 'diagnosis'" in said


def test_ctrl_c_ends_with_one_line(tutelage: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from tutelage.drafting import draft

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(draft, "draft", stopped)
    code, said, err = tutelage("init", "anywhere")
    assert (code, said) == (130, "")
    assert err.strip().startswith("Stopped.")
    assert "--resume" in err
    assert "Traceback" not in err


def test_the_version_is_an_option(tutelage: Call) -> None:
    from tutelage import __version__

    assert tutelage("--version")[:2] == (0, f"{__version__}\n")


def test_one_file_divides_people_by_their_ids(tutelage: Call, tmp_path: Path) -> None:
    table = write(tmp_path / "all.csv", range(300))
    recipe = tmp_path / "all.toml"
    code, said, _ = tutelage("init", table, "--out", recipe)
    assert code == 0
    assert "public records" in said
    confirmed(recipe)
    code, _, said = tutelage("run", recipe, "--out", tmp_path / "run")
    assert code == 2
    assert "who is public" in said
    code, said, err = tutelage("run", recipe, "--out", tmp_path / "run", "--public-data", "--json")
    assert code == 0, err
    assert "30% of the units" in " ".join(json.loads(said)["guarantee"]["warnings"])


def test_what_a_recipe_declares_reads_back(tutelage: Call, tmp_path: Path) -> None:
    from tutelage.recipes.recipe import parse

    clinic(tmp_path / "clinic")
    tutelage("init", tmp_path / "clinic", "--out", tmp_path / "c.toml")
    recipe = read(tmp_path / "c.toml")
    assert parse(written(recipe)).sha256 == recipe.sha256
    assert str(tmp_path) not in written(recipe)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (('id = "patient"', "id = 7"), "data.id"),
        (("{ low", "{ lowest"), "columns.age"),
        (('classes = ["healthy", "sick"]', 'classes = ["healthy"]'), "classes"),
        (('classes = ["healthy", "sick"]', 'classes = ["7", "7.0"]'), "classes"),
        (('label = "diagnosis"', 'label = "age"'), "columns"),
        (('set = "table"', 'set = "table"\nsize = 8'), "data.size"),
        (('test_file = "test.csv"', ""), "test_file"),
        (('public_file = "public.csv"', ""), "public_file"),
    ],
)
def test_refusals(tutelage: Call, tmp_path: Path, change: tuple[str, str], rule: str) -> None:
    clinic(tmp_path / "clinic")
    recipe = tmp_path / "c.toml"
    tutelage("init", tmp_path / "clinic", "--out", recipe)
    text = recipe.read_text(encoding="utf-8")
    assert change[0] in text
    recipe.write_text(text.replace(*change), encoding="utf-8")
    code, _, said = tutelage("plan", recipe)
    assert code == 2
    assert rule in said
