"""The one verb: private shards → teachers → the curator → labels → student, with its controls and its guarantee."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage import guarantee as guarantees
from tutelage.asking import Interview, Labels, Model, Progress, Questions, Student
from tutelage.data.dataset import Private, Public
from tutelage.planning import Aggregation, Sanitise
from tutelage.privacy import accounting
from tutelage.privacy.curator import Codec, Curator
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.ledger import Budget, Entry, Ledger
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Shards
from tutelage.runs import RunFolder

Array = npt.NDArray[Any]
_SAMPLES = 40  # public questions with their answers that the report can show
_EXCEPTED = ("controls in scores.json and report.html: computed without noise, from a data set that is public anyway",)


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
    labels: Array  # (public records,), -1 where nothing was answered
    guarantee: dict[str, Any]
    scores: dict[str, float] = field(default_factory=dict)  # on public test data; figures from private data lie in private/
    reinforced: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))  # where a label is the student's own, confirmed


def transfer(
    private: Private,
    public: Public,
    *,
    teachers: TeacherFactory,
    student: Callable[[], Student],
    codec: Codec,
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
    resume: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Train a student on public data from the private teachers' noisy answers.

    The noise is calibrated to the budget, unless the aggregation fixes it. `questions` chooses which public records are
    asked about, by public criteria alone; without it, the first `queries` of the pool. Where the aggregation asks in rounds,
    one with a method `again` (students.questions.Uncertain) chooses each round by what the student of the last one thinks.
    A run can be resumed: what was answered is in the book and is not paid for again.
    `benchmark` says that the private data is public anyway, so that controls computed from it may be shown in the release.
    Formal guarantee: everything under `out`/release (benchmark controls excepted) is (ε, δ)-DP for the budget and unit.
    """
    _check_fit(private, public, budget, queries)
    how = aggregation or Aggregation()
    say = progress or (lambda what, done, total: None)
    mechanism, screen = how.built(budget, queries, shards, codec.bound.dimension)  # a bad plan fails before anything is written
    interview = Interview(public, queries, codec.bound.dimension, how, questions)
    parts = private.split(shards, seed=seed)
    folder = RunFolder(out).create(resume=resume)
    with folder.locked(), Ledger(folder.book, budget, purpose=purpose) as ledger:
        teachers.fit(private, parts, progress=lambda done, total: say("training teachers", done, total))
        curator = Curator(teachers, codec, mechanism, ledger, screen=screen, private=folder.private)
        labels = interview.hold(curator, student, folder.rounds, say)
        sanitised = _sanitised(curator, how.sanitise)
        _account(curator, folder, budget)
        model = student().fit(public.unlabelled(), labels.values)
        say("training the student", 1, 1)
        scores: dict[str, float] = {}
        if test is not None and test.targets is not None:
            scores = _scores(model, labels, public, test, student)
            if controls:
                _controls(teachers, private, test, student, folder)
                say("scoring the controls", 1, 1)
        exposed = folder.read_controls() if benchmark else {}
        document = guarantees.guarantee(
            ledger,
            adaptive=interview.adaptive,
            units=len(np.unique(private.units)),
            sanitised_epsilon=sanitised,
            excepted=_EXCEPTED if exposed else (),
            recipe_sha256=purpose or None,
            tuned_on=tuned_on,
            labels=labels.counts(),
        )
        _publish(folder, ledger, model, labels, public, document, {**scores, **exposed})
    return Outcome(model, folder, labels.values, document, scores, labels.reinforced)


def _check_fit(private: Private, public: Public, budget: Budget, queries: int) -> None:
    """Refuse data that the budget does not speak about, and more questions than there are records."""
    if not (isinstance(queries, int) and 1 <= queries <= len(public)):
        raise RecipeError(f"`queries` must be between 1 and the public pool's {len(public)} records. Got {queries!r} instead.")
    if private.unit != budget.unit.name:  # shards that keep records apart may still divide a patient
        raise RecipeError(f"`unit` of the budget must be the data's, {private.unit!r}. Got {budget.unit.name!r} instead.")


def _answered(rows: list[Entry]) -> bool:
    """Tell whether the book holds a release at all: kills may have used up a whole budget before one."""
    return any(row.kind == "release" for row in rows)


def _sanitised(curator: Curator, sanitise: Sanitise | None) -> float | None:
    """Publish the data-dependent ε where that was planned and is still affordable (a crash may have used up its room)."""
    rows = curator.ledger.entries()
    if sanitise is None or not _answered(rows):
        return None
    release = sanitise.release()
    charge, after = rows[-2:]
    kept = after.kind == "release" and charge.body.get("event", {}).get("kind") == "SmoothRelease"
    if not kept and not curator.ledger.affordable(release.event()):
        return None
    return curator.sanitised_epsilon(release, order=sanitise.order)


def _account(curator: Curator, folder: RunFolder, budget: Budget) -> None:
    """Leave the data-dependent ε, sealed, where it belongs."""
    if budget.unit.teachers == 1 and _answered(curator.ledger.entries()):
        orders = accounting.ORDERS
        raw = curator.data_dependent_rdp(orders).map(lambda rdp: accounting.rdp_to_epsilon(rdp, orders, budget.delta)[0])
        raw.store(folder.private / "data_dependent_epsilon.npy")


def _accuracy(model: Model, data: Public) -> float:
    return float(np.mean(model.predict(data.inputs) == data.targets))


def _scores(model: Model, labels: Labels, public: Public, test: Public, student: Callable[[], Student]) -> dict[str, float]:
    """Score the student, and the controls that need no private data, on public test data."""
    scores = {"private student": _accuracy(model, test)}
    if public.targets is not None and (labels.values >= 0).any():
        right = labels.values == public.targets
        for name, some in (("released labels", labels.released), ("reinforced labels", labels.reinforced)):
            if some.any():
                scores[name] = float(np.mean(right[some]))
        truth = np.where(labels.values >= 0, public.targets, -1)
        scores["control: same questions, true labels"] = (
            scores["private student"]  # every answer was right: the same student again
            if np.array_equal(truth, labels.values)
            else _accuracy(student().fit(public.unlabelled(), truth), test)
        )
    # Without private data and without public labels one class is as good as another.
    scores["control: public only, no answers (ε = 0)"] = float(np.mean(test.targets == np.bincount(test.targets).argmax()))
    return scores


def _controls(
    teachers: TeacherFactory, private: Private, test: Public, student: Callable[[], Student], folder: RunFolder
) -> None:
    """Score what only the owner of the data may know, and leave it under `private/` (names: runs.CONTROLS, in order)."""
    everything = Public.of(private.inputs, source="private, for the control alone")
    unprotected = _accuracy(student().fit(everything, private.targets), test)

    def figures(votes: Array) -> Array:
        ballots = votes[..., None] == np.arange(votes.max() + 1)
        plurality = ballots.sum(axis=0).argmax(axis=-1)
        return np.asarray([unprotected, np.mean(plurality == test.targets), np.mean(votes == test.targets)])

    teachers.vote(test.inputs).map(figures).store(folder.controls)


def _publish(
    folder: RunFolder,
    ledger: Ledger,
    model: Model,
    labels: Labels,
    public: Public,
    document: dict[str, Any],
    scores: dict[str, float],
) -> None:
    with folder.labels.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["public_record", "label", "source"])
        by = np.where(labels.reinforced, "student", "teachers")
        rows.writerows((index, int(labels.values[index]), by[index]) for index in np.flatnonzero(labels.values >= 0))
    shown = np.flatnonzero(labels.values >= 0)[:_SAMPLES]
    np.savez_compressed(folder.samples, inputs=public.inputs[shown], labels=labels.values[shown])
    model.save(folder.release / "student")
    folder.scores.write_text(json.dumps(scores, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    ledger.export(folder.exported_book)
    guarantees.write(document, folder.guarantee)
