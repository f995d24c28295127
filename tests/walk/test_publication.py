"""A release appears whole, by one rename, and its guarantee goes before anything new is written."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.walk.tiny import forged, promised, tiny_run

import tutelage as tt
from tutelage import manifest
from tutelage.planning import Aggregation
from tutelage.privacy.errors import Error, LedgerError, RecipeError
from tutelage.report.page import pages, report
from tutelage.runs import RunFolder
from tutelage.verification import verify

BUDGET = tt.Budget(50.0, 1e-5)
FEW = {"budget": BUDGET, "aggregation": Aggregation("gnmax", sigma=4.0), "queries": 10}
MORE = {**FEW, "queries": 40}
_WRITING = ("os.rename", "os.remove", "os.chmod", "os.utime", "os.mkdir", "os.truncate", "sqlite3.connect")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("first") / "run", **FEW).folder.root


# ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _counting(limit: int | None, started: Callable[[], bool], tell: int) -> None:
    """Count what this process does to files, and die in the middle of it; without a limit, report the count in the end."""
    state = {"done": 0}

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        opened = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if (opened or event in _WRITING) and started():
            state["done"] += 1
            if limit is not None and state["done"] >= limit:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    tiny_run_again()
    os.write(tell, str(state["done"]).encode())


def tiny_run_again() -> None:
    tiny_run(Path(os.environ["RESUMED"]), resume=True, pages=pages_of, **MORE)


def pages_of(folder: RunFolder) -> None:
    folder.report.write_text("a page", encoding="utf-8")


def resumed(place: Path, limit: int | None) -> int:
    """Go on with a larger plan in a process of its own. Give the number of steps, or 0 where it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.environ["RESUMED"] = str(place)
            _counting(limit, lambda: True, writing)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    told = os.read(reading, 32)
    os.close(reading)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return int(told or 0)


def faults(first: Path, root: Path, kills: int, *, seed: int) -> list[str]:
    """Kill a resumed run at random steps. Name what is wrong with what each kill left."""
    shutil.copytree(first, root / "whole")
    steps, found, choose = resumed(root / "whole", None), [], random.Random(seed)
    assert steps > 50
    for number in range(kills):
        place = root / str(number)
        shutil.copytree(first, place)
        limit = choose.randint(1, steps)
        resumed(place, limit)
        folder = RunFolder(place)
        if folder.finished:
            try:
                verdict = verify(folder)
                with folder.opened() as ledger:
                    spent = ledger.spent().epsilon
                if verdict.claimed_epsilon < spent * (1 - 1e-9):
                    found.append(f"step {limit}: {verdict.claimed_epsilon} is claimed, {spent} was spent")
            except Error as error:
                found.append(f"step {limit}: {error}")
        shutil.rmtree(place)
    return found


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_kill_never_leaves_a_release_that_understates_its_ledger(first: Path, tmp_path: Path, kills: int) -> None:
    assert faults(first, tmp_path, kills, seed=kills) == []


def test_a_twin_that_writes_beside_the_old_guarantee_is_caught(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_place(self: RunFolder) -> None:
        """What was done before: the old guarantee stays until the new one is written over it."""

    def written(self: RunFolder, ledger: tt.Ledger) -> str:
        digest = manifest.write(self.published)
        ledger.note(manifest=digest)
        self.keep(ledger, ledger.run)
        return digest

    monkeypatch.setattr(RunFolder, "reopen", in_place)
    monkeypatch.setattr(RunFolder, "publish", written)
    assert faults(first, tmp_path, 10, seed=10)


# ── going on ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_more_questions_after_answers_were_seen_quote_the_budget(first: Path, tmp_path: Path) -> None:
    """The second plan may follow from the first one's answers: what both cost together is no theorem, the budget is."""
    shutil.copytree(first, tmp_path / "run")
    before = verify(tmp_path / "run")
    same = tiny_run(tmp_path / "run", resume=True, **FEW)
    assert (before.quotes, same.guarantee["quotes"]) == ("cost", "cost")
    more = tiny_run(tmp_path / "run", resume=True, **MORE).guarantee
    assert (more["quotes"], more["epsilon"], more["mu_is_exact"]) == ("budget", 50.0, False)
    assert before.claimed_epsilon < more["data_independent_epsilon"] < 25  # what was quoted before
    assert verify(tmp_path / "run").claimed_epsilon == 50.0
    back = tiny_run(tmp_path / "run", resume=True, **FEW).guarantee  # and it stays so
    assert back["quotes"] == "budget"


def test_an_old_release_is_gone_while_a_run_goes_on(first: Path, tmp_path: Path) -> None:
    shutil.copytree(first, tmp_path / "run")
    found: list[bool] = []
    tiny_run(tmp_path / "run", resume=True, progress=lambda *_: found.append((tmp_path / "run" / "release").exists()), **FEW)
    assert found
    assert not any(found)
    assert (tmp_path / "run" / "release" / "manifest.json").exists()


def test_what_an_earlier_start_released_does_not_stay(first: Path, tmp_path: Path) -> None:
    shutil.copytree(first, tmp_path / "run")
    (tmp_path / "run" / "release" / "student.other").write_text("a student of another kind")
    outcome = tiny_run(tmp_path / "run", resume=True, **FEW)
    assert not (outcome.folder.release / "student.other").exists()
    assert verify(outcome.folder).against_private_book


STRAYS = (
    "counts.npy",
    ".hidden",
    "GUARANTEE.JSON",
    "student.tar.gz",
    "rounds/x.txt",
    "rounds/0.npz",
    "more/deep/ids.txt",
    "features-x.safetensors",
)


@pytest.mark.parametrize("twin", [False, True])
def test_what_has_no_place_in_a_release_stays_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twin: bool) -> None:
    """Where it stays it would leave unseen, and where it were refused, private data could decide that nothing is released."""

    def strays(folder: RunFolder) -> None:
        for name in STRAYS:
            (folder.draft / name).parent.mkdir(parents=True, exist_ok=True)
            (folder.draft / name).write_text("raw votes")
        (folder.draft / "link").symlink_to("/etc/passwd")
        (folder.draft / "empty").mkdir()

    if twin:  # the old behaviour: all that lies in the draft is listed and released
        monkeypatch.setattr(manifest, "set_aside", lambda *_: [path.unlink() for path in (tmp_path / "run").rglob("link")])
        with pytest.raises(LedgerError, match="must hold no empty folder"):
            tiny_run(tmp_path / "run", pages=strays, **FEW)
        return
    folder = tiny_run(tmp_path / "run", pages=strays, **FEW).folder
    released = {path.relative_to(folder.published).as_posix() for path in folder.published.rglob("*")}
    assert all(map(manifest.allowed, released))
    aside = folder.private / "set-aside"
    assert {path.relative_to(aside).as_posix() for path in aside.rglob("*") if not path.is_dir()} == {*STRAYS, "link"}
    assert verify(folder).against_private_book
    again = tiny_run(tmp_path / "run", resume=True, **FEW)
    assert not aside.exists()
    assert verify(again.folder).against_private_book


@pytest.mark.parametrize(
    "name", [*(name for name in STRAYS if name != ".hidden"), "notes.txt", "student.skops.bak", "features-0123.safetensors"]
)
def test_a_file_of_an_unknown_name_is_refused(first: Path, tmp_path: Path, name: str) -> None:
    alone = forged(first / "release", tmp_path / "alone")
    (alone / name).parent.mkdir(parents=True, exist_ok=True)
    (alone / name).write_text("raw votes")
    manifest.write(alone)
    with pytest.raises(LedgerError, match="must hold files of known names alone"):
        verify(alone)


def test_a_release_without_a_student_is_refused(first: Path, tmp_path: Path) -> None:
    alone = forged(first / "release", tmp_path / "alone")
    (alone / "student.skops").unlink()
    manifest.write(alone)
    with pytest.raises(LedgerError, match="must hold a student"):
        verify(alone)


@pytest.mark.parametrize("name", ["guarantee.json", "manifest.json", "scores.json", "book.jsonl", "recipe.toml"])
@pytest.mark.parametrize("how", ["a pipe", "a link", "too long"])
def test_what_could_hang_or_fill_the_memory_is_not_read(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    alone = forged(first / "release", tmp_path / "alone")
    if how == "too long":
        with (alone / name).open("ab") as file:
            file.truncate(1 << 32)  # sparse
    else:
        (alone / name).unlink(missing_ok=True)
        if how == "a pipe":
            os.mkfifo(alone / name)
        else:
            (alone / name).symlink_to("/dev/zero")
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail(f"{self} was read"))
    with pytest.raises((LedgerError, RecipeError)):
        verify(alone)


def test_labels_are_numbers_written_in_one_way(first: Path, tmp_path: Path) -> None:
    true = (first / "release" / "labels.csv").read_bytes().decode()
    for number, other in enumerate(("\u0661", "0_1", "+1", " 1", "01", "-1", "1" * 19, "1.0", "")):
        alone = forged(first / "release", tmp_path / str(number))
        assert ",1," in true
        (alone / "labels.csv").write_bytes(true.replace(",1,", f",{other},", 1).encode())
        manifest.write(alone)
        with pytest.raises(LedgerError, match="`answers` must be a file that is whole and readable"):
            verify(alone)
    assert "labels.csv" in verify(first).unbound[2]


@pytest.mark.parametrize("lost", ["all of it", "an older one"])
def test_a_ledger_that_was_lost_stops_a_run_that_goes_on(first: Path, tmp_path: Path, lost: str) -> None:
    shutil.copytree(first, tmp_path / "run")
    older = tmp_path / "older"
    shutil.copytree(first / "private", older)
    tiny_run(tmp_path / "run", resume=True, **MORE)
    for file in (tmp_path / "run" / "private").glob("book.sqlite*"):
        file.unlink()
    if lost == "an older one":
        for file in older.glob("book.sqlite*"):
            shutil.copyfile(file, tmp_path / "run" / "private" / file.name)
            (tmp_path / "run" / "private" / file.name).chmod(0o600)
    before = (tmp_path / "run" / "release" / "guarantee.json").read_bytes()
    with pytest.raises(LedgerError, match="the book must hold every row that is known of it"):
        tiny_run(tmp_path / "run", resume=True, **MORE)
    assert (tmp_path / "run" / "release" / "guarantee.json").read_bytes() == before
    shutil.rmtree(tmp_path / "run" / "private")
    with pytest.raises(RecipeError, match=r"must hold private/run\.json beside its release"):  # nor without the whole folder
        tiny_run(tmp_path / "run", resume=True, **MORE)


# ── files of a release ────────────────────────────────────────────────────────────────────────────────────────────────


def spoil(release: Path, how: str) -> None:
    if how == "a file more":
        (release / "notes.txt").write_text("nothing")
    elif how == "a hidden file":
        (release / ".notes").write_text("nothing")
    elif how == "a folder more":
        (release / "notes").mkdir()
    elif how == "a link":
        (release / "notes").symlink_to(release / "scores.json")
    elif how == "a file less":
        (release / "samples.npz").unlink()
    elif how == "another file":
        (release / "student.skops").write_bytes(b"another")
    else:
        (release / "manifest.json").unlink()


@pytest.mark.parametrize(
    "how", ["a file more", "a hidden file", "a folder more", "a link", "a file less", "another file", "no manifest"]
)
def test_a_release_is_exactly_what_its_manifest_lists(first: Path, tmp_path: Path, how: str) -> None:
    shutil.copytree(first / "release", tmp_path / "release")
    assert verify(tmp_path / "release").rows > 1
    spoil(tmp_path / "release", how)
    with pytest.raises(LedgerError):
        verify(tmp_path / "release")


def test_another_manifest_than_the_custodians_is_told(first: Path, tmp_path: Path) -> None:
    """Whoever rewrites student and manifest is not found by the release alone, but by the ledger or by the printed hash."""
    shutil.copytree(first, tmp_path / "run")
    true = verify(tmp_path / "run").manifest
    (tmp_path / "run" / "release" / "student.skops").write_bytes(b"another")
    manifest.write(tmp_path / "run" / "release")
    with pytest.raises(LedgerError, match="the manifest must be one that the book under private/ noted"):
        verify(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "private")
    assert verify(tmp_path / "run").manifest != true


def test_a_report_renews_its_own_row(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(shutil.copytree(first, tmp_path / "run"))
    report(folder, name="first")
    assert verify(folder).against_private_book
    true = folder.report.read_text(encoding="utf-8")
    folder.report.write_text(true.replace("first", "second"), encoding="utf-8")
    with pytest.raises(LedgerError, match=r"'report\.html' must be the file.*Run `tutelage report` again"):
        verify(folder)
    with monkeypatch.context() as killed:
        killed.setattr(manifest, "renew", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            report(folder, name="third")
    with pytest.raises(LedgerError, match="Run `tutelage report` again"):
        verify(folder)
    report(folder, name="third")
    assert verify(folder).against_private_book


def test_a_release_is_read_without_being_written(first: Path, tmp_path: Path) -> None:
    folder = RunFolder(shutil.copytree(first, tmp_path / "run"))
    shutil.copytree(folder.release, tmp_path / "alone")
    written: list[str] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.append(str(arguments[0]))

    sys.addaudithook(hook)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "alone").rglob("*")}
    verify(tmp_path / "alone")
    report(tmp_path / "alone", out=tmp_path / "page.html")
    assert not [path for path in written if str(tmp_path / "alone") in path]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "alone").rglob("*")} == before
    with pytest.raises(RecipeError, match="`out` must be a file where RUN is a release without"):
        report(tmp_path / "alone")
    with pytest.raises(RecipeError, match="`out` must be outside of the release"):
        report(tmp_path / "alone", out=tmp_path / "alone" / "page.html")
    verify(tmp_path / "alone")


def test_a_run_on_a_disk_that_cannot_be_written_is_verified(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(shutil.copytree(first, tmp_path / "run"))
    files = {path: path.stat().st_mtime_ns for path in folder.private.rglob("*")}
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    assert verify(folder).against_private_book
    assert {path: path.stat().st_mtime_ns for path in folder.private.rglob("*")} == files
    report(folder, out=tmp_path / "page.html")


def test_a_run_that_could_be_written_is_not(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(shutil.copytree(first, tmp_path / "run"))

    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in [folder.root, *folder.root.rglob("*")]}

    before = times()
    assert verify(folder).against_private_book
    assert times() == before
    monkeypatch.setattr(RunFolder, "copied", RunFolder.opened)  # the twin: SQLite writes beside what it opens
    assert verify(folder).against_private_book
    assert times() != before


def test_a_ledger_of_any_name_is_read(tmp_path: Path) -> None:
    book = tmp_path / "all [of] them?.sqlite"  # a pattern that its own name does not fit
    folder = tiny_run(tmp_path / "run", ledger=book, **FEW).folder
    assert not list(tmp_path.glob(f"{book.name}*"))
    assert verify(folder).against_private_book


def test_a_ledger_that_is_written_meanwhile_is_read_whole(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real, copies = RunFolder(shutil.copytree(first, tmp_path / "run")), shutil.copyfile, []

    def copyfile(source: Path, to: Path) -> None:
        copies.append(source)
        if len(copies) == 1:
            os.utime(source)
        real(source, to)

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    with folder.copied() as ledger:
        assert ledger.path.parent != folder.private
    assert copies.count(folder.book.resolve()) == 2


def test_the_public_page_is_in_the_manifest_of_a_run(tmp_path: Path) -> None:
    outcome = tiny_run(tmp_path / "run", pages=pages, **FEW)
    assert '"report.html"' in (outcome.folder.release / "manifest.json").read_text(encoding="utf-8")
    again = tiny_run(tmp_path / "run", resume=True, pages=pages, **FEW)
    assert promised(again) == promised(outcome)
