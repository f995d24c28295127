"""The papers' walk with networks, on data that the package carries: `reproduce pate --only digits --small`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tutelage import cli
from tutelage.privacy.errors import DataError
from tutelage.reproduction import pate
from tutelage.reproduction.rows import ROWS, chosen
from tutelage.verification import verify

pytest.importorskip("torch")

WORDS = ["reproduce", "pate", "--only", "digits", "--small", "--device", "cpu", "--engine", "stacked"]


class Said(NamedTuple):
    code: int
    out: str
    err: str


def call(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Call main() as the installed command does."""
    monkeypatch.setattr(sys, "argv", ["tutelage", *words])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as left:
        cli.main()
    said = capsys.readouterr()
    return Said(int(left.value.code or 0), said.out, said.err)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Take the walk once."""
    place = tmp_path_factory.mktemp("pate")
    row = next(row for row in ROWS if row.name == "digits-small")
    pate.write([pate.reproduce(row, place, device="cpu", engine="stacked")], place)
    return place


def test_the_student_holds_its_bar_and_its_guarantee(out: Path) -> None:
    (row,) = json.loads((out / "pate.json").read_text(encoding="utf-8"))
    assert row["verdict"] == "holds its bar, 85.0%", row
    (figures,) = row["runs"]
    assert figures["student"] >= 0.85
    assert figures["student"] > figures["public_only"] + 0.5
    assert figures["non_private"] > 0.95
    assert figures["plurality"] > 0.85
    assert figures["epsilon"] == figures["charged"] == pytest.approx(8.0)
    assert 0 < figures["raw"] < figures["epsilon"]
    assert (figures["asked"], figures["answered"], figures["sanitised"]) == (60, 60, None)
    verdict = verify(out / "digits-small" / "seed-0")
    assert verdict.recomputed_epsilon == pytest.approx(8.0, rel=1e-3)
    assert verdict.events == 60
    assert verdict.against_private_book
    assert (out / "digits-small" / "seed-0" / "release" / "report.html").exists()
    assert sorted((out / "digits-small" / "seed-0" / "private" / "teachers").iterdir())  # finished teachers stay inside


def test_a_finished_row_is_read_and_not_run_again(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pate, "run", lambda *_, **__: pytest.fail("run again"))
    said = call([*WORDS, "--out", str(out)], monkeypatch, capsys)
    assert said.code == 0
    assert "8x8 digits, ours, small" in said.out
    assert "holds its bar, 85.0%" in said.out
    assert "shown only because these data sets are public anyway" in said.out
    said = call([*WORDS, "--out", str(out), "--json"], monkeypatch, capsys)
    assert json.loads(said.out) == json.loads((out / "pate.json").read_text(encoding="utf-8"))
    assert said.err == ""
    assert "| 8x8 digits, ours, small |" in (out / "pate.md").read_text(encoding="utf-8")


def test_another_recipes_run_is_refused(out: Path, tmp_path: Path) -> None:
    guarantee = out / "digits-small" / "seed-0" / "release" / "guarantee.json"
    place = tmp_path / "digits-small" / "seed-0" / "release"
    place.mkdir(parents=True)
    (place / "guarantee.json").write_text(
        json.dumps({**json.loads(guarantee.read_text(encoding="utf-8")), "run": "0" * 64}), encoding="utf-8"
    )
    row = next(row for row in ROWS if row.name == "digits-small")
    result = pate.reproduce(row, tmp_path)
    assert result.verdict == "failed"
    assert result.failed.startswith("RecipeError: `out` must hold runs of the recipes as they are now")
    assert result.runs == ()


def test_rows_without_files_are_skipped_and_say_what_is_missing(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # no ./data here
    said = call([*WORDS, "--only", "mnist", "--out", str(out)], monkeypatch, capsys)
    assert said.code == 0  # the other row is there
    assert "skipped: `directory` must be an existing folder. Got 'data' instead." in said.err
    assert "t10k-labels-idx1-ubyte.gz in data/mnist or data/MNIST/raw or data;" in said.err
    assert "Public address: http://yann.lecun.com/exdb/mnist/" in said.err
    assert "skipped" in said.out
    said = call(["reproduce", "pate", "--only", "adult", "--small", "--out", str(tmp_path / "none")], monkeypatch, capsys)
    assert said.code == 2  # nothing could be run
    assert "PATE: accuracy" not in said.out  # no table without a figure
    (row,) = json.loads((tmp_path / "none" / "pate.json").read_text(encoding="utf-8"))
    assert row["verdict"] == "skipped"
    assert row["mean"]["student"] is None
    assert "Adult, ours, small: skipped" in (tmp_path / "none" / "pate.md").read_text(encoding="utf-8")


def test_one_bad_row_stops_no_other_and_loses_no_summary(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    real, written, seen = pate.reproduce, pate.write, []

    def refused(*_: Any, **__: Any) -> None:
        raise DataError("`x` must be good. Got bad instead.")

    def reproduced(row: Any, place: Path, **rest: Any) -> pate.Result:
        return real(row, out if row.name == "digits-small" else place, **rest)

    monkeypatch.setattr(pate, "run", refused)
    monkeypatch.setattr(pate, "reproduce", reproduced)
    monkeypatch.setattr(pate, "write", lambda results, place: (seen.append(len(results)), written(results, place))[1])
    said = call([*WORDS, "--only", "mnist", "--out", str(tmp_path / "all")], monkeypatch, capsys)
    assert said.code == 2
    assert "failed: DataError: `x` must be good. Got bad instead." in said.err
    assert seen == [1, 2]  # after every row
    told = {row["row"]: row for row in json.loads((tmp_path / "all" / "pate.json").read_text(encoding="utf-8"))}
    assert told["digits-small"]["verdict"] == "holds its bar, 85.0%"
    assert (told["mnist-small"]["verdict"], told["mnist-small"]["missing"]) == ("failed", None)
    assert told["mnist-small"]["failed"] == "DataError: `x` must be good. Got bad instead."
    assert "MNIST, ours, small: failed" in (tmp_path / "all" / "pate.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("words", [("--engine", "rayy"), ("--device", "tpu")])
def test_options_are_refused_before_the_first_row(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = call([*WORDS, *words, "--out", str(tmp_path / "out")], monkeypatch, capsys)
    assert said.code == 2
    assert f"`{words[0][2:]}` must be one of" in said.err
    assert not (tmp_path / "out").exists()


def test_a_column_without_a_figure_is_not_shown(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = call([*WORDS, "--out", str(out)], monkeypatch, capsys)
    assert "plurality" in said.out
    assert "boosted" not in said.out.replace("boosted trees: a strong learner", "")


def test_the_summary_keeps_what_was_finished_before(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = tmp_path / "two"
    shutil.copytree(out, place)
    (place / "adult-small" / "seed-0").mkdir(parents=True)  # begun and not finished: nothing to tell
    said = call(["reproduce", "pate", "--only", "mnist-small", "--data", str(tmp_path), "--out", str(place)], monkeypatch, capsys)
    assert said.code == 2  # of this call's rows none could be run
    now, kept = json.loads((place / "pate.json").read_text(encoding="utf-8"))
    assert (now["row"], now["verdict"]) == ("mnist-small", "skipped")
    (was,) = (row for row in json.loads((out / "pate.json").read_text(encoding="utf-8")) if row["row"] == "digits-small")
    assert {**kept, "seconds": None} == {**was, "seconds": None}
    assert was["title"] in (place / "pate.md").read_text(encoding="utf-8")


def test_another_sets_files_skip_a_row_and_do_not_stop_it(tmp_path: Path) -> None:
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{name}-ubyte.gz").write_bytes(b"MNIST, say")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tutelage.data.downloads._connect", _no_network)
        row = next(row for row in ROWS if row.name == "fashion-mnist-small")
        result = pate.reproduce(row, tmp_path / "out", data=tmp_path, device="cpu")
    assert (result.verdict, result.failed) == ("skipped", "")
    assert "must be the published file" in result.missing
    assert "t10k-labels-idx1-ubyte.gz in " in result.missing


def _no_network(address: str) -> None:
    raise OSError("no network")


def test_copies_of_a_record_are_one_question(out: Path, tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.name == "digits-small")
    place = tmp_path / "digits-small" / "seed-0"
    shutil.copytree(out / "digits-small" / "seed-0", place)
    guarantee = place / "release" / "guarantee.json"
    told = json.loads(guarantee.read_text(encoding="utf-8"))
    told["events"][0]["count"] = 59  # the sixtieth was a second copy, and free
    guarantee.write_text(json.dumps(told), encoding="utf-8")
    result = pate.reproduce(row, tmp_path)
    (figures,) = result.runs
    assert (figures.asked, figures.answered, figures.labelled) == (59, 59, 60)
    cells = dict(zip(pate.HEADINGS, result.cells(), strict=True))
    assert cells["answered of asked"] == "59 of 59; 60 labels, since copies are free"


def test_every_row_shows_its_controls() -> None:
    votes, records = (next(row for row in ROWS if row.name == name) for name in ("mnist-ours", "adult-ours"))
    cells = [
        dict(zip(pate.HEADINGS, pate.Result(row=row, runs=(finished(**changes)(0),)).cells(), strict=True))
        for row, changes in (
            (votes, {}),
            (records, {"plurality": None, "true_labels": None, "no_noise": 0.857, "non_private": 0.853, "boosted": 0.874}),
        )
    ]
    for row in cells:
        assert row["same learner, non-private"]
        assert row["public only"]
        assert row["plurality, no noise"] or row["same learner, no noise"]
    assert cells[0]["plurality, no noise"] == "97.00%"
    assert (cells[1]["same learner, no noise"], cells[1]["same learner, non-private"]) == ("85.70%", "85.30%")
    assert cells[1]["boosted trees, non-private"] == "87.40%"
    assert cells[0]["boosted trees, non-private"] == ""


@pytest.mark.parametrize("small", [False, True])
def test_a_data_set_has_all_its_rows(small: bool) -> None:
    names = {row.name for row in ROWS if row.name.startswith("diabetes") and row.small == small}
    assert {row.name for row in chosen(("diabetes",), small=small)} == names
    assert small or {"diabetes-ours", "diabetes-30-days", "diabetes-lnmax"} <= names


def finished(name: str = "mnist-lnmax-100", **changes: Any) -> Callable[[int], pate.Figures]:
    """Make up a finished run."""
    base: dict[str, Any] = {
        "student": 0.98, "true_labels": 0.985, "non_private": 0.992, "plurality": 0.97, "public_only": 0.11,
        "released_labels": 0.99, "epsilon": 3.1, "charged": 3.1, "sanitised": None, "raw": 2.0, "delta": 1e-5,
        "asked": 100, "answered": 100, "no_noise": None,
    }  # fmt: skip
    return lambda seed: pate.Figures(**{**base, **changes, "seed": seed, "student": changes.get("student", 0.98) - 0.01 * seed})


def test_several_seeds_are_a_mean_and_a_spread() -> None:
    row = next(row for row in ROWS if row.name == "mnist-lnmax-100")
    result = pate.Result(row=row, runs=tuple(finished()(seed) for seed in range(3)))
    cells = dict(zip(pate.HEADINGS, result.cells(), strict=True))
    assert cells["student"] == "97.00 ± 1.00 %"
    assert cells["published"] == "98.00% (non-private 99.18%)"
    assert (cells["ε published"], cells["ε"], cells["answered of asked"]) == ("2.04", "3.1", "100 of 100")
    (told,) = pate.document([result])
    assert told["mean"]["student"] == pytest.approx(0.97)
    assert told["sd"]["student"] == pytest.approx(0.01)


def test_the_epsilon_to_quote_is_rounded_up() -> None:
    for epsilon, told in ((7.617058, "7.618"), (8.000000000000002, "8"), (float("inf"), "∞")):
        result = pate.Result(row=ROWS[0], runs=tuple(finished(epsilon=epsilon)(seed) for seed in range(2)))
        assert dict(zip(pate.HEADINGS, result.cells(), strict=True))["ε"] == told


def test_a_row_below_its_bar_ends_the_command_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(pate, "reproduce", lambda row, *_, **__: pate.Result(row=row, runs=(finished(student=0.5)(0),)))
    said = call(["reproduce", "pate", "--only", "mnist-ours", "--out", str(tmp_path)], monkeypatch, capsys)
    assert said.code == 1
    assert "below its bar, 99.0%" in said.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--only minst", "Did you mean 'mnist'?"),
        ("--only digits", "`only` must name full-size rows, or data sets with one (add --small?). Got digits instead."),
        ("--only svhn --small", "`only` must name small rows, or data sets with one (leave out --small?). Got svhn instead."),
        (
            "--only mnist-ours --only digits --small",
            "`only` must name small rows, or data sets with one (leave out --small?). Got mnist-ours instead.",
        ),
    ],
)
def test_rows_that_are_not_there_are_refused(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = call(["reproduce", "pate", *words.split(), "--out", str(tmp_path / "out")], monkeypatch, capsys)
    assert said.code == 2
    assert message in said.err
    assert not (tmp_path / "out").exists()


def test_every_row_has_a_recipe_of_its_size() -> None:
    for row in ROWS:
        assert row.recipe().name == row.name
        assert row.recipe(2).seed == row.recipe().seed + 2
        assert row.small == row.name.endswith("-small")
        assert row.recipe(1).sha256 != row.recipe().sha256
