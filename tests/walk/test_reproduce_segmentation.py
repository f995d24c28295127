"""The papers' figures about masks: what must show, shown; and every figure and table once, tiny."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from tutelage import cli
from tutelage.codecs.autoencoder import Autoencoder
from tutelage.data.dataset import Public
from tutelage.recipes import coders
from tutelage.reproduction import direct, segmentation, stages, studies
from tutelage.reproduction.findings import Finding
from tutelage.reproduction.pools import Bench
from tutelage.runs import RunFolder
from tutelage.tasks.masks import reading as masks_reading
from tutelage.verification import verify


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(name: str, bench: Bench) -> Finding:
    (item,) = segmentation.chosen((name,))
    return segmentation.reproduce(item, bench)


def tiny(out: Path, **choices: Any) -> Bench:
    return Bench(out=out, small=True, scale=0.02, device="cpu", **choices)


# ── what must show ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_theorem_4_predicts_the_measured_error_within_two_percent(tmp_path: Path) -> None:
    found = made("theorem-4", Bench(out=tmp_path, small=True))
    assert all(check.holds for check in found.checks), found.checks
    assert found.numbers is not None
    rows = found.numbers["scenes"]["rows"]
    assert len(rows) == 6
    for components, noise, error, theorem, equation in rows:
        assert error == pytest.approx(theorem, rel=0.01), (components, noise)
        assert error == pytest.approx(equation, rel=0.02), (components, noise)


def test_exhaustive_search_finds_what_the_criterion_says(tmp_path: Path) -> None:
    found = made("components", Bench(out=tmp_path, small=True))
    assert all(check.holds for check in found.checks), found.checks
    assert found.numbers is not None
    kept = [row[1] for row in found.numbers["scenes"]["rows"]]
    assert kept == sorted(kept, reverse=True)  # more noise, fewer components
    assert kept[0] > 200
    assert kept[-1] == 1
    for _, criterion, best, *_ in found.numbers["scenes"]["rows"]:
        assert abs(criterion - best) <= max(2, 0.1 * best)
    assert (tmp_path / "components" / "scenes.svg").stat().st_size > 1000


def test_the_activation_fills_the_ball(tmp_path: Path) -> None:
    found = made("ball", Bench(out=tmp_path, small=True))
    assert all(check.holds for check in found.checks), found.checks
    published, exact = found.tables[0].rows[:2]
    assert 0.01 < float(published[2]) < 0.02  # a logistic curve in place of the normal one: near, and seen by the test
    assert float(exact[3]) > 1e-3


def test_the_thesis_noise_was_that_of_one_answer() -> None:
    assert studies.one_answer_sigma(16, 16, 2.0, 1e-7) == pytest.approx(1.46, abs=0.005)


# ── every figure and table, tiny ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["naive", "students", "thesis-compression", "compression", "teachers"])
def test_a_figure_is_drawn_and_not_drawn_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(name, tiny(tmp_path))
    assert found.tables
    for picture in found.pictures:
        assert "<svg" in (tmp_path / name / picture).read_text(encoding="utf-8")
    monkeypatch.setattr(segmentation, "replace", lambda *_, **__: pytest.fail("made again"))
    again = made(name, tiny(tmp_path))
    assert again.markdown() == found.markdown()
    (tmp_path / name / found.pictures[0]).unlink()
    with pytest.raises(pytest.fail.Exception, match="made again"):
        made(name, tiny(tmp_path))


@pytest.mark.parametrize(("name", "epsilon"), [("thesis-stages", 2.0), ("stages", 8.0)])
def test_stages_go_through_the_door(name: str, epsilon: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opacus")
    bench = tiny(tmp_path)
    found = made(name, bench)
    (table,) = found.tables
    many = len(stages.ROWS)
    assert [row[0] for row in table.rows][:many] == [row for row, _ in stages.ROWS]
    assert all(0 <= float(cell) <= 1 for row in table.rows[:many] for cell in row[2:])  # every codec here saw public masks
    assert [row[0] for row in table.rows][many : many + 2] == ["DP-SGD", "noisy FedAvg"]
    for _, _, papers, *honest in table.rows[many : many + 2]:
        assert papers == "—"  # at the paper's noise there is no honest price to train a baseline at
        assert all(0 <= float(cell) <= 1 for cell in honest)
    for column in ("papers", "honest", "ours"):
        (folder,) = (tmp_path / name / column).glob("seed-0-*")
        verdict = verify(folder)
        told = json.loads((folder / "release" / "guarantee.json").read_text(encoding="utf-8"))
        assert verdict.against_private_book
        assert verdict.recomputed_epsilon == pytest.approx(told["epsilon"], rel=1e-2)
    assert found.numbers is not None
    assert found.numbers["honest"]["epsilon"] == [pytest.approx(epsilon, rel=1e-6)]
    (told,) = (row for row in table.rows if row[0] == "ε true")
    cells = dict(zip(("papers", "honest"), told[2:], strict=False))
    assert cells["honest"] == f"**{epsilon:g}**"  # rounded up, but for the room that a budget has over it
    assert float(cells["papers"].strip("*")) >= found.numbers["papers"]["epsilon"][0] * (1 - 2e-9)
    for baseline in ("DP-SGD", "noisy FedAvg"):
        assert found.numbers["honest"][f"{baseline}: ε"] == [pytest.approx(epsilon, rel=1e-4)]
        assert baseline not in found.numbers["papers"]
    assert found.numbers["papers"]["epsilon"][0] > epsilon  # what the papers' noise costs, even of a few answers
    assert "one teacher" in (tmp_path / name / "strip.svg").read_text(encoding="utf-8")
    monkeypatch.setattr(stages, "transfer", lambda *_, **__: pytest.fail("run again"))
    monkeypatch.setattr(direct, "_one", lambda *_, **__: pytest.fail("trained again"))
    (tmp_path / name / "figures.json").unlink()  # killed before the table was written: its runs are read
    assert made(name, bench).tables == found.tables
    nothing_behind_the_door_is_told(
        found, stages._made(bench, getattr(studies, MAKERS[name])(bench), shown=False), tmp_path / name
    )


def test_what_is_computed_otherwise_begins_beside_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A book belongs to one run: in the former one's folder the new one would be refused."""
    before, after = studies.tumours(tiny(tmp_path)), replace(studies.tumours(tiny(tmp_path)), form=studies.STAGES_FORM + 1)
    column, seen = before.columns[-1], []
    monkeypatch.setattr(stages, "_read", lambda folder, *_, **__: seen.append(folder.root.name) or {})
    for study in (before, before, after):
        stages._run(tiny(tmp_path), study, column, 0, shown=True)
    assert len(set(seen)) == 2
    assert len(list((tmp_path / "stages" / column.name).glob("seed-0-*/private/book.sqlite"))) == 2
    assert len(list((tmp_path / "stages" / "private").glob("teachers-*"))) == 2


MAKERS = {"thesis-stages": "thesis", "stages": "tumours"}


def nothing_behind_the_door_is_told(shown: Finding, kept: Finding, folder: Path) -> None:
    """Compare a table of drawn images with that of a folder: `shown` is the twin that tells everything."""
    behind = {name for name, key in stages.ROWS if key in stages.BEHIND}
    assert behind == {"teacher", "encoded teacher", "ensemble", "non-private"}
    for before, after in zip(shown.tables[0].rows, kept.tables[0].rows, strict=True):
        if after[0] in direct.BASELINES:  # on a stranger's data they are not even trained
            assert after[2:] == ("—", "not run", "not run")
        else:
            assert after[2:] == (("under private/",) * 3 if after[0] in behind else before[2:])
    assert shown.numbers is not None
    assert kept.numbers is not None
    for column in shown.numbers:
        baselines = {} if column == "papers" else {f"{one}{end}" for one in direct.BASELINES for end in ("", ": ε")}
        assert set(shown.numbers[column]) - set(kept.numbers[column]) == {*masks_reading.READING.sealed["stages"], *baselines}
    assert "under private/ of each run alone" in kept.remarks[-1]
    strip = (folder / "strip.svg").read_text(encoding="utf-8")
    assert "+ noise" in strip
    assert "one teacher" not in strip
    assert "ensemble" not in strip


@pytest.mark.parametrize("make", ["thesis", "tumours"])
def test_only_what_is_drawn_or_said_to_be_public_is_shown(make: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, make, lambda bench: None)
    monkeypatch.setattr(stages, "_made", lambda bench, study, *, shown: shown)
    assert getattr(stages, make)(Bench(out=tmp_path, small=True)) is True
    assert getattr(stages, make)(Bench(out=tmp_path, data=tmp_path)) is False  # a folder may hold anything
    assert getattr(stages, make)(Bench(out=tmp_path, data=tmp_path, public_data=True)) is True


@pytest.mark.parametrize("public", [True, False])
def test_a_run_of_published_data_says_why_it_shows_what_it_shows(
    public: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, given = studies.tumours(tiny(tmp_path)), {}  # drawn images play the folder's part
    bench = Bench(out=tmp_path, scale=0.02, device="cpu", data=tmp_path, public_data=public)
    facts = dict.fromkeys((key for _, key, _ in stages.FACTS), 1.0) | {"teachers": 1, "queries": 1, "unit": "patient"}
    for name in ("_codec", "_teachers", "_student"):
        monkeypatch.setattr(stages, name, lambda *_, **__: None)
    monkeypatch.setattr(stages, "transfer", lambda *_, **choices: given.update(choices))
    monkeypatch.setattr(stages, "_read", lambda *_, **__: facts)
    monkeypatch.setattr(stages, "_strip", lambda *_, **__: ())
    found = stages._made(bench, replace(study, columns=study.columns[:1]), shown=bench.shows)
    assert given["benchmark"] is public  # whether the run's own release shows them, too
    assert ("published data sets alone (--public-data)" in found.remarks[-1]) is public
    assert ("--public-data shows them" in found.remarks[-1]) is not public
    assert bench.settings != replace(bench, public_data=not public).settings  # or the other's table would be read


def test_a_codec_of_other_settings_is_not_taken_up(tmp_path: Path) -> None:
    bench, folder = tiny(tmp_path), RunFolder(tmp_path / "papers" / "seed-0")
    study = studies.tumours(bench)
    column, masks = study.columns[0], study.shapes.targets
    assert masks is not None
    first = stages._codec(bench, study, column, 0.1, folder)
    assert repr(stages._codec(bench, study, column, 0.1, folder)) == repr(first)
    assert len(list(folder.root.parent.glob("codec-*.safetensors"))) == 1
    assert stages._codec(bench, study, column, 0.2, folder).noise == 0.2
    other = replace(study, shapes=Public.of(study.shapes.inputs, masks[::-1].copy()))  # as many, of the same images
    stages._codec(bench, other, column, 0.1, folder)
    stages._codec(bench, replace(study, variables=8), column, 0.1, folder)
    assert len(list(folder.root.parent.glob("codec-*.safetensors"))) == 4


def test_a_recipe_takes_up_a_codec_only_of_its_own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another recipe left before its run began is of other noise: only a run that began says whose it is."""
    fitted: list[str] = []
    fields: dict[str, Any] = {"dim": 4, "activation": "ball", "norm": 1.0, "steps": 1, "batch": 1, "rate": 1.0, "widths": None}
    read, drawn = SimpleNamespace(**fields), Any
    monkeypatch.setattr(coders.sets, "shapes", lambda *_, **__: drawn)
    monkeypatch.setattr(coders, "noise", lambda *_: 0.1)
    made = SimpleNamespace(save=lambda path: path.write_bytes(b"codec"))
    monkeypatch.setattr(Autoencoder, "fit", lambda *_, **__: (fitted.append("fitted"), made)[1])
    monkeypatch.setattr(Autoencoder, "load", lambda *_, **__: (fitted.append("loaded"), made)[1])
    folder = RunFolder(tmp_path).create()
    recipe = SimpleNamespace(data=None, seed=0)
    for begun in (False, False, True):
        coders._Builder(recipe, drawn, "cpu", folder.release, begun)._network(read)  # type: ignore[arg-type]
    assert fitted == ["fitted", "fitted", "loaded"]


def test_votes_for_regions_are_a_column_too(tmp_path: Path) -> None:
    bench = tiny(tmp_path)
    study = studies.thesis(bench)  # at full size the last column is such a one
    column = replace(study.columns[-1], codec="regions", teachers=4, queries=2)
    found = stages._run(bench, study, column, 0, shown=True)
    assert found["epsilon"] == pytest.approx(8.0, rel=1e-6)
    assert found["sigma"] > 0


def test_the_page_and_the_plain_file_say_the_same(tmp_path: Path) -> None:
    found = [made("teachers", tiny(tmp_path)), Finding(name="x", title="another", settings="", missing="`data` must be here.")]
    segmentation.write(found, tmp_path)
    plain, page = segmentation.pages(tmp_path)
    record = json.loads(plain.read_text(encoding="utf-8"))
    assert [one["name"] for one in record["figures"]] == ["teachers", "x"]
    assert set(record) == {"name", "command", "machine", "versions", "figures"}
    assert record["figures"][0]["device"] in (record["machine"]["device"], "cpu")
    assert segmentation.read(plain) == found
    plain.write_text(json.dumps(record["figures"]), encoding="utf-8")  # as earlier versions wrote it
    assert segmentation.read(plain) == found
    text = page.read_text(encoding="utf-8")
    assert "![003 Fig. 4: ε over the number of teachers](teachers/teachers.svg)" in text
    assert "Skipped: `data` must be here." in text


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────────────────


def call(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["tutelage", "reproduce", "segmentation", *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--only", "teachers", "--small", "--out", str(tmp_path), "--data", str(tmp_path / "none"))
    assert call(*words, monkeypatch=monkeypatch) == 0
    assert "404.55" in capsys.readouterr().out
    assert call(*words, "--json", monkeypatch=monkeypatch) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == "teachers"
    assert call("--only", "stage", "--small", "--out", str(tmp_path), monkeypatch=monkeypatch) == 2
    assert "Did you mean 'stages'?" in capsys.readouterr().err


def test_full_size_without_files_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--only", "stages", "--only", "theorem-4", "--out", str(tmp_path), "--data", str(tmp_path / "none"))
    assert call(*words, monkeypatch=monkeypatch) == 2
    said = capsys.readouterr().out
    assert "`data` must hold hippocampus" in said
    assert "`data` must hold sisi/raw_images" in said
    assert "Got 'none', which does not exist, instead." in said
    (tmp_path / "none").mkdir()
    call(*words, monkeypatch=monkeypatch)
    assert "Got 'none' without any instead." in capsys.readouterr().out
    assert str(tmp_path / "none") not in (tmp_path / "segmentation.md").read_text(encoding="utf-8")


def test_a_figure_that_fails_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in ("imagesTr", "labelsTr"):  # a folder is there, and nothing is in it
        (tmp_path / "data" / "hippocampus" / part).mkdir(parents=True)
    words = ("--small", "--out", str(tmp_path / "out"), "--data", str(tmp_path / "data"))
    monkeypatch.setattr(studies, "thesis", lambda bench: bench.patients)  # at full size these are read
    assert call("--only", "thesis-stages", "--only", "teachers", *words, monkeypatch=monkeypatch) == 2
    assert "failed: DataError: `directory` must hold imagesTr" in capsys.readouterr().out
    failed, other = summary(tmp_path / "out")
    assert (other["name"], other["failed"]) == ("teachers", "")
    assert failed["failed"].startswith("DataError")
    assert "**Failed**: DataError" in (tmp_path / "out" / "segmentation.md").read_text(encoding="utf-8")
    # A failure is not kept, and what was finished before stays in the summary of what is asked for later.
    monkeypatch.setattr(studies, "thesis", lambda _: 1 / 0)
    assert call("--only", "thesis-stages", *words, monkeypatch=monkeypatch) == 2
    failed, other = summary(tmp_path / "out")
    assert failed["failed"].startswith("ZeroDivisionError at test_reproduce_segmentation.py:")
    assert (other["name"], other["failed"]) == ("teachers", "")
    monkeypatch.setattr(studies, "thesis", lambda _: (tmp_path / "smith.nii").read_bytes())  # a file may bear somebody's name
    assert call("--only", "thesis-stages", *words, monkeypatch=monkeypatch) == 2
    assert "(«No such file or directory»)" in summary(tmp_path / "out")[0]["failed"]
    assert "smith" not in (tmp_path / "out" / "segmentation.json").read_text(encoding="utf-8")
    monkeypatch.setattr(studies, "thesis", lambda _: 1 / 0)
    monkeypatch.setenv("TUTELAGE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        call("--only", "thesis-stages", *words, monkeypatch=monkeypatch)


def summary(out: Path) -> list[dict[str, Any]]:
    return list(json.loads((out / "segmentation.json").read_text(encoding="utf-8"))["figures"])


def test_what_was_made_is_written_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_: Bench) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(studies, "thesis", killed)
    words = ("--small", "--out", str(tmp_path), "--data", str(tmp_path / "none"))
    assert call("--only", "components", "--only", "thesis-stages", *words, monkeypatch=monkeypatch) == 130
    assert [one["name"] for one in summary(tmp_path)] == ["components"]
