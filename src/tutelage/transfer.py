"""The verbs. `transfer` opens an oracle from private shards and learns from it; `learn` learns from any oracle."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage import metrics, publication
from tutelage.data import schema
from tutelage.data.dataset import Private, Public
from tutelage.planning import Aggregation
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.curator import Codec, Curator, Sighted
from tutelage.privacy.errors import BudgetExceeded, Error
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.oracle import Oracle
from tutelage.privacy.sealed import Sealed, quietly
from tutelage.privacy.units import Shards
from tutelage.runs import RunFolder
from tutelage.sharing import ledger_of
from tutelage.tasks import checks, table
from tutelage.tasks.account import account
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
    folder: RunFolder  # a place that is gone where `learn` was given no `out`
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
    """Train a student from private teachers' noisy answers: split, open an oracle, and `learn` from it. Then run the controls.

    What is asked follows from targets, codec and student: labels, masks, or the states of a student that chooses its own queries
    and needs no pool (`public=None`); `task` names it where they do not say. The noise is calibrated to the budget, unless the
    aggregation fixes it. `questions` chooses by public criteria which records are asked about. A resumed run pays for no answer
    twice; under another plan it quotes the budget. `ledger` is a file that several runs on the same data share. `recipe` is the
    text of the run's recipe, to be released, and `purpose` its hash, which names the run in the ledger. `benchmark` says that the
    private data is public anyway, `data` what may be published about it, `declared` what is public on somebody's word, and
    `truth` whether true masks of public images may be shown. `pages` writes pages into the release.
    Formal guarantee: everything under `out`/release (benchmark controls excepted) is (ε, δ)-DP for the budget and unit.
    """
    checks.check_place(out)
    checks.check_kinds(private, public, test, teachers=teachers, student=student, codec=codec, budget=budget)
    checks.check_units(private, budget)
    learner, how, say = checks.made(student), aggregation or _default(codec), progress or silent
    plan = Plan(public, queries, codec, how, questions, shards, private.targets.shape[1:], truth, say)
    kind = table.opened(task or table.named(learner, codec, plan.target), plan)
    steps = _steps(how, budget, queries, shards, codec)  # a bad plan fails before anything is written
    private, folder = kind.cleaned(private), RunFolder(out)
    declared_inputs = getattr(public, "schema", None) or private.schema
    learning = Learning(student, learner, folder, say, declared_inputs)
    judged, parts = _checked(kind, private, test, teachers, learning), private.split(shards, seed=seed)
    with folder.create(resume=resume).locked(), ledger_of(folder, budget, ledger) as book:
        run = publication.named(folder, purpose)
        curator = Curator(teachers, codec, ledger=book, private=folder.private, salt=_salt(run, parts), **steps)
        facts = {"private": private, "parts": parts, "recipe": recipe, "tuned_on": tuned_on, "data": data}
        about = _begin(curator, kind, learning, run, **facts)
        fit = functools.partial(teachers.fit, private, parts, progress=functools.partial(say, "training teachers"))
        quietly("fit", fit, ours=Error)
        found = _learn(curator, kind, learning, judged)
        if controls and judged is not None:
            _judge(learning, functools.partial(table.controls(kind.name).score, kind, private, teachers, found.answers, judged))
        exposed = _exposed(kind, folder) if benchmark else {}
        document = _publish(found, learning, book, about, exposed=exposed, declared=declared, pages=pages)
    return Outcome(found.model, folder, found.answers, document, found.scores)


def learn(
    oracle: Oracle,
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
    checks.check_oracle(oracle)
    checks.check_public(public, test, student=student)
    learner, how, say = checks.made(student), aggregation or _default(oracle.codec), progress or silent
    plan = Plan(public, queries, oracle.codec, how, questions, say=say)
    kind = table.opened(task or table.named(learner, oracle.codec, None), plan)
    with _opened(out, resume) as folder:
        learning = Learning(student, learner, folder, say, getattr(public, "schema", None))
        judged = _checked(kind, None, test, None, learning)
        ledger, document = getattr(oracle, "ledger", None), dict[str, Any]()
        if out is None or ledger is None:
            folder.reopen()
            found = _learn(oracle, kind, learning, judged)
            publication.write_scores(folder, found.scores)
        else:
            about = _begin(oracle, kind, learning, publication.named(folder, ""), tuned_on=tuned_on)
            found = _learn(oracle, kind, learning, judged)
            document = _publish(found, learning, ledger, about, declared=declared, pages=pages)
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


def _checked(task: Task, private: Private | None, test: Public | None, teachers: Any, learning: Learning) -> Public | None:
    """Refuse whatever public facts show to fail, and give the test records that can be scored."""
    public, learner = task.plan.public, learning.learner
    checks.check_records(private, public, test)
    if public is not None and hasattr(learner, "check"):
        learner.check(public.unlabelled())
    task.check(teachers=teachers, learner=learner, test=test)
    if test is None or test.targets is None:
        return None
    learning.another()  # the same one twice is refused before anything is paid for
    return task.judged(test)


def _steps(how: Aggregation, budget: Budget, queries: int, shards: int, codec: Any) -> dict[str, Any]:
    """Build the curator's steps with every open parameter calibrated."""
    mechanism, screen = how.built(budget, queries, shards, codec.bound)
    return {"mechanism": mechanism, "screen": screen, "selection": how.selecting(budget, queries, mechanism)}


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
    sanitised = account(oracle, folder, task.plan.how)
    model = task.fit(answers, learning)
    # Before any control learns: one that shares a part with the student could still change it.
    model.save(folder.release / "student")
    task.publish(folder, model, answers)
    if learning.schema is not None and task.plan.public is not None:
        folder.inputs.write_text(schema.text(learning.schema, task.plan.public.takes()), encoding="utf-8")
    scores = {} if test is None else task.scores(model, answers, test, learning)
    if test is not None:
        _measure(folder, model, test, learning.schema)
    return _Learned(model, answers, task.counts(answers), sanitised, {str(name): score for name, score in scores.items()})


def _measure(folder: RunFolder, model: Model, test: Public, declared: Any) -> None:
    """Write further measures on public test data. A student of one's own that has none of them ends no run."""
    try:
        found = metrics.measured(model, test, declared.classes if declared is not None else ())
    except Exception as error:  # of somebody's student; no private record is near it
        found = {"failed": type(error).__name__}
    folder.metrics.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _judge(learning: Learning, controls: Callable[[Learning], None]) -> None:
    """Score what only the owner of the data may know. A control that fails leaves no figure, and ends no run.

    One private record could make it fail. It must not decide whether there is a release: the owner reads of it under `private/`.
    """
    folder = learning.folder
    folder.failed_controls.unlink(missing_ok=True)
    try:
        quietly("controls", functools.partial(controls, learning), ours=Error)
    except Error as error:
        folder.write_inside(folder.failed_controls, f"{error}\n")
    learning.say("scoring the controls", 1, 1)


def _exposed(task: Task, folder: RunFolder) -> dict[str, float]:
    """Give the private controls, and show their pictures: where that data is public anyway."""
    found = table.read_controls(folder)
    if found:
        table.controls(task.name).expose(folder)
    return found


def _begin(oracle: Any, task: Task, learning: Learning, run: str, **facts: Any) -> dict[str, Any]:
    """Write down what is planned, on a ledger that has room for it."""
    _check_room(oracle, run)
    plan = _described_plan(oracle, task, learning.student)
    about: dict[str, Any] = {"task": task.name, "adaptive": task.adaptive, "plan": plan, **facts}
    shards = getattr(oracle, "shards", publication.OPENED)
    return publication.begin(learning.folder, oracle.ledger, run, shards=shards, **about)


def _publish(found: _Learned, learning: Learning, ledger: Ledger, about: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return publication.publish(
        learning.folder, ledger, about, scores=found.scores, counts=found.counts, sanitised=found.sanitised, **more
    )


def _salt(run: str, parts: Shards) -> str:
    """Tell this run's answers from those of another run, and of the same one with another division."""
    return json.dumps([run, parts.key])


def _check_room(oracle: Any, run: str) -> None:
    """Refuse to begin on a shared ledger whose budget other runs have used up."""
    book = oracle.ledger
    if book.length > 1 and run not in {name for name, _ in book.starts()} and oracle.remaining(1) < 1:
        raise BudgetExceeded(
            f"the ledger must have room for at least one more answer within ε = {book.budget.epsilon:g}. "
            "Got a budget that other runs have used up instead; nothing was read."
        )


def _described_plan(oracle: Any, task: Task, student: Students) -> dict[str, Any]:
    """Describe what will be asked and how. The ledger holds its hash: under another plan the budget is quoted.

    An oracle may have a `plan` that says how it answers, and `shards` for who was divided how; of a curator these are known.
    """
    plan, steps = task.plan, [getattr(oracle, name, None) for name in ("mechanism", "screen", "selection")]
    return {
        "steps": [repr(step) for step in steps if step is not None],
        "codec": repr(oracle.codec),
        "aggregation": repr(plan.how),
        "queries": plan.queries,
        "questions": "the first" if plan.questions is None else _described(plan.questions),
        "asked": task.asked,
        "pool": None if plan.public is None else plan.public.sha256,
        "teachers": _described(getattr(oracle, "teachers", oracle)),
        "student": _described(student),
        **getattr(oracle, "plan", {}),
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
