"""The page: whole, self-contained, honest, and without private figures where it may leave."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from tests.walk.tiny import tiny_run

import tutelage as tt
from tutelage.planning import Aggregation, MeanPlan
from tutelage.privacy.errors import LedgerError, RecipeError
from tutelage.privacy.events import Event
from tutelage.report import plots, strips
from tutelage.report import words as plain
from tutelage.report.page import pages
from tutelage.runs import RunFolder
from tutelage.tasks.labels import reading as labels_reading
from tutelage.tasks.masks import reading as stages
from tutelage.tasks.scores import Score
from tutelage.tasks.table import read_controls

CONTROLS = labels_reading.READING.sealed["controls"]

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Checked(HTMLParser):
    """Refuse elements that do not close in order, and collect what a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [
            value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "srcset", "data", "action")
        ]
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "srcset", "data", "action") or "url(" in (value or "").replace("url(#", ""):
                self.fetched.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    root = tmp_path_factory.mktemp("report")
    made = {
        "hidden": tiny_run(root / "hidden"),
        "benchmark": tiny_run(root / "benchmark", benchmark=True, aggregation=Aggregation("lnmax")),
        "no answers worth it": tiny_run(root / "noise", budget=tt.Budget(0.01, 1e-5), controls=False),
    }
    return {name: tt.report(outcome.folder, name=f"{name} & more") for name, outcome in made.items()}


def words(path: Path) -> str:
    """Give the page without its pictures."""
    return re.sub(r"<svg.*?</svg>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_pages_are_well_formed_and_fetch_nothing(runs: dict[str, RunFolder]) -> None:
    for folder in runs.values():
        for path in (folder.report, folder.inside_report):
            if not path.exists():
                continue
            page = Checked(path.read_text(encoding="utf-8"))
            assert all(target.startswith(("#", "data:image/png;base64")) for target in page.fetched)
            assert not page.tags & {"script", "iframe", "link", "object", "embed", "form"}
            assert "@import" not in path.read_text(encoding="utf-8")


def test_names_are_escaped(runs: dict[str, RunFolder]) -> None:
    assert "<h1>hidden &amp; more</h1>" in words(runs["hidden"].report)


def test_the_page_that_may_leave_has_no_figure_from_private_data(runs: dict[str, RunFolder]) -> None:
    page = runs["hidden"].report.read_text(encoding="utf-8")
    for name in CONTROLS:
        assert name.removeprefix("control: ") not in page
    assert "Not for release" not in page
    assert "Controls that read private data are under private/, not here." in page
    for value in read_controls(runs["hidden"]).values():
        assert f"{value:.4f}" not in words(runs["hidden"].report)


def test_the_page_that_stays_inside_says_so(runs: dict[str, RunFolder]) -> None:
    page = words(runs["hidden"].inside_report)
    assert "<strong>Not for release.</strong>" in page
    assert "shown because this page stays inside: non-private, all private labels; plurality of teachers" in page
    assert runs["hidden"].inside_report.stat().st_mode & 0o777 == 0o600


def test_a_benchmark_may_show_its_controls_and_says_why(runs: dict[str, RunFolder]) -> None:
    page = words(runs["benchmark"].report)
    assert "shown because this data set is public: non-private, all private labels" in page
    assert "Not covered: controls in scores.json and report.html" in page


def test_figures_are_those_of_the_guarantee(runs: dict[str, RunFolder]) -> None:
    page = words(runs["hidden"].report)
    assert "<b>8</b><span>ε to quote</span>" in page
    assert "<b>1.67</b><span>μ (Gaussian DP)</span>" in page
    assert "<b>7.72 %</b><span>best attack at 0.1 % false positives</span>" in page
    assert "30 questions about public records were answered." in page
    assert "<td>NoisyMax</td>" in page
    assert "μ of a Gaussian answer with this (ε, δ)" in words(runs["benchmark"].report)  # Laplace: not a Gaussian curve


def test_a_student_that_bought_nothing_is_told(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    folder = runs["no answers worth it"]
    assert not folder.inside_report.exists()  # without controls there is nothing that must stay inside
    original = folder.scores.read_text(encoding="utf-8")
    folder.scores.write_text(original.replace('"private student": ', '"private student": 0.0, "was": '), encoding="utf-8")
    tt.report(folder)
    assert "does not beat the public-only control: these answers bought nothing." in words(folder.report)


def test_the_function_stays_a_function(runs: dict[str, RunFolder]) -> None:
    assert callable(tt.report)  # and not the package of the same name, however often it was imported
    from tutelage.report import page

    assert tt.report is page.report


def test_runs_that_are_not_finished_or_have_moved_on_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="`run` must be a run folder"):
        tt.report(tmp_path)
    outcome = tiny_run(tmp_path / "run", controls=False)
    with tt.Ledger(outcome.folder.book) as book:
        book.note(remark="somebody was here")
    tt.report(outcome.folder)  # a note costs nothing
    with tt.Ledger(outcome.folder.book) as book:
        book.reveal(tt.Sealed([1.0]), reason="curious")
    with pytest.raises(LedgerError, match="must cover all that its run was charged for"):
        tt.report(outcome.folder)


# ── pictures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_galleries_show_images_alone() -> None:
    assert plots.gallery(np.zeros((3, 7)), np.arange(3)) is None
    assert plots.gallery(np.empty(0), np.empty(0)) is None
    assert plots.gallery(np.empty((0, 8, 8)), np.empty(0)) is None
    for shape in ((13, 8, 8), (3, 1, 28, 28)):
        figure = plots.gallery(np.random.default_rng(0).random(shape), np.arange(shape[0]))
        assert figure is not None
        assert len(figure.axes[0].texts) == shape[0]


def test_attack_curves_are_drawn_from_their_bound() -> None:
    figure = plots.attack_curve(lambda fpr: np.minimum(1.0, 3 * fpr))
    curve = figure.axes[0].lines[0]
    assert np.allclose(curve.get_ydata(), np.minimum(1.0, 3 * np.asarray(curve.get_xdata())))


def test_plan_curves_go_through_the_plan() -> None:
    plan = MeanPlan(8, 62, 0.075, None, 1e-2).solved()
    replaced, removed = plots.epsilon_against_teachers(plan, np.arange(4, 101)).axes[0].lines[:2]
    assert np.interp(8, replaced.get_xdata(), replaced.get_ydata()) == pytest.approx(404.546, abs=1e-3)
    assert np.interp(8, removed.get_xdata(), removed.get_ydata()) == pytest.approx(115.721, abs=1e-3)
    answers = plots.queries_against_epsilon(plan, [0.075], np.asarray([plan.epsilon])).axes[0].lines[0]
    assert answers.get_ydata()[0] == pytest.approx(62)
    noise = plots.sigma_against_queries(plan, [plan.epsilon or 0.0], np.asarray([62.0])).axes[0].lines[0]
    assert noise.get_ydata()[0] == pytest.approx(0.075)


def test_spending_begins_with_nothing_and_counts_whole_charges() -> None:
    axes = plots.spending([1.0, 2.0], 3.0).axes[0]
    assert [axes.lines[0].get_xdata().tolist(), axes.lines[0].get_ydata().tolist()] == [[0, 1, 2], [0, 1, 2]]
    assert all(tick == round(tick) for tick in axes.get_xticks())


def test_an_svg_stands_alone_inside_a_page() -> None:
    text = plots.svg(plots.spending([1.0, 2.0], 3.0))
    assert text.startswith("<svg")
    assert text.rstrip().endswith("</svg>")
    assert "<?xml" not in text


# ── masks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def masked(root: Path, space: tuple[int, ...], *, truth: bool = True, behind: bool = True) -> RunFolder:
    """Leave what a run about masks leaves: five answers, of which some are about nothing."""
    rng, folder = np.random.default_rng(0), RunFolder(root).create()
    masks = (rng.random((5, *space)) > 0.5).astype(np.uint8)
    masks[0] = 0
    beside = {"truth": masks} if truth else {}
    inputs, noisy = rng.normal(size=(5, 2, *space)).astype(np.float32), masks + rng.normal(0, 0.1, masks.shape)
    shown = np.arange(5) * 8
    np.savez(folder.samples, shown=shown, inputs=inputs, answers=noisy, mean=masks.mean(axis=0), student=masks, **beside)
    if behind:
        np.save(folder.shown_stages, np.stack([masks, masks, masks]).astype(np.float16))
    return folder


@pytest.mark.parametrize("space", [(9, 8), (6, 9, 8)])
def test_strips_show_every_stage_of_images_and_volumes(space: tuple[int, ...], tmp_path: Path) -> None:
    sheet = strips.strip(masked(tmp_path, space), inside=False)
    assert sheet is not None
    assert sheet.sides == [("public", 2), ("private", 3), ("released", 2)]
    assert [len(row) for row in sheet.rows] == [7] * 5
    assert all(cell.picture.startswith("data:image/png;base64,") for row in sheet.rows for cell in row)
    assert sheet.rows[1][-1].score == 1.0
    assert sheet.rows[1][1].score is None  # the truth is not scored
    assert sheet.volume == (len(space) == 3)
    assert (sheet.scored, sheet.behind, sheet.spaced) == (True, True, True)
    assert sheet.peak == pytest.approx(0.8)  # of five masks one is empty


def test_every_picture_says_what_it_is(tmp_path: Path) -> None:
    sheet = strips.strip(masked(tmp_path, (9, 8)), inside=False)
    assert sheet is not None
    assert [row[0].alt for row in sheet.rows] == [f"question {place}" for place in (1, 9, 17, 25, 33)]
    assert [cell.alt for cell in sheet.rows[1]][1:3] == ["question 9: truth", "question 9: one teacher"]


def test_strips_show_what_is_behind_the_door_where_it_may_be_shown(tmp_path: Path) -> None:
    folder = masked(tmp_path, (8, 8), truth=False, behind=False)
    sheet = strips.strip(folder, inside=False)
    assert sheet is not None
    assert sheet.headings == [("public image", "public"), ("released answer", "released"), ("student", "released")]
    assert all(cell.score is None for row in sheet.rows for cell in row)
    assert not sheet.scored
    assert not sheet.behind
    np.save(folder.pictures, np.zeros((3, 5, 8, 8), np.float16))
    assert len(strips.strip(folder, inside=True).headings) == 6  # type: ignore[union-attr]
    assert len(strips.strip(folder, inside=False).headings) == 3  # type: ignore[union-attr]


MASKS = {
    "private student": 0.6,
    "released masks": 0.7,
    "control: mean shape, constant": 0.5,
    "control: mean shape, as the student's label": 0.6,
    "control: public only, no answers (ε = 0)": 0.5,
}


def test_stages_are_in_their_order_and_controls_beside_them() -> None:
    way, controls = stages.rows({**MASKS, "stage: teacher": 0.4, "control: non-private, all private masks": 0.9})
    assert [row.name for row in way] == ["teacher", "released answers, on the questions", "student"]
    assert [row.name for row in controls] == ["non-private", "mean shape as label", "mean shape", "empty mask"]


def test_a_control_that_does_as_well_is_named() -> None:
    assert stages.verdict(MASKS) == "The private student (0.600) does not beat its controls: mean shape as label (0.600)."
    both = stages.verdict({**MASKS, "private student": 0.45})
    assert both.endswith("mean shape as label (0.600), mean shape (0.500), empty mask (0.500).")
    assert stages.verdict({**MASKS, "private student": 0.61}) == ""


def test_what_each_row_is_scored_on_is_said() -> None:
    said = stages.scored_note({**MASKS, "stage: ensemble, no noise": 0.5, "squared error: private student": 0.1}, votes=True)
    assert "they are scored on the public images that were asked about" in said
    assert "the region that won a vote with noise" in said
    assert "squared error the lower" in said
    bare = stages.scored_note({Score.STUDENT: 0.5}, votes=True)
    assert bare == "Mean Dice on held-out public test images."
    assert "vote" not in stages.scored_note(MASKS, votes=False)


def test_what_an_empty_mask_is_worth_is_said() -> None:
    assert "50% of the test images hold nothing to find" in stages.empty_note(MASKS)
    assert "scores 0" in stages.empty_note({Score.PUBLIC_ONLY: 0.0})
    assert stages.empty_note({}) == ""


def mask_page(folder: RunFolder, runs: dict[str, RunFolder], **scores: float) -> str:
    """Write the page that a run about masks would have, with the guarantee and the book of one about labels."""
    for name in ("guarantee", "exported_book"):
        getattr(folder, name).write_bytes(getattr(runs["hidden"], name).read_bytes())
    folder.guarantee.write_text(folder.guarantee.read_text(encoding="utf-8").replace('"task": "labels"', '"task": "masks"'))
    folder.scores.write_text(json.dumps({**MASKS, **scores}), encoding="utf-8")
    pages(folder)
    page = folder.report.read_text(encoding="utf-8")
    Checked(page)
    assert 'alt=""' not in page
    return re.sub(r"\s+", " ", page)


@pytest.mark.parametrize("space", [(9, 8), (6, 9, 8)])
def test_the_page_says_by_what_rule_questions_are_shown(
    space: tuple[int, ...], runs: dict[str, RunFolder], tmp_path: Path
) -> None:
    page = mask_page(masked(tmp_path, space), runs)
    assert "5 of the 30 questions, evenly spaced in the order in which they were asked, whatever was answered." in page
    assert ("of the whole volume and not of the slice shown" in page) == (len(space) == 3)
    assert "these data were declared to be public anyway" in page  # its guarantee names no data
    assert "Every stage, image by image" in page
    assert "As a constant it is an empty mask" not in page


def test_the_page_of_an_older_choice_does_not_call_it_fair(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    folder = masked(tmp_path, (9, 8))
    with np.load(folder.samples) as found:
        kept = {name: values for name, values in found.items() if name != "shown"}
    np.savez(folder.samples, **{**kept, "mean": np.full((9, 8), 0.5)})
    page = mask_page(folder, runs)
    assert "largest released answers: an older version chose them so, and they are no fair sample" in page
    assert "As a constant it is an empty mask, because it nowhere exceeds one half" in page


def test_headings_promise_no_stage_that_is_not_shown(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    page = mask_page(masked(tmp_path, (9, 8), truth=False, behind=False), runs)
    assert "<h2>What was released, and the student</h2>" in page
    assert "<h2>Answers and student, image by image</h2>" in page
    assert "without noise, and ε does not cover it" not in page
    assert "Below each mask" not in page


# ── plain words ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_backticks_become_code_and_nothing_else_does() -> None:
    assert plain.coded("what `excepted` names & <b>") == "what <code>excepted</code> names &amp; &lt;b&gt;"


def test_the_statement_s_addend_and_neighbours_are_explained(runs: dict[str, RunFolder]) -> None:
    said = {"epsilon": 8.0, "delta": 1e-5, "unit": "record", "adjacency": "replace-one"}
    assert "about one chance in 100,000" in plain.statement(said)
    assert "in which all data of one record may differ, or be absent" in plain.statement(said)
    assert "one patient more" in plain.statement({**said, "unit": "patient", "adjacency": "add-remove"})
    assert "chance" not in plain.statement({**said, "delta": 0.0})
    assert plain.statement({**said, "epsilon": "infinity"}) == ""
    assert "<code>excepted</code>" in words_of_statement(runs["benchmark"])


def words_of_statement(folder: RunFolder) -> str:
    found = re.search(r'<div class="statement">.*?</div>', folder.report.read_text(encoding="utf-8"))
    assert found is not None
    assert "`" not in found[0]
    return found[0]


def test_every_kind_of_event_is_explained_once() -> None:
    for kind in get_args(Event):
        [(name, means)] = plain.events({"unit": "patient", "events": [{"kind": kind.__name__, "count": 1}] * 2})
        assert name == kind.__name__
        assert "{" not in means
        for named in re.findall("`(.+?)`", means):
            assert named in {field.name for field in fields(kind)}


def test_counts_that_differ_are_explained() -> None:
    votes = {"kind": "NoisyMax", "count": 59}
    asked = {"labels": {"released": 64}, "events": [votes]}
    said = plain.counts(asked, 21)
    assert "64 answers and 59 events: a record that is in the pool more than once is asked about once" in said
    assert "59 events in 21 charges" in said
    assert "answers" not in plain.counts({**asked, "events": [votes, {"kind": "Threshold", "count": 1}]}, 21)
    assert plain.counts({**asked, "labels": {"released": 59}}, 59) == ""


def test_what_is_behind_the_door_is_shown_for_a_reason() -> None:
    assert "they stay inside" in plain.behind({}, inside=True)
    assert "declared to be public" in plain.behind({"data": None}, inside=False)
    assert "“scenes”, are public anyway" in plain.behind({"data": {"set": "scenes", "published": True}}, inside=False)
