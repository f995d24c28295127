"""The verbs. `transfer` opens an oracle from private shards and learns from it; `learn` learns from any oracle."""

from __future__ import annotations

import functools
import json
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage import guarantee as guarantees
from tutelage.data.dataset import Private, Public
from tutelage.data.provenance import counted
from tutelage.planning import Aggregation
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.curator import Codec, Curator, Sighted
from tutelage.privacy.errors import BudgetExceeded, Error, LedgerError
from tutelage.privacy.ledger import Budget, Ledger, read_lines
from tutelage.privacy.sealed import Sealed, quietly
from tutelage.privacy.units import Shards
from tutelage.runs import RunFolder
from tutelage.sharing import ledger_of
from tutelage.tasks import checks, table
from tutelage.tasks.oracle_view import CuratorView, Oracle
from tutelage.tasks.questions import Questions
from tutelage.tasks.task import Learning, Model, Plan, Students, Task
from tutelage.telling import Progress, silent

Array = npt.NDArray[Any]


class TeacherFactory(Protocol):
    """Anything that learns one model per shard and lets them vote."""

    def fit(self, private: Private, shards: Shards, *, progress: Callable[[int, int], None] | None = None) -> Any:
        """Train one teacher per shard."""

    def vote(self, inputs: Array) -> Sealed:
        """Give every teacher's prediction, sealed."""


@final
@dataclass(frozen=True)
class Outcome:
    """What was learned: a model, and where there is a ledger, a guarantee under which it may be published."""

    model: Model
    folder: RunFolder
    answers: Any  # labels, answers.Answers for masks, or the last state
    guarantee: dict[str, Any]  # empty where the oracle has no ledger
    scores: dict[str, float] = field(default_factory=dict)  # on public test data; figures from private data lie in private/

    @property
    def labels(self) -> Array:
        """Give the pool's labels (public records,), -1 where nothing was answered; or masks (questions, *shape)."""
        return np.asarray(self.answers.values)

    @property
    def reinforced(self) -> Array:
        """Mark the records (public records,) whose label is the student's own, confirmed."""
        return np.asarray(getattr(self.answers, "reinforced", np.zeros(len(self.answers.values), dtype=bool)))


def transfer(
    private: Private,
    public: Public | None,
    *,
    teachers: TeacherFactory,
    student: Students,
    codec: Codec | Sighted,
    budget: Budget,
    shards: int,
    queries: int,
    out: str | Path,
    aggregation: Aggregation | None = None,
    questions: Questions | None = None,
    test: Public | None = None,
    controls: bool = True,
    seed: int = 0,
    ledger: str | Path | None = None,
    purpose: str = "",
    recipe: str = "",
    tuned_on: str = "not stated",
    benchmark: bool = False,
    data: Mapping[str, Any] | None = None,
    declared: Sequence[str] = (),
    truth: bool = True,
    resume: bool = False,
    pages: Callable[[RunFolder], object] | None = None,
    progress: Progress | None = None,
    task: str | None = None,
) -> Outcome:
    """Train a student on public data from the private teachers' noisy answers: split, open an oracle, and `learn` from it.

    What is asked follows from targets, codec and student: labels, masks, or the states of a student that chooses its own
    queries and needs no public pool (`public=None`). `task` names it where they do not say (tasks.table.TABLE).

    The noise is calibrated to the budget, unless the aggregation fixes it. `questions` chooses by public criteria alone which
    public records are asked about; without it, the first `queries`. One with a method `again` chooses every round by what the
    last student thinks. What a resumed run was answered before is not paid for again; under another plan it quotes the budget.
    `ledger` is a file that several runs on the same data share: its budget covers all of them. Without it the run has its own.
    `recipe` is the text of the recipe that this run carries out, to be released, and `purpose` its hash, which names the run in
    the ledger: runs of one name share answers. Without it the name is random. `pages` writes pages into the release.
    `benchmark` says that the private data is public anyway: controls computed from it may be shown. `data` is what may be told
    of it (data.provenance), `declared` says in sentences what is public on somebody's word, `truth` whether true masks of
    public images may be shown.
    Formal guarantee: everything under `out`/release (benchmark controls excepted) is (ε, δ)-DP for the budget and unit.
    """
    checks.check_place(out)
    checks.check_kinds(private, public, test, teachers=teachers, student=student, codec=codec, budget=budget)
    checks.check_units(private, budget)
    learner, how, say = checks.made(student), aggregation or _default(codec), progress or silent
    mechanism, screen = how.built(budget, queries, shards, codec.bound)  # a bad plan fails before anything is written
    selection, target = how.selecting(budget, queries, mechanism), private.targets.shape[1:]
    plan = Plan(public, queries, codec, how, questions, shards, target, truth, say)
    about_what = table.opened(task or table.named(learner, codec, target), plan)
    private = about_what.cleaned(private)
    judged = _checked(about_what, private, test, teachers, learner)
    folder = RunFolder(out)
    learning = Learning(student, learner, folder, say)
    if judged is not None:
        learning.another()  # the same one twice is refused before anything is paid for
    parts = private.split(shards, seed=seed)
    folder.create(resume=resume)
    with folder.locked(), ledger_of(folder, budget, ledger) as book:
        run = _name(folder, purpose)
        steps = {"screen": screen, "selection": selection, "private": folder.private, "salt": _salt(run, parts)}
        curator, roster = Curator(teachers, codec, mechanism, book, **steps), private.roster
        _check_room(curator, run)
        about = guarantees.intended(
            task=about_what.name, adaptive=about_what.adaptive, units=private.places, shards=parts.key, ledger=folder.own(book),
            roster=None if roster is None else roster.sha256, recipe_sha256=run if recipe else None, tuned_on=tuned_on,
            plan=_described_plan(curator, about_what, student), data=data,
        )  # fmt: skip
        _begin(folder, book, run, about, recipe)
        folder.write_inside(folder.inside_data, json.dumps(counted(private), indent=2) + "\n")
        fit = functools.partial(teachers.fit, private, parts, progress=functools.partial(say, "training teachers"))
        quietly("fit", fit, ours=Error)
        found = _learn(CuratorView(curator, how.sanitise), about_what, learning, judged)
        private_controls = table.controls(about_what.name)
        if controls and judged is not None:
            given = (about_what, private, teachers, found.answers, judged, learning)
            _judge(folder, lambda: private_controls.score(*given))
            say("scoring the controls", 1, 1)
        exposed = table.read_controls(folder) if benchmark else {}
        if exposed:
            private_controls.expose(folder)
        document = _published(folder, book, about, found, exposed, declared, pages)
    return Outcome(found.model, folder, found.answers, document, found.scores)


def learn(
    oracle: Oracle | Curator,
    public: Public | None,
    *,
    student: Students,
    queries: int,
    out: str | Path | None = None,
    aggregation: Aggregation | None = None,
    questions: Questions | None = None,
    test: Public | None = None,
    tuned_on: str = "not stated",
    declared: Sequence[str] = (),
    resume: bool = False,
    pages: Callable[[RunFolder], object] | None = None,
    progress: Progress | None = None,
    task: str | None = None,
) -> Outcome:
    """Train a student on what an oracle releases: a Curator with trained teachers, or anything that answers queries.

    `aggregation` says how the oracle was opened, where it is not the codec's usual way: rounds, and when a student is sure.
    Without `out` nothing stays on disk. With it and a Curator, the run is released with a guarantee that quotes the curator's
    ledger. An oracle without a ledger gives no guarantee: its run stays under `out`/private.
    There are no controls that need private data here: `transfer` has them.
    """
    checks.check_public(public, test, student=student)
    learner, how, say = checks.made(student), aggregation or _default(oracle.codec), progress or silent
    plan = Plan(public, queries, oracle.codec, how, questions, say=say)
    about_what = table.opened(task or table.named(learner, oracle.codec, None), plan)
    judged = _checked(about_what, None, test, None, learner)
    with _opened(out, resume) as folder:
        learning = Learning(student, learner, folder, say)
        curator = oracle if isinstance(oracle, Curator) else None
        view = CuratorView(oracle, how.sanitise) if isinstance(oracle, Curator) else oracle
        if curator is None or out is None:
            folder.reopen()
            found = _learn(view, about_what, learning, judged)
            _write_scores(folder, found.scores)
            return Outcome(found.model, folder, found.answers, {}, found.scores)
        run = _name(folder, "")
        _check_room(curator, run)
        about = guarantees.intended(
            task=about_what.name, adaptive=about_what.adaptive, units=None, shards="as the oracle was opened", roster=None,
            ledger=folder.own(curator.ledger), tuned_on=tuned_on, plan=_described_plan(curator, about_what, student),
        )  # fmt: skip
        _begin(folder, curator.ledger, run, about, "")
        found = _learn(view, about_what, learning, judged)
        document = _published(folder, curator.ledger, about, found, {}, declared, pages)
    return Outcome(found.model, folder, found.answers, document, found.scores)


@contextmanager
def _opened(out: str | Path | None, resume: bool) -> Iterator[RunFolder]:
    """Open a run's folder, or one that goes when the run has ended."""
    if out is None:
        with tempfile.TemporaryDirectory() as place:
            yield RunFolder(place).create()
        return
    checks.check_place(out)
    folder = RunFolder(out).create(resume=resume)
    with folder.locked():
        yield folder


def _checked(task: Task, private: Private | None, test: Public | None, teachers: Any, learner: Any) -> Public | None:
    """Refuse whatever public facts show to fail, and give the test records that can be scored."""
    public = task.plan.public
    checks.check_records(private, public, test)
    if public is not None and hasattr(learner, "check"):
        learner.check(public.unlabelled())
    task.check(teachers=teachers, learner=learner, test=test)
    return None if test is None or test.targets is None else task.judged(test)


@final
@dataclass(frozen=True)
class _Learned:
    """Hold what was learned from an oracle."""

    model: Model
    answers: Any
    counts: dict[str, int]
    sanitised: float | None
    scores: dict[str, float]


def _learn(oracle: Oracle, task: Task, learning: Learning, test: Public | None) -> _Learned:
    """Ask, train, write the draft of a release, and score on public test data."""
    folder = learning.folder
    answers = task.ask(oracle, learning)
    account = getattr(oracle, "account", None)
    sanitised = None if account is None else account(folder)
    model = task.fit(answers, learning)
    # Before any control learns: one that shares a part with the student could still change it.
    model.save(folder.release / "student")
    task.publish(folder, model, answers)
    scores = {} if test is None else task.scores(model, answers, test, learning)
    return _Learned(model, answers, task.counts(answers), sanitised, {str(name): score for name, score in scores.items()})


def _judge(folder: RunFolder, controls: Callable[[], None]) -> None:
    """Score what only the owner of the data may know. A control that fails leaves no figure, and ends no run.

    One private record could make it fail. It must not decide whether there is a release: the owner reads of it under `private/`.
    """
    folder.failed_controls.unlink(missing_ok=True)
    try:
        quietly("controls", controls, ours=Error)
    except Error as error:
        folder.write_inside(folder.failed_controls, f"{error}\n")


def _begin(folder: RunFolder, book: Ledger, run: str, about: Mapping[str, Any], recipe: str) -> None:
    """Take an earlier release back, and write down what is planned: in the ledger its hash, for the guarantee all of it."""
    folder.reopen()
    folder.keep(book, run)
    book.begin(run, plan=guarantees.planned(about))
    folder.keep(book, run)
    if recipe:
        folder.recipe.write_text(recipe, encoding="utf-8")


def _published(
    folder: RunFolder, book: Ledger, about: Mapping[str, Any], found: _Learned, exposed: Mapping[str, float],
    declared: Sequence[str], pages: Callable[[RunFolder], object] | None,
) -> dict[str, Any]:  # fmt: skip
    """Export the ledger, write the guarantee that follows from the exported rows alone, and publish the draft."""
    _note(declared, book)
    _write_scores(folder, {**found.scores, **exposed})
    book.export(folder.exported_book)
    document = guarantees.guarantee(
        read_lines(folder.exported_book), run=book.run, about=about, sanitised_epsilon=found.sanitised, labels=found.counts,
        excepted=guarantees.EXCEPTED if exposed else (),
    )  # fmt: skip
    guarantees.write(document, folder.guarantee)
    if pages is not None:
        pages(folder)
    folder.publish(book)
    return document


def _write_scores(folder: RunFolder, scores: Mapping[str, float]) -> None:
    folder.scores.write_text(json.dumps(scores, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _name(folder: RunFolder, purpose: str) -> str:
    """Name the run in its ledger: by its recipe's hash, or by a random name, so that no other run is given its answers."""
    begun = folder.state.get("run")
    name = purpose or begun or secrets.token_hex(16)
    if begun not in (None, name):
        raise LedgerError(
            "`recipe` must be the one that this folder was begun with. Got one that was changed since instead: take a new --out."
        )
    return name


def _salt(run: str, parts: Shards) -> str:
    """Tell this run's answers from those of another run, and of the same one with another division."""
    return json.dumps([run, parts.key])


def _check_room(curator: Curator, run: str) -> None:
    """Refuse to begin on a shared ledger whose budget other runs have used up."""
    book = curator.ledger
    if book.length > 1 and run not in {name for name, _ in book.starts()} and curator.affordable() < 1:
        raise BudgetExceeded(
            f"the ledger must have room for at least one more answer within ε = {book.budget.epsilon:g}. "
            "Got a budget that other runs have used up instead; nothing was read."
        )


def _described_plan(curator: Curator, task: Task, student: Students) -> dict[str, Any]:
    """Describe what will be asked and how. The ledger holds its hash: under another plan the budget is quoted."""
    steps, plan = (curator.mechanism, curator.screen, curator.selection), task.plan
    return {
        "steps": [repr(step) for step in steps if step is not None],
        "codec": repr(curator.codec),
        "aggregation": repr(plan.how),
        "queries": plan.queries,
        "questions": "the first" if plan.questions is None else _described(plan.questions),
        "asked": task.asked,
        "pool": None if plan.public is None else plan.public.sha256,
        "teachers": _described(curator.teachers),
        "student": _described(student),
    }


def _described(thing: Any) -> str:
    """Describe an object by its key, or by its kind alone: never by what it holds, which may be an address or private."""
    if isinstance(key := getattr(thing, "key", None), str):
        return key
    if isinstance(thing, functools.partial):
        thing = thing.func
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def _default(codec: Codec | Sighted) -> Aggregation:
    """Let votes have a winner, and codes a mean."""
    return Aggregation("gnmax" if isinstance(codec.bound, OneHot) else "mean")


def _note(declared: Sequence[str], ledger: Ledger) -> None:
    """Write into the book, once, what counts as public on somebody's word: `verify` misses it where a guarantee leaves it out."""
    known = guarantees.declared(ledger.entries())
    for said in dict.fromkeys(declared):
        if said not in known:
            ledger.note(declared=said)
