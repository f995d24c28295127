"""The one verb: private shards → teachers → the curator → answers → student, with its controls and its guarantee."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage import beforehand
from tutelage import guarantee as guarantees
from tutelage.asking import Interview, Model, Progress, Questions
from tutelage.codecs.corrections import Corrections
from tutelage.data.dataset import Private, Public
from tutelage.planning import Aggregation
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.curator import Codec, Curator, Sighted
from tutelage.privacy.errors import DataError, Error, RecipeError
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.sealed import Sealed, quietly
from tutelage.privacy.units import Shards
from tutelage.runs import RunFolder
from tutelage.tasks.corrections import Following
from tutelage.tasks.labels import Labelling
from tutelage.tasks.masks import Masking
from tutelage.tasks.task import Students, Task
from tutelage.telling import silent, telling

Array = npt.NDArray[Any]
_EXCEPTED = (
    "controls in scores.json and report.html (for masks also the stages' pictures, stages.npy): computed without noise, "
    "from a data set that is public anyway",
)


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
    purpose: str = "",
    tuned_on: str = "not stated",
    benchmark: bool = False,
    data: Mapping[str, Any] | None = None,
    declared: Sequence[str] = (),
    truth: bool = True,
    resume: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Train a student on public data from the private teachers' noisy answers: labels, or masks where targets are masks.

    The noise is calibrated to the budget, unless the aggregation fixes it. `questions` chooses by public criteria alone which
    public records are asked about; without it, the first `queries`. Where the aggregation asks in rounds, one with a method
    `again` (students.questions.Uncertain) chooses each round by what the last student thinks. What a run that is resumed was
    answered before is in the book and is not paid for again.
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
    learner, judged = beforehand.made(student, public), test is not None and test.targets is not None
    beforehand.check_classes(codec, public, test, teachers=teachers, learner=learner, shares=how.vectors)
    other, test = _other_than(learner, student), beforehand.known(test)
    if judged:
        other()  # the same one twice is refused before anything is paid for
    parts, folder = private.split(shards, seed=seed), RunFolder(out).create(resume=resume)
    with folder.locked(), Ledger(folder.book, budget, purpose=purpose) as ledger:
        fit = functools.partial(teachers.fit, private, parts, progress=functools.partial(say, "training teachers"))
        quietly("fit", fit, ours=Error)
        curator = Curator(teachers, codec, mechanism, ledger, screen=screen, selection=selection, private=folder.private)
        answers = task.ask(curator, student, folder, say)
        sanitised = task.account(curator, folder)
        model = telling(learner.fit, say, "training the student")(public.unlabelled(), task.lesson(answers))
        _release(folder, task, model, answers)
        scores = task.scores(model, answers, test, other, say) if judged and test is not None else {}
        if judged and test is not None and controls:
            _judge(folder, lambda: task.controls(teachers, private, answers, test, other, folder, say))
            say("scoring the controls", 1, 1)
        exposed = folder.read_controls() if benchmark else {}
        _note(declared, ledger)
        document = guarantees.guarantee(
            ledger, adaptive=task.adaptive, units=len(np.unique(private.units)), sanitised_epsilon=sanitised,
            excepted=_EXCEPTED if exposed else (), recipe_sha256=purpose or None, tuned_on=tuned_on,
            labels=task.counts(answers), data=data,
        )  # fmt: skip
        _conclude(folder, task, ledger, document, scores, exposed)
    return Outcome(model, folder, answers, document, scores)


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


def _judge(folder: RunFolder, controls: Callable[[], None]) -> None:
    """Score what only the owner of the data may know. A control that fails on private data leaves no figure, and ends no run."""
    try:
        quietly("controls", controls, ours=Error)
    except DataError as error:
        folder.write_inside(folder.private / "controls-failed.txt", f"{error}\n")


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


def _conclude(
    folder: RunFolder,
    task: Task,
    ledger: Ledger,
    document: dict[str, Any],
    scores: dict[str, float],
    exposed: dict[str, float],
) -> None:
    """Add the figures and the guarantee; stages only where the private data is public anyway."""
    folder.shown_stages.unlink(missing_ok=True)  # an earlier life may have been a benchmark
    if exposed:
        task.expose(folder)
    folder.scores.write_text(json.dumps({**scores, **exposed}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    ledger.export(folder.exported_book)
    guarantees.write(document, folder.guarantee)
