"""Several runs on one data set share a ledger: one budget for all, and each quotes what is a theorem for it."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import nullcontext
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.walk.tiny import Killed, MeanTeachers, tiny_run

import tutelage as tt
from tutelage import manifest
from tutelage.planning import Aggregation
from tutelage.privacy.errors import BudgetExceeded, LedgerError, RecipeError
from tutelage.privacy.ledger import read_lines
from tutelage.recipes.recipe import Recipe, parse
from tutelage.recipes.run import run
from tutelage.runs import RunFolder
from tutelage.sharing import owned, summary
from tutelage.transfer import Outcome
from tutelage.verification import verify, verify_together

TWELVE = tt.Budget(12.0, 1e-5)


def recipe(name: str, **changes: str) -> Recipe:
    text = resources.files("tutelage.recipes").joinpath("digits.toml").read_text(encoding="utf-8")
    for old, new in {"= 200": "= 20", 'name = "digits"': f'name = "{name}"', **changes}.items():
        assert old in text
        text = text.replace(old, new)
    return parse(text)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome, Outcome]:
    """Carry out two recipes of ε = 8 each on one ledger of 12."""
    root = tmp_path_factory.mktemp("shared")
    ledger = root / "patients.sqlite"
    owned(ledger, TWELVE).close()
    return ledger, run(recipe("one"), root / "one", ledger=ledger), run(recipe("two"), root / "two", ledger=ledger)


def test_two_recipes_share_a_budget_and_the_second_ends_where_it_ends(pair: tuple[Path, Outcome, Outcome]) -> None:
    ledger, one, two = pair
    assert one.guarantee["labels"]["released"] == 20
    assert 0 < two.guarantee["labels"]["released"] < 20  # alone it would have had its 20
    with pytest.raises(BudgetExceeded, match="Got a budget that other runs have used up instead; nothing was read"):
        run(recipe("three"), ledger.parent / "three", ledger=ledger)
    assert not RunFolder(ledger.parent / "three").finished
    found = summary(ledger)
    assert len(found["runs"]) == 2
    assert 11 < found["spent_epsilon"] <= 12 * (1 + 1e-9)


def test_a_twin_with_a_ledger_of_its_own_gets_everything_again(pair: tuple[Path, Outcome, Outcome], tmp_path: Path) -> None:
    again = run(recipe("two"), tmp_path / "two")
    assert again.guarantee["labels"]["released"] == 20
    assert again.guarantee["epsilon"] + pair[1].guarantee["epsilon"] > 15.9  # of a data set that was to give 12 in all
    assert "cover this run alone" in again.guarantee["protects"]


def test_each_release_verifies_alone_and_both_together(pair: tuple[Path, Outcome, Outcome], tmp_path: Path) -> None:
    _, one, two = pair
    first, second = verify(one.folder), verify(two.folder)
    assert (first.quotes, second.quotes) == ("cost", "budget")
    assert (first.claimed_epsilon, second.claimed_epsilon) == (pytest.approx(8.0), 12.0)
    assert "The budget covers all runs that share this ledger." in two.guarantee["protects"]
    verdicts, together = verify_together([one.folder, two.folder.release])
    assert [verdict.claimed_epsilon for verdict in verdicts] == [first.claimed_epsilon, 12.0]
    assert 11 < together.epsilon <= 12 * (1 + 1e-6)
    alone = run(recipe("two"), tmp_path / "alone")
    with pytest.raises(LedgerError, match=r"must share one ledger.*no more than ε = 16 at δ = 2e-05 is known"):
        verify_together([one.folder, alone.folder])


class Clear(MeanTeachers):
    """Teachers who all agree: their answers have a clear winner, whatever the noise."""

    key = "clear"

    def vote(self, inputs: np.ndarray) -> tt.Sealed:
        return tt.Sealed(np.zeros((len(self.means), len(inputs)), dtype=np.int64))


@pytest.mark.parametrize("shared", [False, True])
def test_two_ledgers_with_equal_answers_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    settings: dict[str, Any] = {"teachers": Clear(), "aggregation": Aggregation("gnmax", sigma=1.5), "queries": 3}

    def released(name: str) -> Path:
        book = {"ledger": tmp_path / f"{name}.sqlite"} if shared else {}
        outcome = tiny_run(tmp_path / name, budget=tt.Budget(40.0, 1e-5), **settings, **book)
        return outcome.folder.published

    one, two = released("one"), released("two")
    assert (one / "labels.csv").read_bytes() == (two / "labels.csv").read_bytes()
    with pytest.raises(LedgerError, match="must share one ledger"):
        verify_together([one, two])
    assert len(verify_together([one, one])[0]) == 2  # the same release twice is one
    monkeypatch.setattr("tutelage.privacy.ledger.nonce", lambda: "0" * 32)  # the twin: rows that two ledgers can have
    three, four = released("three"), released("four")
    if shared:
        verify_together([three, four])
    else:
        shutil.copytree(three, tmp_path / "five")
        (tmp_path / "five" / "scores.json").write_text("{}")  # another release of an equal ledger of its own
        manifest.write(tmp_path / "five")
        with pytest.raises(LedgerError, match="must share one ledger"):
            verify_together([four, tmp_path / "five"])


def test_a_run_that_is_broken_off_while_teachers_train_leaves_no_row(tmp_path: Path) -> None:
    class Broken(MeanTeachers):
        key = "mean"

        def fit(self, *arguments: Any, **others: Any) -> MeanTeachers:
            raise Killed

    class Whole(MeanTeachers):
        key = "mean"

    tiny_run(tmp_path / "never", teachers=Whole())
    for _ in range(2):
        with pytest.raises(Killed):
            tiny_run(tmp_path / "broken", teachers=Broken(), resume=True)
    tiny_run(tmp_path / "broken", teachers=Whole(), resume=True)
    kinds = [[row.kind for row in read_lines(tmp_path / name / "release" / "book.jsonl")] for name in ("never", "broken")]
    assert kinds[0] == kinds[1]


def test_a_run_that_goes_on_after_another_quotes_the_budget(tmp_path: Path) -> None:
    book = tmp_path / "shared.sqlite"
    settings: dict[str, Any] = {"aggregation": Aggregation("gnmax", sigma=20.0), "queries": 10}
    owned(book, TWELVE).close()
    first = tiny_run(tmp_path / "one", ledger=book, purpose="", **settings)
    assert first.guarantee["quotes"] == "cost"
    second = tiny_run(tmp_path / "two", ledger=book, purpose="", **settings)
    assert second.guarantee["quotes"] == "budget"
    assert second.guarantee["data_independent_epsilon"] > first.guarantee["epsilon"]
    again = tiny_run(tmp_path / "one", resume=True, purpose="", **settings)  # its ledger is known
    assert (again.guarantee["quotes"], again.guarantee["epsilon"]) == ("budget", 12.0)
    assert np.array_equal(again.labels, first.labels)
    assert verify(tmp_path / "one").claimed_epsilon == 12.0


def test_another_runs_answers_never_return(tmp_path: Path) -> None:
    book = tmp_path / "shared.sqlite"
    settings: dict[str, Any] = {"aggregation": Aggregation("gnmax", sigma=20.0), "queries": 10, "purpose": ""}
    owned(book, TWELVE).close()
    for number, name in enumerate(("one", "two"), start=1):
        tiny_run(tmp_path / name, ledger=book, **settings)
        with tt.Ledger(book) as ledger:
            assert sum(row.body["count"] for row in ledger.entries() if row.kind == "charge") == 10 * number
    with tt.Ledger(book) as ledger:
        names = {row.body["run"] for row in ledger.entries() if row.kind == "charge"}
    assert len(names) == 2
    assert all(len(name) == 32 for name in names)  # random, and kept under private/ alone
    assert tiny_run(tmp_path / "one", resume=True, **settings).folder.state["run"] in names


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        (tt.Budget(13.0, 1e-5), "`epsilon` must be at most the ledger's, 12. Got 13"),
        (tt.Budget(8.0, 1e-6), "`delta` must be the ledger's, 1e-05. Got 1e-06"),
    ],
)
def test_a_run_that_the_ledger_does_not_speak_about_is_refused(tmp_path: Path, budget: tt.Budget, why: str) -> None:
    owned(tmp_path / "shared.sqlite", TWELVE).close()
    with pytest.raises(LedgerError, match=why):
        tiny_run(tmp_path / "run", ledger=tmp_path / "shared.sqlite", budget=budget)


def test_a_ledger_that_others_can_read_is_refused(tmp_path: Path) -> None:
    book = tmp_path / "shared.sqlite"
    owned(book, TWELVE).close()
    assert book.stat().st_mode & 0o077 == 0
    book.chmod(0o644)
    with pytest.raises(RecipeError, match="`ledger` must be readable by its owner alone: chmod 600"):
        tiny_run(tmp_path / "run", ledger=book)


def test_a_run_keeps_to_its_ledger(tmp_path: Path) -> None:
    for name in ("shared", "other"):
        owned(tmp_path / name, TWELVE).close()
    tiny_run(tmp_path / "run", ledger=tmp_path / "shared")
    with pytest.raises(LedgerError, match="`ledger` must be the one that this run was begun with"):
        tiny_run(tmp_path / "run", ledger=tmp_path / "other", resume=True)
    for file in tmp_path.glob("shared*"):
        os.unlink(file)
    with pytest.raises(LedgerError, match="the book must hold every row that is known of it"):
        tiny_run(tmp_path / "run", resume=True)
    with pytest.raises(RecipeError, match="`ledger` must lie outside of the release"):
        tiny_run(tmp_path / "inside", ledger=tmp_path / "inside" / "release" / "book")


def test_the_release_of_a_shared_ledger_names_no_place_of_this_machine(tmp_path: Path) -> None:
    book = tmp_path / "somewhere" / "shared.sqlite"
    book.parent.mkdir()
    outcome = tiny_run(tmp_path / "run", ledger=book)
    assert json.loads(outcome.folder.guarantee.read_text(encoding="utf-8"))["ledger"] == "shared"
    for file in outcome.folder.release.rglob("*"):
        assert file.is_dir() or b"somewhere" not in file.read_bytes()


def test_one_run_at_a_time_uses_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of two runs at once would be exported in the order in which private training let them be written."""
    ledger = tmp_path / "patients.sqlite"
    owned(ledger, TWELVE).close()

    def meanwhile(inner: Path) -> Any:
        def progress(what: str, done: int, total: int) -> None:
            if what == "asking the teachers" and not inner.exists():
                tiny_run(inner, purpose=inner.name, ledger=ledger, budget=tt.Budget(4.0, 1e-5))

        return progress

    with pytest.raises(LedgerError, match="`ledger` must be used by one run at a time"):
        tiny_run(tmp_path / "a", purpose="a", ledger=ledger, budget=tt.Budget(4.0, 1e-5), progress=meanwhile(tmp_path / "b"))
    monkeypatch.setattr("tutelage.sharing._alone", lambda place: nullcontext())  # the twin
    out = tmp_path / "c"
    tiny_run(out, purpose="c", ledger=ledger, budget=tt.Budget(4.0, 1e-5), progress=meanwhile(tmp_path / "d"))
    kinds = [row.body.get("run") for row in read_lines(out / "release" / "book.jsonl")]
    assert kinds.index("d") > kinds.index("c")
    assert "c" in kinds[kinds.index("d") :]  # one stands among the other's rows


def test_another_name_of_a_ledger_is_the_same_ledger(tmp_path: Path) -> None:
    ledger, link = tmp_path / "patients.sqlite", tmp_path / "link.sqlite"
    owned(ledger, TWELVE).close()
    link.symlink_to(ledger)

    def meanwhile(what: str, done: int, total: int) -> None:
        if what == "asking the teachers":
            tiny_run(tmp_path / "b", purpose="b", ledger=link, budget=tt.Budget(4.0, 1e-5))

    with pytest.raises(LedgerError, match="`ledger` must be used by one run at a time"):
        tiny_run(tmp_path / "a", purpose="a", ledger=ledger, budget=tt.Budget(4.0, 1e-5), progress=meanwhile)


def test_a_ledger_that_was_moved_is_known_by_its_rows(tmp_path: Path) -> None:
    ledger, place = tmp_path / "patients.sqlite", tmp_path / "elsewhere"
    owned(ledger, TWELVE).close()
    given: dict[str, Any] = {"purpose": "a", "budget": tt.Budget(4.0, 1e-5)}
    tiny_run(tmp_path / "a", ledger=ledger, **given)
    place.mkdir()
    for file in tmp_path.glob("patients.sqlite*"):
        file.rename(place / file.name)
    again = tiny_run(tmp_path / "a", ledger=place / ledger.name, resume=True, **given)
    assert verify(again.folder).quotes == "cost"
    owned(tmp_path / "other.sqlite", TWELVE).close()
    for file in place.glob("patients.sqlite*"):
        file.unlink()
    with pytest.raises(LedgerError):
        tiny_run(tmp_path / "a", ledger=tmp_path / "other.sqlite", resume=True, **given)


@pytest.mark.parametrize("state", ["[]", '{"run": 5}', '{"run": "a", "ledger": 5, "length": 1, "head": "x"}',
                                   '{"run": "a", "ledger": "a\\u0000b", "length": 1, "head": "x"}', "{"])  # fmt: skip
def test_a_damaged_state_ends_in_one_line(tmp_path: Path, state: str) -> None:
    outcome = tiny_run(tmp_path / "run")
    (tmp_path / "run" / "private" / "run.json").write_text(state)
    with pytest.raises(LedgerError):
        tiny_run(tmp_path / "run", resume=True)
    with pytest.raises(LedgerError):
        verify(outcome.folder)


def test_an_empty_export_ends_in_one_line(tmp_path: Path) -> None:
    outcome = tiny_run(tmp_path / "run")
    outcome.folder.exported_book.write_text("")
    with pytest.raises(LedgerError, match="must hold the rows of a ledger"):
        tiny_run(tmp_path / "run", resume=True)
