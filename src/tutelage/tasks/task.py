"""What a run is about: a Task asks an oracle, trains the student and releases files. Everything else is the same walk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private, Public
from tutelage.planning import Aggregation
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.oracle import Oracle
from tutelage.privacy.queries import Query
from tutelage.runs import RunFolder
from tutelage.tasks.questions import Questions
from tutelage.telling import Progress, silent, telling

Array = npt.NDArray[Any]
Students = Callable[[], Any]  # each call makes one that has learned nothing yet
VOTING = "controls: teachers vote"


class Model(Protocol):
    """What a student becomes."""

    def predict(self, inputs: Array) -> Array:
        """Give predictions."""

    def save(self, path: Path) -> Path:
        """Write the model beside `path`, with an ending that says how to read it."""


class Student(Protocol):
    """Learns from public inputs and released answers."""

    def fit(self, public: Public, answers: Any) -> Model:
        """Learn; of labels, -1 marks inputs without an answer."""


@runtime_checkable
class IterativeStudent(Protocol):
    """Asks round by round which way its state should move. Its next query depends on released answers alone.

    One with `reserves = True` asks queries of one form, all charged before the first: for thousands of rounds.
    """

    def query(self) -> Query | None:
        """Give the next query, or None at the end."""

    def update(self, answer: Array) -> None:
        """Take the released answer to the last query."""

    def state_dict(self) -> dict[str, Array]:
        """Give all that the next query depends on, as arrays."""

    def load_state_dict(self, state: dict[str, Array]) -> None:
        """Go on from a state."""

    def result(self) -> Model:
        """Give the model that this state makes."""


@final
@dataclass(frozen=True)
class Plan:
    """Hold what a task is opened with. All of it is public."""

    public: Public | None
    queries: int
    codec: Any
    how: Aggregation
    questions: Questions | None = None
    shards: int | None = None  # where teachers are trained here
    target: tuple[int, ...] | None = None  # the shape of one private target, where it is known
    truth: bool = True  # true masks of public images may be shown
    say: Progress = silent

    @property
    def pool(self) -> Public:
        """Give the public pool of a task that needs one."""
        if self.public is None:
            raise RecipeError(
                "`public` must be a public pool here: this student does not choose its own queries. Got None instead."
            )
        return self.public


@final
@dataclass(frozen=True)
class Learning:
    """Hold what learns, where it writes, and who is shown its progress."""

    student: Students
    learner: Any  # the student that is published
    folder: RunFolder
    say: Progress = silent
    schema: Any = None  # what a raw record looks like, as its owner declared it

    def another(self) -> Any:
        """Make a student for a control. It may learn from private data, and must not be the one that is published."""
        made = self.student()
        if made is self.learner:
            raise RecipeError("`student` must make a new student at every call. Got the same one twice instead.")
        return made

    def trained(self, fit: Callable[..., Any]) -> Callable[..., Any]:
        """Let a control's student report its progress."""
        return telling(fit, self.say, "training the controls")


class Task(Protocol):
    """Asks an oracle for released answers, and judges what a student made of them. It reads public data alone."""

    name: str  # a key of tasks.table.TABLE
    plan: Plan

    @property
    def asked(self) -> str:
        """Describe what is asked, as far as that is known before the first answer: a hash, or a word."""

    @property
    def adaptive(self) -> bool:
        """Tell whether the price depends on what was answered, so that only the budget may be quoted."""

    def check(self, *, teachers: Any, learner: Any, test: Public | None) -> None:
        """Refuse what public facts show to fail, before anything is charged."""

    def cleaned(self, private: Private) -> Private:
        """Leave out private records that teachers cannot learn from, each by itself."""

    def judged(self, test: Public) -> Public:
        """Leave out test records that cannot be scored."""

    def ask(self, oracle: Oracle, learning: Learning) -> Any:
        """Ask everything, and give the answers."""

    def fit(self, answers: Any, learning: Learning) -> Model:
        """Train the student that is published."""

    def counts(self, answers: Any) -> dict[str, int]:
        """Count the answers: released, distinct, and the student's own (reinforced)."""

    def scores(self, model: Model, answers: Any, test: Public, learning: Learning) -> dict[str, float]:
        """Score the student, and the controls that need no private data, on public test data."""

    def publish(self, folder: RunFolder, model: Model, answers: Any) -> None:
        """Write the answers, and a few of them for the report to show."""


class Controls(Protocol):
    """Scores of what only the owner of the data may know. `transfer` runs them; a run on somebody else's oracle cannot."""

    def score(self, task: Any, private: Private, teachers: Any, answers: Any, test: Public, learning: Learning) -> None:
        """Leave the figures sealed under `private/`."""

    def expose(self, folder: RunFolder) -> None:
        """Show pictures of the stages too, where the private data is public anyway."""


def everything(task: Task, private: Private) -> Public:
    """Give all private records as a pool: what the non-private control learns from."""
    takes = None if task.plan.public is None else task.plan.public.takes()  # what private inputs look like decides nothing
    return Public(private.inputs, source="private, for the control alone", accepted=takes)


def with_classes(private: Private, codec: Any) -> Private:
    """Leave out private records whose label is no class of the codec: one of them is no reason to refuse."""
    number = getattr(codec, "classes", None)
    return private.labelled(number) if isinstance(number, int) else private


def with_labels(test: Public) -> Public:
    """Leave out test records whose label nobody knows, a number below 0."""
    targets = np.asarray(test.targets)
    return test[targets >= 0] if (targets < 0).any() else test


def accuracy(model: Any, data: Public) -> float:
    """Give the share of records whose label a model predicts."""
    return float(np.mean(model.predict(data.inputs) == data.targets))


def most_frequent(test: Public) -> float:
    """Give the accuracy of one class for all: without private data and public labels, one is as good as another."""
    return float(np.mean(test.targets == np.bincount(np.asarray(test.targets)).argmax()))


def distinct(public: Public, places: Iterable[Any]) -> int:
    """Count the different records among those of a pool: one that is there twice is asked about once."""
    return len({hashlib.sha256(np.ascontiguousarray(public.inputs[place]).tobytes()).digest() for place in places})
