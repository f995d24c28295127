"""The one verb: private shards → teachers → the curator → answers → student, with its controls and its guarantee."""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage import beforehand, metrics
from tutelage import guarantee as guarantees
from tutelage.asking import Interview, Model, Progress, Questions
from tutelage.codecs.corrections import Corrections
from tutelage.data import schema
from tutelage.data.dataset import Private, Public
from tutelage.data.provenance import counted
from tutelage.planning import Aggregation
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.curator import Codec, Curator, Sighted
from tutelage.privacy.errors import BudgetExceeded, Error, LedgerError, RecipeError
from tutelage.privacy.ledger import Budget, Ledger, read_lines
from tutelage.privacy.sealed import Sealed, quietly
from tutelage.privacy.units import Shards
from tutelage.runs import RunFolder
from tutelage.sharing import ledger_of
from tutelage.tasks.corrections import Following
from tutelage.tasks.labels import Labelling
from tutelage.tasks.masks import Masking
from tutelage.tasks.task import Students, Task
from tutelage.telling import silent, telling

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
    """What a transfer gave: a model that may be published, and the book that says at what price."""

    model: Model
    folder: RunFolder
    answers: Any  # asking.Labels, or answers.Answers for masks
    guarantee: dict[str, Any]
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
    public: Public,
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
) -> Outcome:
    """Train a student on public data from the private teachers' noisy answers: labels, or masks where targets are masks.

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
    beforehand.check_place(out)
    beforehand.check(private, public, test, teachers=teachers, student=student, codec=codec, budget=budget, queries=queries)
    private = beforehand.labelled(private, codec)
    how, say = aggregation or _default(codec), progress or silent
    mechanism, screen = how.built(budget, queries, shards, codec.bound)  # a bad plan fails before anything is written
    selection = how.selecting(budget, queries, mechanism)
    task = _task(private, public, queries, codec, how, questions, shards, truth, say)
    beforehand.check_records(private, public, test)
    learner = beforehand.made(student, public)
    beforehand.check_classes(codec, public, test, teachers=teachers, learner=learner, shares=how.vectors)
    other, judged = _other_than(learner, student), None if test is None or test.targets is None else beforehand.known(test)
    if judged is not None:
        other()  # the same one twice is refused before anything is paid for
    parts, folder = private.split(shards, seed=seed), RunFolder(out).create(resume=resume)
    walk = _Walk(private, public, judged, teachers, student, learner, other, task, folder, say)
    with folder.locked(), ledger_of(folder, budget, ledger) as book:
        run = _name(folder, purpose)
        steps = {"screen": screen, "selection": selection, "private": folder.private, "salt": _salt(run, parts)}
        curator = Curator(teachers, codec, mechanism, book, **steps)
        plan = _plan(curator, task, how, questions, queries, public, student)
        about = _begin(folder, curator, run, task, private, parts, plan=plan, recipe=recipe, tuned_on=tuned_on, data=data)
        answers, sanitised, model = walk.learn(curator, parts)
        scores = walk.judge(model, answers, controls=controls)
        _note(declared, book)
        shown = _write_scores(folder, task, scores, folder.read_controls() if benchmark else {})
        document = _promise(folder, book, about, task.counts(answers), sanitised, shown=shown)
        (pages or _no_pages)(folder)
        folder.publish(book)
    return Outcome(model, folder, answers, document, scores)


@final
@dataclass(frozen=True)
class _Walk:
    """Hold what a run learns with and is judged on."""

    private: Private
    public: Public
    test: Public | None  # with targets
    teachers: TeacherFactory
    student: Students
    learner: Any
    other: Students
    task: Task
    folder: RunFolder
    say: Progress

    def learn(self, curator: Curator, parts: Shards) -> tuple[Any, float | None, Model]:
        """Train teachers, ask them, and train the student on the answers. Give these, the sanitised ε, and the student."""
        say = functools.partial(self.say, "training teachers")
        quietly("fit", functools.partial(self.teachers.fit, self.private, parts, progress=say), ours=Error)
        answers = self.task.ask(curator, self.student, self.folder, self.say)
        sanitised = self.task.account(curator, self.folder)
        fit = telling(self.learner.fit, self.say, "training the student")
        model = fit(self.public.unlabelled(), self.task.lesson(answers))
        _release(self.folder, self.task, model, answers)
        if (declared := self.public.schema or self.private.schema) is not None:
            self.folder.inputs.write_text(schema.text(declared, self.public.takes()), encoding="utf-8")
        return answers, sanitised, model

    def judge(self, model: Model, answers: Any, *, controls: bool) -> dict[str, float]:
        """Score the student on public test data, and what private data gives without noise under `private/`."""
        if self.test is None:
            return {}
        scores = self.task.scores(model, answers, self.test, self.other, self.say)
        _measure(self.folder, model, self.test, self.public.schema or self.private.schema)
        if controls:
            given = (self.teachers, self.private, answers, self.test, self.other, self.folder, self.say)
            _judge(self.folder, lambda: self.task.controls(*given))
            self.say("scoring the controls", 1, 1)
        return scores


def _measure(folder: RunFolder, model: Model, test: Public, declared: Any) -> None:
    """Write further measures on public test data. A student of one's own that has none of them ends no run."""
    try:
        found = metrics.measured(model, test, declared.classes if declared is not None else ())
    except Exception as error:  # of somebody's student; no private record is near it
        found = {"failed": type(error).__name__}
    folder.metrics.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _judge(folder: RunFolder, controls: Callable[[], None]) -> None:
    """Score what only the owner of the data may know. A control that fails leaves no figure, and ends no run.

    One private record could make it fail. It must not decide whether there is a release: the owner reads of it under `private/`.
    """
    folder.failed_controls.unlink(missing_ok=True)
    try:
        quietly("controls", controls, ours=Error)
    except Error as error:
        folder.write_inside(folder.failed_controls, f"{error}\n")


def _begin(
    folder: RunFolder, curator: Curator, run: str, task: Task, private: Private, parts: Shards, *, recipe: str, **facts: Any
) -> dict[str, Any]:
    """Take an earlier release back, and write down what is planned: in the ledger its hash, for the guarantee all of it."""
    book, roster = curator.ledger, private.roster
    _check_room(curator, run)
    about = guarantees.intended(
        task=task.name, adaptive=task.adaptive, units=private.places, shards=parts.key, ledger=folder.own(book),
        roster=None if roster is None else roster.sha256, recipe_sha256=run if recipe else None, **facts,
    )  # fmt: skip
    folder.reopen()
    folder.keep(book, run)
    book.begin(run, plan=guarantees.planned(about))
    folder.keep(book, run)
    folder.write_inside(folder.inside_data, json.dumps(counted(private), indent=2) + "\n")
    if recipe:
        folder.recipe.write_text(recipe, encoding="utf-8")
    return about


def _promise(
    folder: RunFolder, book: Ledger, about: dict[str, Any], labels: dict[str, int], sanitised: float | None, *, shown: bool
) -> dict[str, Any]:
    """Export the ledger, and write the guarantee that follows from the exported rows alone."""
    book.export(folder.exported_book)
    document = guarantees.guarantee(
        read_lines(folder.exported_book), run=book.run, about=about, sanitised_epsilon=sanitised, labels=labels,
        excepted=guarantees.EXCEPTED if shown else (),
    )  # fmt: skip
    guarantees.write(document, folder.guarantee)
    return document


def _name(folder: RunFolder, purpose: str) -> str:
    """Name the run in its ledger: by its recipe's hash, or by a random name, so that no other run is given its answers."""
    begun = folder.state.get("run")
    name = purpose or begun or secrets.token_hex(16)
    if begun not in (None, name):
        raise LedgerError(
            "`recipe` must be the one that this folder was begun with. Got one that was changed since instead: take a new --out."
        )
    return name


def _no_pages(folder: RunFolder) -> None:
    """Leave the release without a page."""


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


def _plan(
    curator: Curator, task: Task, how: Aggregation, questions: Questions | None, queries: int, public: Public, student: Students
) -> dict[str, Any]:
    """Describe what will be asked and how. The ledger holds its hash: under another plan the budget is quoted."""
    steps = (curator.mechanism, curator.screen, curator.selection)
    return {
        "steps": [repr(step) for step in steps if step is not None],
        "codec": repr(curator.codec),
        "aggregation": repr(how),
        "queries": queries,
        "questions": "the first" if questions is None else _described(questions),
        "asked": task.asked,
        "pool": public.sha256,
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


def _task(
    private: Private,
    public: Public,
    queries: int,
    codec: Any,
    how: Aggregation,
    questions: Questions | None,
    shards: int,
    truth: bool,
    say: Progress,
) -> Task:
    """Tell labels from masks by the shape of a target; where the codec takes corrections, a guess is put to the teachers."""
    if how.selection is not None and private.targets.ndim == 1:
        raise RecipeError("`selection` must stay open where targets are labels: shares of votes are few. Got it instead.")
    if isinstance(codec, Corrections):
        return Following(public, queries, how, codec)
    if private.targets.ndim > 1:
        return Masking(public, queries, how, questions, codec, shards, truth=truth, say=say)
    return Labelling(Interview(public, queries, codec.bound.dimension, how, questions, say))


def _other_than(published: Any, student: Students) -> Students:
    """Make students for the controls: one of them learns from private data, and must not be the one that is published."""

    def make() -> Any:
        other = student()
        if other is published:
            raise RecipeError("`student` must make a new student at every call. Got the same one twice instead.")
        return other

    return make


def _note(declared: Sequence[str], ledger: Ledger) -> None:
    """Write into the book, once, what counts as public on somebody's word: `verify` misses it where a guarantee leaves it out."""
    known = guarantees.declared(ledger.entries())
    for said in dict.fromkeys(declared):
        if said not in known:
            ledger.note(declared=said)


def _release(folder: RunFolder, task: Task, model: Model, answers: Any) -> None:
    """Write what is published before any control learns: one that shares a part with the student could still change it."""
    model.save(folder.release / "student")
    task.publish(folder, model, answers)


def _write_scores(folder: RunFolder, task: Task, scores: dict[str, float], exposed: dict[str, float]) -> bool:
    """Write the figures. Tell whether any of private data, and the stages, are among them: where that is public anyway."""
    if exposed:
        task.expose(folder)
    folder.scores.write_text(json.dumps({**scores, **exposed}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return bool(exposed)
