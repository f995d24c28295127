"""An heir: another student, taught the public pool as a released linear model names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.features.naming import SURE, check_sure, named
from tutelage.privacy.errors import DataError
from tutelage.students.inherited import Inherited
from tutelage.students.linear import LinearModel, LinearStudent
from tutelage.telling import tells

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]


@final
class Heir:
    """Let a linear model name the public pool, and teach those names to a student that can see more than it.

    What the linear model says of one record is a guess; what it says of thousands is mostly right, and a network that is shown
    them bent and shifted cannot learn the mistakes as easily as the rule.
    Formal guarantee: post-processing. It reads weights that were released and a public pool, and costs nothing.
    """

    def __init__(self, linear: LinearStudent, student: Callable[[], Any], *, sure: float = SURE) -> None:
        check_sure(sure)
        self.linear, self.student, self.sure = linear, student, sure

    def query(self) -> Any:
        """Ask what the linear model asks."""
        return self.linear.query()

    def update(self, answer: Array) -> None:
        """Move the linear model."""
        self.linear.update(answer)

    def state_dict(self) -> dict[str, Array]:
        """Give the linear model's state."""
        return self.linear.state_dict()

    def load_state_dict(self, state: dict[str, Array]) -> None:
        """Go on from a state of the linear model."""
        self.linear.load_state_dict(state)

    def result(self) -> LinearModel:
        """Give the linear model: without a public pool there is nothing to teach another student."""
        return self.linear.result()

    def check(self, public: Public) -> None:
        """Refuse a pool that the heir could not learn from: the weights are still to be paid for."""
        learner = self.student()
        if hasattr(learner, "check"):
            learner.check(public)

    def fit(self, public: Public, answers: Array, *, progress: Progress | None = None) -> Inherited:
        """Learn from weights (width, classes) that were released. Labels are refused: they could only be private ones."""
        wanted = (self.linear.sight.width, self.linear.classes)
        if not isinstance(public, Public) or np.shape(answers) != wanted:
            got = f"{type(public).__name__} and shape {np.shape(answers)}"
            raise DataError(f"`public` and `answers` must be a public pool and released weights {wanted}. Got {got} instead.")
        pool = public.unlabelled()
        linear = self.linear.fit(pool, answers)
        names = named(linear.probabilities(pool.inputs), sure=self.sure)
        return Inherited(self._taught(pool, names, progress), linear, names)

    def fit_all(
        self, public: Public, labels: Array, *, clips: Sequence[float | None], progress: Progress | None = None
    ) -> list[LinearModel]:
        """Give the linear models of the controls; no heir is made of them."""
        return self.linear.fit_all(public, labels, clips=clips, progress=progress)

    def taught(self, public: Public, labels: Array, *, progress: Progress | None = None) -> Any:
        """Teach labels (records,) to a new student: what names that are always right would give."""
        return self._taught(public.unlabelled(), labels, progress)

    def _taught(self, pool: Public, names: Array, progress: Progress | None) -> Any:
        learner = self.student()
        if progress is None or tells(learner.fit):
            return learner.fit(pool, names, **({} if progress is None else {"progress": progress}))
        progress(0, 1)
        taught = learner.fit(pool, names)
        progress(1, 1)
        return taught
