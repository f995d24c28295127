"""The second opinion: another accountant's prices, and what it refuses to believe."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import os
import shutil
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import integrate, stats
from tests.walk.tiny import Killed, forged, kill_after, tiny_run

import tutelage as tt
from tutelage import guarantee as guarantees
from tutelage import manifest, verification
from tutelage.claims import number
from tutelage.guarantee import guarantee, intended, opened_with, planned, statement, warned
from tutelage.planning import Aggregation, Sanitise
from tutelage.privacy import accounting
from tutelage.privacy.errors import LedgerError, RecipeError
from tutelage.privacy.events import (
    Event,
    Gaussian,
    Laplace,
    NoisyMax,
    NonPrivate,
    Reserved,
    Sampled,
    SmoothRelease,
    SparseVector,
    Threshold,
)
from tutelage.privacy.ledger import Entry, Ledger, read_lines
from tutelage.runs import RunFolder
from tutelage.tasks.masks import reading as masks_reading
from tutelage.verification import _mu_at_least, _smooth_renyi, recomputed, verify

BOOKS: dict[str, list[tuple[Event, int]]] = {
    "gaussian": [(Gaussian(2.0, 30.0), 50)],
    "votes": [(NoisyMax("gaussian", 40.0), 200)],
    "votes of three": [(NoisyMax("gaussian", 40.0, 3), 20)],
    "confident": [(NoisyMax("gaussian", 40.0), 100), (Threshold(150.0), 640)],
    "laplace": [(Laplace(1.0, 20.0), 30)],
    "laplace votes": [(NoisyMax("laplace", 20.0), 100)],
    "sparse vector": [(SparseVector(0.1, 0.2, 3), 4)],
    "mixed": [(NoisyMax("laplace", 50.0), 10), (Gaussian(1.0, 10.0), 5)],
    "sampled": [(Sampled(Gaussian(1.0, 1.1), 0.01), 100)],
    "sampled laplace": [(Sampled(Laplace(1.0, 2.0), 0.01), 50)],
    "smooth": [(NoisyMax("gaussian", 40.0), 100), (SmoothRelease(0.01, 20.0), 1)],
}


# ── prices ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", BOOKS)
def test_our_price_is_not_below_the_other_accountants(name: str) -> None:
    opinion = recomputed(BOOKS[name])
    ours = accounting.cost(BOOKS[name], 1e-5)
    again = opinion.price(1e-5)
    assert again <= ours.epsilon * 1.005 + 1e-3
    assert again >= ours.epsilon * 0.7  # the same order: neither left something out
    assert opinion.accountant.startswith("dp-accounting")


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("name", ["gaussian", "votes", "votes of three", "confident"])
def test_where_ours_is_exact_both_agree(name: str, delta: float) -> None:
    opinion = recomputed(BOOKS[name])
    assert opinion.accountant == "dp-accounting, exact Gaussian"
    assert opinion.price(delta) == pytest.approx(accounting.cost(BOOKS[name], delta).epsilon, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("mu", [1e-7, 1e-4, 1e-2, 1e3])
def test_the_exact_price_holds_at_both_ends(mu: float) -> None:
    opinion, ours = recomputed([(Gaussian(1.0, 1 / mu), 1)]), accounting.mu_epsilon(mu, 1e-7)
    assert opinion.price(1e-7) == pytest.approx(ours, rel=opinion.slack, abs=opinion.slack)


def test_the_exact_price_lies_between_two_distributions() -> None:
    exact = recomputed(BOOKS["confident"]).price(1e-5)
    noises = ((40 / 2**0.5, 100), (150.0, 640))
    for pessimistic in (True, False):
        first, second = (
            pld.from_gaussian_mechanism(noise / count**0.5, pessimistic_estimate=pessimistic, use_connect_dots=pessimistic)
            for noise, count in noises
        )
        found = first.compose(second).get_epsilon_for_delta(1e-5)
        assert found == pytest.approx(exact, rel=1e-3)
        assert (found >= exact) == pessimistic


@pytest.mark.parametrize(
    "pairs",
    [
        [(NoisyMax("laplace", 50.0), 10), (Gaussian(1.0, 10.0), 900)],
        [(Sampled(Gaussian(1.0, 0.5), 0.05), 300)],
        [(SparseVector(0.1, 0.2, 3), 100)],
    ],
)
def test_a_coarse_grid_rounds_upwards_and_hardly(pairs: list[tuple[Event, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = recomputed(pairs).price(1e-5)
    monkeypatch.setattr(verification, "_GRIDS", (1e-4,))
    finest = recomputed(pairs).price(1e-5)
    assert finest * (1 - 1e-9) <= chosen <= finest * 1.001
    monkeypatch.setattr(verification, "_GRIDS", (1.0,))
    assert recomputed(pairs).price(1e-5) > finest * 1.005  # a grid that is taken without asking would be seen


def test_nothing_costs_nothing_and_a_look_costs_infinity() -> None:
    assert recomputed([]).price(1e-5) == 0.0
    assert recomputed([(NonPrivate("curious"), 1), *BOOKS["votes"]]).price(1e-5) == math.inf


FIXED = Sampled(Gaussian(1.0, 1.0), 0.1, "fixed", 1, 10)


@pytest.mark.parametrize("count", [1, 50, 400])
def test_a_fixed_sample_is_priced_by_its_theorem_written_out_again(count: int) -> None:
    ours = accounting.cost([(FIXED, count)], 1e-5).epsilon
    assert recomputed([(FIXED, count)]).price(1e-5) == pytest.approx(ours, rel=2e-3)


def test_a_reservation_is_priced_as_its_pair_and_its_pair_is_checked() -> None:
    ours = accounting.cost([(FIXED, 100)], 1e-5).epsilon
    honest, forged = (Reserved(FIXED, 100, epsilon, 1e-5) for epsilon in (ours, ours / 2))
    assert recomputed([(honest, 1)]).price(1e-5) == pytest.approx(ours, rel=1e-3)
    with pytest.raises(LedgerError, match="the rounds reserved must cost at most"):
        recomputed([(forged, 1)]).price(1e-5)
    at_half = accounting.cost([(FIXED, 100)], 5e-6).epsilon  # a smaller δ has a larger ε
    beside = [(Reserved(FIXED, 100, at_half, 5e-6), 1), (Gaussian(1.0, 4.0), 1)]
    assert recomputed(beside).price(1e-5) <= accounting.cost(beside, 1e-5).epsilon * (1 + 1e-3)


@pytest.mark.parametrize("pairs", [[*BOOKS["smooth"], *BOOKS["laplace"]]])
def test_what_it_cannot_price_is_refused(pairs: list[tuple[Event, int]]) -> None:
    with pytest.raises(LedgerError, match="every event"):
        recomputed(pairs).price(1e-5)


@pytest.mark.parametrize("order", [1.5, 4.0, 12.0])
def test_the_smooth_release_is_priced_by_its_definition(order: float) -> None:
    event = SmoothRelease(0.03, 4.0)
    wide, narrow = stats.norm(1.0, 4.0 * math.exp(0.03)), stats.norm(0.0, 4.0)  # the worst pair: the second narrower
    inside = integrate.quad(lambda x: math.exp(order * wide.logpdf(x) + (1 - order) * narrow.logpdf(x)), -400, 400, limit=500)[0]
    price = _smooth_renyi(event, np.asarray([order]))[0]
    assert price == pytest.approx(math.log(inside) / (order - 1), rel=1e-6)
    assert price == pytest.approx(accounting.smooth_release_rdp(0.03, 4.0, order)[0], rel=1e-9)


def test_the_smooth_release_is_infinite_beyond_its_last_order() -> None:
    limit = 1 / (1 - math.exp(-0.06))
    below, above = _smooth_renyi(SmoothRelease(0.03, 4.0), np.asarray([limit - 0.01, limit + 0.01]))
    assert math.isfinite(below)
    assert math.isinf(above)


@pytest.mark.parametrize(("epsilon", "delta"), [(8.0, 1e-5), (0.01, 1e-9), (200.0, 1e-3), (1.0, 1e-12)])
def test_the_gaussian_behind_a_pair_is_found_again(epsilon: float, delta: float) -> None:
    assert _mu_at_least(epsilon, delta) == pytest.approx(accounting.epsilon_mu(epsilon, delta), rel=1e-6)


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    root = tmp_path_factory.mktemp("runs")
    ways = {
        "gnmax": Aggregation("gnmax"),
        "lnmax": Aggregation("lnmax"),
        "confident": Aggregation("confident-gnmax", threshold=1.0),  # every second test passes: far less than the budget
        "sanitised": Aggregation("gnmax", sanitise=Sanitise(3.0, 0.02, 20.0)),
        "confident, sanitised": Aggregation("confident-gnmax", threshold=0.5, sanitise=Sanitise(3.0, 0.02, 20.0)),
    }
    return {name: tiny_run(root / name, aggregation=how, controls=False).folder for name, how in ways.items()}


@pytest.mark.parametrize("name", ["gnmax", "lnmax", "confident", "sanitised", "confident, sanitised"])
def test_good_runs_are_believed(runs: dict[str, RunFolder], name: str) -> None:
    verdict = verify(runs[name].root)  # a path does, as well as a RunFolder
    assert verdict.recomputed_epsilon <= verdict.claimed_epsilon * 1.005
    assert verdict.against_private_book
    assert tt.verify(runs[name]) == verdict


def spoilt(run: RunFolder, to: Path, /, **change: Any) -> RunFolder:
    """Copy the release alone, with another claim and a manifest that fits it."""
    folder = RunFolder(to)
    if "statement" not in change and "epsilon" in change:  # a forger minds his words
        budget = opened_with(read_lines(run.exported_book))
        excepted = bool(json.loads(run.guarantee.read_text(encoding="utf-8"))["excepted"])
        with contextlib.suppress(ValueError, TypeError):
            change["statement"] = statement(number(change["epsilon"]), budget, excepted)
            change["warnings"] = warned(number(change["epsilon"]), budget.delta, 120, [])
    forged(run.release, folder.published, **change)
    return folder


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("confident", {"epsilon": 7.5, "mu": 9.0}, "`epsilon` must not be below the budget, where that is quoted"),
        ("confident", {"adjacency": "add-remove"}, "`adjacency` must be what the book was opened with"),
        ("lnmax", {"mu_is_exact": True}, "`mu_is_exact` must be false"),
        ("lnmax", {"mu": 0.1}, "`mu` must not be below that of a Gaussian answer with this ε"),
        ("lnmax", {"implied_tpr_at_fpr_0.001": 0.002}, "`implied_tpr_at_fpr_0.001` must not be below what the book implies"),
        ("sanitised", {"epsilon": 1.0}, "`epsilon` must not be below what the book costs"),
        ("sanitised", {"implied_tpr_at_fpr_0.001": 0.002}, "must not be below what the book implies"),
        ("confident, sanitised", {"implied_tpr_at_fpr_0.001": 0.5}, "must not be below what its ε implies"),
        ("gnmax", {"implied_tpr_at_fpr_0.001": 0.07}, "must not be below what its μ implies"),
        ("gnmax", {"epsilon": "infinity", "mu": 0.01}, "`mu` must not be below infinity"),
        ("gnmax", {"epsilon": "infinity", "mu": "infinity", "implied_tpr_at_fpr_0.001": 0.1}, "must not be below 1, as ε is"),
        ("gnmax", {"statement": "One record changes nothing."}, "`statement` must say what the figures say"),
        ("gnmax", {"recipe_sha256": "0" * 64}, "must be what the book noted when the run started"),
        ("gnmax", {"tuned_on": "public data"}, "must be what the book noted when the run started"),
        ("gnmax", {"run": "another"}, "must be what the book noted|`quotes` must be 'budget'"),
        ("gnmax", {"adaptive": "x"}, "a wrong one, 'adaptive'"),
        ("gnmax", {"excepted": None, "statement": ""}, "a wrong one, 'excepted'"),
        ("gnmax", {"excepted": ["everything"]}, "a wrong one, 'excepted'"),
        ("gnmax", {"schema": 3}, "a wrong one, 'schema'"),
        ("gnmax", {"schema": 1}, "one unit could move every teacher"),
        ("gnmax", {"units": 12}, "`protects` must say"),
        ("gnmax", {"units": None, "roster": None}, "`protects` must say"),
        ("gnmax", {"protects": "Everybody is protected."}, "`protects` must say"),
        ("gnmax", {"warnings": ["All is well."]}, "`warnings` must hold what"),
        ("gnmax", {"sanitised_epsilon": 0.1}, "`sanitised_epsilon` must be null"),
        ("gnmax", {"labels": {"released": 31, "distinct": 31, "reinforced": 0}}, "`labels` must count no more answers"),
        ("gnmax", {"labels": {"released": 29, "distinct": 29, "reinforced": 1}}, r"`labels` must count what labels\.csv holds"),
        ("gnmax", {"data_independent_epsilon": 9.0}, "`data_independent_epsilon` must be at most `epsilon`"),
        ("confident", {"adaptive": False}, "`adaptive` must be true where a test decides"),
        ("confident", {"quotes": "cost"}, "`quotes` must be 'budget' where answers decide"),
    ],
)
def test_claims_that_promise_too_much_are_refused(
    runs: dict[str, RunFolder], tmp_path: Path, name: str, change: dict[str, Any], why: str
) -> None:
    with pytest.raises(LedgerError, match=why):
        verify(spoilt(runs[name], tmp_path / "copy", **change))


@pytest.mark.parametrize(
    "change", [{"mu": ...}, {"events": ...}, {"delta": None}, {"epsilon": True}, {"mu": [1]}, {"epsilon ": 0.1}, {"mu": 10**30}]
)
def test_claims_without_their_fields_are_refused(runs: dict[str, RunFolder], tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(LedgerError, match=r"documented fields and no others|must be a file that is whole and readable"):
        verify(spoilt(runs["gnmax"], tmp_path / "copy", **change))


def test_a_field_that_stands_twice_is_refused(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    folder = spoilt(runs["gnmax"], tmp_path / "copy")
    text = folder.guarantee.read_text(encoding="utf-8").replace("{", '{"epsilon": 0.1,', 1)
    assert json.loads(text)["epsilon"] > 1  # the broken twin: what json makes of it
    folder.guarantee.write_text(text, encoding="utf-8")
    manifest.write(folder.published)
    with pytest.raises(LedgerError, match="`guarantee` must be a file that is whole and readable"):
        verify(folder)


def test_a_sentence_that_rounds_downwards_is_refused(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    """What a version before rounded_up wrote: the nearest figure, here one that is smaller than ε."""
    claim = {"epsilon": 8.0004, "mu": 9.0, "implied_tpr_at_fpr_0.001": 1.0}
    folder = spoilt(runs["gnmax"], tmp_path / "copy", **claim)
    told = json.loads(folder.guarantee.read_text(encoding="utf-8"))["statement"]
    assert "e^8.001 and an addend of 1e-05" in told
    assert verify(folder).claimed_epsilon == 8.0004
    with pytest.raises(LedgerError, match="`statement` must say what the figures say"):
        verify(spoilt(runs["gnmax"], tmp_path / "other", **claim, statement=told.replace("e^8.001", "e^8")))


def test_claims_that_promise_less_are_the_owners_to_make(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    modest = {"epsilon": 20.0, "mu": 9.0, "implied_tpr_at_fpr_0.001": 1.0}
    assert verify(spoilt(runs["gnmax"], tmp_path / "copy", **modest)).claimed_epsilon == 20.0
    boundless = {"epsilon": "infinity", "mu": "infinity", "implied_tpr_at_fpr_0.001": 1.0}
    assert verify(spoilt(runs["gnmax"], tmp_path / "other", **boundless)).claimed_epsilon == math.inf


def test_a_claim_beyond_what_exp_can_hold_is_read(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    modest = {"epsilon": 1e4, "data_independent_epsilon": 1e4, "mu": 140.0, "implied_tpr_at_fpr_0.001": 1.0}
    for name in ("confident, sanitised", "sanitised", "lnmax", "gnmax"):
        assert verify(spoilt(runs[name], tmp_path / name, **modest)).claimed_epsilon == 1e4


# ── the release alone ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_release_is_verified_by_itself(runs: dict[str, RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs["gnmax"]
    copy = shutil.copytree(run.release, tmp_path / "from the hospital")
    (tmp_path / "private").mkdir()  # somebody else's
    (tmp_path / "private" / "book.sqlite").write_bytes(b"not this run's")
    alone, whole = verify(copy), verify(run.root)
    assert (alone.head, alone.claimed_epsilon) == (whole.head, whole.claimed_epsilon)
    assert not alone.against_private_book
    assert verify(run.release) == whole  # its own folder: what lies around it counts
    monkeypatch.chdir(run.release)
    assert verify(".") == whole
    monkeypatch.chdir(copy)
    assert verify(".") == alone


def test_a_release_without_its_guarantee_or_its_book_is_refused(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    for missing in ("guarantee.json", "book.jsonl"):
        copy = shutil.copytree(runs["gnmax"].release, tmp_path / missing)
        (copy / missing).unlink()
        with pytest.raises(RecipeError, match=r"or a release that holds guarantee\.json and book\.jsonl\. Got .* instead"):
            verify(copy)


def test_a_run_that_was_killed_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as until:
        kill_after(until, 2)
        with pytest.raises(Killed):
            tiny_run(tmp_path / "run", aggregation=Aggregation("gnmax"), controls=False)
    with pytest.raises(RecipeError, match=r"`run` must be finished\. Got .* run the recipe again with --resume to go on"):
        verify(tmp_path / "run")
    assert not (tmp_path / "run" / "release").exists()
    tiny_run(tmp_path / "run", aggregation=Aggregation("gnmax"), controls=False, resume=True)
    assert verify(tmp_path / "run" / "release").against_private_book


# ── books that guarantee next to nothing ──────────────────────────────────────────────────────────────────────────────

PAPER = 2 * math.sqrt(16) / 16  # one of 16 teachers moves a mean of 16 values in [-1, 1] so far
LARGE: dict[str, tuple[float, list[tuple[Event, int]]]] = {
    "as published": (1.2e3, [(Gaussian(PAPER, 1.46), 16384)]),
    "with less noise": (1e4, [(Gaussian(PAPER, 0.468), 16384)]),
    "beside a vote": (1.2e3, [(Gaussian(PAPER, 1.46), 16384), (NoisyMax("laplace", 20.0), 10)]),
    "less noise, beside a vote": (1e4, [(Gaussian(PAPER, 0.468), 16384), (NoisyMax("laplace", 20.0), 10)]),
    "laplace votes alone": (1e3, [(NoisyMax("laplace", 2.0), 4000)]),
    "with its sanitised figure": (1e4, [(Gaussian(PAPER, 0.468), 16384), (SmoothRelease(0.01, 20.0), 1)]),
}


def finished(root: Path, pairs: list[tuple[Event, int]], epsilon: float = 2e4) -> RunFolder:
    """Publish a run that was charged for these events, without having asked anything."""
    folder = RunFolder(root).create()
    about = intended(task="labels", adaptive=False, units=None, roster=None, shards="given", ledger="own")
    with Ledger(folder.book, tt.Budget(epsilon, 1e-7)) as ledger:
        ledger.begin("run", plan=planned(about))
        for event, count in pairs:
            ledger.charge(event, count=count)
        ledger.export(folder.exported_book)
        guarantees.write(guarantee(ledger.entries(), run="run", about=about), folder.guarantee)
        (folder.release / "labels.csv").write_text("public_record,label,source\n", encoding="utf-8")
        folder.scores.write_text("{}", encoding="utf-8")
        (folder.release / "student.txt").write_text("knows nothing", encoding="utf-8")
        folder.publish(ledger)
    return folder


@pytest.mark.parametrize("name", LARGE)
def test_large_figures_are_checked_in_seconds(tmp_path: Path, name: str) -> None:
    size, pairs = LARGE[name]
    folder = finished(tmp_path / "run", pairs)
    start = time.perf_counter()
    verdict = verify(folder)
    assert time.perf_counter() - start < 5.0
    assert verdict.claimed_epsilon == pytest.approx(size, rel=0.15)
    assert verdict.recomputed_epsilon == pytest.approx(verdict.claimed_epsilon, rel=0.05)
    exact = "exact" in verdict.accountant
    assert exact == all(isinstance(event, Gaussian) for event, _ in pairs)
    for share in (0.9, 0.999) if exact else (0.9,):  # nothing is rounded where everything is Gaussian: no room to hide in
        for field in ("epsilon", "data_independent_epsilon"):
            change = {"data_independent_epsilon": 0.5 * share * verdict.claimed_epsilon, field: share * verdict.claimed_epsilon}
            with pytest.raises(LedgerError, match=f"`{field}` must not be below what the book costs|`epsilon` must not be below"):
                verify(spoilt(folder, tmp_path / f"{share} {field}", **{field: change[field]}))


def test_a_book_that_may_not_be_read_is_left_alone(runs: dict[str, RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "private" not in str(path) and real(path, mode))
    assert verify(runs["gnmax"]).against_private_book is False


def test_a_missing_book_is_refused(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    folder = spoilt(runs["gnmax"], tmp_path / "copy")
    folder.exported_book.unlink()
    with pytest.raises(LedgerError, match=r"must hold every file of its manifest\. Got none named 'book.jsonl'"):
        verify(folder)
    with pytest.raises(RecipeError, match="`run` must be a run folder"):
        verify(tmp_path / "none")


# ── books that no ledger writes ───────────────────────────────────────────────────────────────────────────────────────


def rechained(run: RunFolder, to: Path, change: Callable[[list[Entry]], list[Entry]], **claim: Any) -> RunFolder:
    """Copy the release with other rows and a chain that is whole again: what a careless or dishonest ledger would export."""
    rows, previous = [], "0" * 64
    for seq, row in enumerate(change(read_lines(run.exported_book)), start=1):
        made = replace(row, seq=seq, previous=previous, hash="")
        rows.append(replace(made, hash=made.digest()))
        previous = rows[-1].hash
    folder = spoilt(run, to, ledger_head=previous, **claim)
    lines = [json.dumps(asdict(row), sort_keys=True, ensure_ascii=False) + "\n" for row in rows]
    folder.exported_book.write_text("".join(lines), encoding="utf-8")
    manifest.write(folder.published)
    return folder


def test_a_copy_with_a_new_chain_is_read(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    assert verify(rechained(runs["gnmax"], tmp_path / "copy", lambda rows: rows)).events > 0


SAMPLED = {
    "kind": "Sampled",
    "event": {"kind": "Gaussian", "sensitivity": 1.0, "sigma": 50.0},
    "rate": 0.01,
    "sampler": "fixed",
    "size": 1,
    "population": 100,
}


def altered(kind: str, change: dict[str, Any], rows: list[Entry]) -> list[Entry]:
    """Change fields of every row of a kind (`...` leaves one out), after a note has been added."""
    noted = [
        *rows,
        replace(rows[-1], kind="note", body={"remark": "x", "missing": None, "rate": 0.5, "run": rows[1].body["run"]}),
    ]
    made = [{name: value for name, value in {**row.body, **change}.items() if value is not ...} for row in noted]
    return [replace(row, body=body) if row.kind == kind else row for row, body in zip(noted, made, strict=True)]


def test_a_note_of_public_facts_is_read(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    folder = rechained(runs["gnmax"], tmp_path / "copy", functools.partial(altered, "note", {"more": True, "number": 3}))
    assert verify(folder).events > 0


@pytest.mark.parametrize("spelled", [{"votes": True}, {"votes": 1.0}, {"count": 30.0}])
def test_events_are_what_the_book_says_to_the_letter(runs: dict[str, RunFolder], tmp_path: Path, spelled: dict[str, Any]) -> None:
    [stated] = json.loads(runs["gnmax"].guarantee.read_text(encoding="utf-8"))["events"]
    assert {**stated, **spelled} == stated  # the twin: what Python takes for equal
    with pytest.raises(LedgerError, match="must list the book's events"):
        verify(spoilt(runs["gnmax"], tmp_path / "copy", events=[{**stated, **spelled}]))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda rows: [row for row in rows if row.kind != "charge"], "every answer must be charged for before it is released"),
        (lambda rows: [*rows[:2], *sorted(rows[2:], key=lambda row: row.kind == "charge")], "every answer must be charged for"),
        (
            lambda rows: [replace(row, kind="Charge") if row.kind == "charge" else row for row in rows],
            "rows must be starts, charges",
        ),
        (lambda rows: [*rows, rows[0]], "rows must be starts, charges, releases and notes"),
        (
            lambda rows: [replace(row, body={**row.body, "count": -1}) if row.kind == "release" else row for row in rows],
            "must hold what a ledger writes",
        ),
        *(
            (functools.partial(altered, kind, change), "must hold what a ledger writes|must belong to a run started before")
            for kind, change in (
                ("open", {"schema": 1}),
                ("open", {"schema": 2.0}),
                ("open", {"remark": "public data, no guarantee needed"}),
                ("open", {"run": "gnmax"}),
                ("open", {"ledger": "x"}),
                ("open", {"ledger": ...}),
                ("open", {"epsilon": "8.0"}),
                ("open", {"epsilon": [8.0, 9.0]}),
                ("open", {"unit_teachers": True}),
                ("start", {"run": ["x"]}),
                ("start", {"plan": ["x"]}),
                ("start", {"at": "noon"}),
                ("charge", {"nonce": ...}),
                ("charge", {"nonce": "0" * 31 + "g"}),
                ("charge", {"count": 1.0}),
                ("release", {"dtype": {"a": [1]}}),
                ("release", {"dtype": "|O8"}),
                ("release", {"shape": "x"}),
                ("release", {"shape": [-1]}),
                ("release", {"sha256": None}),
                ("note", {"declared": [1]}),
                ("note", {"declared": 5}),
                ("note", {"declared": None}),
                ("note", {"patients": ["Ann", "Bob"]}),
                ("note", {"run": ...}),
            )
        ),
        (
            functools.partial(altered, "charge", {"event": {**SAMPLED, "sampler": "poisson"}}),
            "proved for replace-one books. Got 'poisson'",
        ),
        (
            lambda rows: altered(
                "charge", {"event": SAMPLED}, [*rows[:2], replace(rows[1], body={**rows[1].body, "plan": "b"}), *rows[2:]]
            ),
            "must be in a book of one run with one plan",
        ),
    ],
)
def test_rows_that_no_ledger_writes_are_refused(runs: dict[str, RunFolder], tmp_path: Path, change: Any, why: str) -> None:
    with pytest.raises(LedgerError, match=why):
        verify(rechained(runs["gnmax"], tmp_path / "copy", change))


def test_a_book_beyond_its_budget_is_refused(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    def poor(rows: list[Entry]) -> list[Entry]:
        return [replace(rows[0], body={**rows[0].body, "epsilon": 1.0}), *rows[1:]]

    folder = rechained(runs["gnmax"], tmp_path / "copy", poor, budget_epsilon=1.0)
    with pytest.raises(LedgerError, match="the book must not cost more than its budget, 1"):
        verify(folder)


@pytest.mark.parametrize("scale", [1e-320, 1e300])
def test_figures_that_no_mechanism_has_are_refused_in_a_sentence(
    runs: dict[str, RunFolder], tmp_path: Path, scale: float
) -> None:
    def wild(rows: list[Entry]) -> list[Entry]:
        return [
            replace(row, body={**row.body, "event": {**row.body["event"], "scale": scale}}) if row.kind == "charge" else row
            for row in rows
        ]

    [stated] = json.loads(runs["gnmax"].guarantee.read_text(encoding="utf-8"))["events"]
    folder = rechained(runs["gnmax"], tmp_path / "copy", wild, events=[{**stated, "scale": scale}])
    with pytest.raises(LedgerError):
        verify(folder)


# ── what could take all time or memory ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize(("epsilon", "count"), [(8.0, 10**6 + 1), (2e5, 1)])
def test_what_no_grid_can_price_is_refused_before_it_is_priced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twin: bool, epsilon: float, count: int
) -> None:
    priced: list[int] = []

    def price(pairs: list[tuple[Event, int]], delta: float) -> Any:
        priced.append(1)
        raise LedgerError("a grid was made")

    folder = finished(tmp_path / "run", [(Laplace(1.0, 1e9), count)], epsilon)
    monkeypatch.setattr(verification, "_price", price)
    if twin:
        monkeypatch.setattr(verification, "_check_size", lambda *_: None)
    with pytest.raises(LedgerError, match="a grid was made" if twin else "must have at most 1,000,000 events and ε = 20,000"):
        verify(folder)
    assert len(priced) == twin


def test_many_gaussian_answers_need_no_grid(tmp_path: Path) -> None:
    assert verify(finished(tmp_path / "run", [(Gaussian(1.0, 1e6), 10**8)], 2e5)).events == 10**8


def packed(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_npy", ".npy"), content)
    return path


def array(values: Any, shape: tuple[int, ...] | None = None) -> bytes:
    """Write an array as .npy, maybe with another shape in its header."""
    made, content = np.asarray(values), io.BytesIO()
    header = {"descr": made.dtype.str, "fortran_order": False, "shape": made.shape if shape is None else shape}
    np.lib.format.write_array_header_1_0(content, header)
    return content.getvalue() + made.tobytes()


MASKS, CHOSEN = np.ones((3, 4, 4), np.float16), np.arange(3)


counted = masks_reading.READING.count


def test_masks_are_counted(tmp_path: Path) -> None:
    assert counted(packed(tmp_path / "good.npz", chosen_npy=array(CHOSEN), masks_npy=array(MASKS)), 3) == (
        3,
        0,
    )
    assert counted(packed(tmp_path / "good.npz", chosen_npy=array(CHOSEN), masks_npy=array(MASKS)), 2) == (
        3,
        0,
    )
    np.savez_compressed(tmp_path / "own.npz", chosen=CHOSEN, masks=MASKS)
    assert counted(tmp_path / "own.npz", 3) == (3, 0)


@pytest.mark.parametrize(
    "members",
    [
        {"masks_npy": array(np.ones((500, 4, 4), np.float16), (3, 4, 4))},  # 497 masks that nobody counts
        {"masks_npy": array(np.ones((0, 4, 4), np.float16), (3, 4, 4))},
        {"chosen_npy": array([-1.5, 0.0, 1e9])},
        {"chosen_npy": array([-1, 0, 1])},
        {"chosen_npy": array([0, 0, 1])},
        {"chosen_npy": array([[0, 1, 2]])},
        {"chosen_npy": array([0, 1, 2, 3])},
        {"more_npy": b"raw votes"},
    ],
)
def test_masks_beyond_those_that_are_counted_are_refused(tmp_path: Path, members: dict[str, bytes]) -> None:
    path = packed(tmp_path / "x.npz", **{"chosen_npy": array(CHOSEN), "masks_npy": array(MASKS), **members})
    with pytest.raises(ValueError, match=r"one mask per question|an archive of masks|than the header says"):
        counted(path, 3)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_second_array_of_one_name_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.npz", masks_npy=array(np.ones((500, 4, 4))), chosen_npy=array(CHOSEN))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("masks.npy", array(MASKS))
    with np.load(path) as seen:
        assert len(seen["masks"]) == 3  # the twin: the last one is read, and the first one leaves
    with pytest.raises(ValueError, match="an archive of masks"):
        counted(path, 3)
