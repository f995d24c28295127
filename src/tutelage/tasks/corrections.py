"""Corrections as answers: a public guess is put to all teachers at once, and moves along the noisy mean of what they miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.asking import Model, Progress
from tutelage.codecs.corrections import Corrections
from tutelage.data.dataset import Private, Public
from tutelage.features.correction import Descent
from tutelage.planning import Aggregation
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import BudgetExceeded, RecipeError
from tutelage.privacy.sealed import Sealed
from tutelage.runs import RunFolder
from tutelage.students.inherited import Inherited
from tutelage.tasks.strong import strong
from tutelage.tasks.task import Students, trained
from tutelage.telling import silent

Array = npt.NDArray[Any]
NAMED = "the linear model that named the pool"
TRUE_POOL = "control: the same heir, true labels of the pool"


@final
@dataclass(frozen=True)
class Followed:
    """Hold where the corrections led, and how many were released."""

    values: Array  # weights (width, classes)
    rounds: int


@final
class Following:
    """Ask what a guess is missing, follow the answer, and ask again. The next question depends on released answers alone."""

    name, asked = "corrections", "what each guess is missing"

    def __init__(self, public: Public, rounds: int, how: Aggregation, codec: Corrections) -> None:
        if not how.vectors:
            raise RecipeError(f"`method` must be 'mean' for corrections. Got {how.method!r} instead.")
        self.public, self.rounds, self.codec = public, rounds, codec

    @property
    def adaptive(self) -> bool:
        """What is asked depends on the answers; how many and at what price does not."""
        return False

    def ask(self, curator: Curator, student: Students, folder: RunFolder, say: Progress) -> Followed:
        """Go all rounds; what was answered before is given again, free, and leads to the same questions."""
        descent = self._descent()
        for number in range(self.rounds):
            guess = descent.guess[None]
            if not curator.known(guess) and curator.affordable() < 1:  # a kill may have used up the room of the last ones
                return self._followed(descent, number)
            descent.follow(curator.answer(guess)[0])
            say("asking the teachers", number + 1, self.rounds)
        return self._followed(descent, self.rounds)

    def _descent(self) -> Descent:
        return Descent(self.codec.width, self.codec.classes, self.rounds)

    def _followed(self, descent: Descent, rounds: int) -> Followed:
        if not rounds:
            raise BudgetExceeded("the budget must hold at least one answer. Got none left after earlier kills instead.")
        return Followed(descent.weights, rounds)

    def account(self, curator: Curator, folder: RunFolder) -> float | None:
        """A mean's price does not depend on the data."""
        return None

    def lesson(self, answers: Followed) -> Array:
        """Give the weights."""
        return answers.values

    def counts(self, answers: Followed) -> dict[str, int]:
        """Count the rounds."""
        return {"released": answers.rounds, "distinct": answers.rounds, "reinforced": 0}

    def scores(
        self, model: Model, answers: Followed, test: Public, student: Students, say: Progress = silent
    ) -> dict[str, float]:
        """Score the student, whom it inherited from, and what no private data gives."""
        return {
            "private student": _accuracy(model, test),
            **self._inheritance(model, test, student, say),
            "control: public only, no answers (ε = 0)": float(np.mean(test.targets == np.bincount(test.targets).argmax())),
        }

    def _inheritance(self, model: Model, test: Public, student: Students, say: Progress) -> dict[str, float]:
        """Score what an heir was taught by, what it was told, and what the truth about the pool would have taught it."""
        if not isinstance(model, Inherited):
            return {}
        scores = {NAMED: _accuracy(model.linear, test)}
        if self.public.targets is None:
            return scores
        told = model.names >= 0
        other = trained(student().taught, say)(self.public, self.public.targets)
        if other is model.heir:
            raise RecipeError("`student` of an heir must make a new one at every call. Got the same one twice instead.")
        return scores | {
            "names that the heir was told": float(np.mean(model.names[told] == self.public.targets[told])),
            TRUE_POOL: _accuracy(other, test),
        }

    def controls(
        self,
        teachers: Any,
        private: Private,
        answers: Any,
        test: Public,
        student: Students,
        folder: RunFolder,
        say: Progress = silent,
    ) -> None:
        """Score what only the owner of the data may know (names: runs.CORRECTED in order, runs.INHERITED)."""
        takes = self.public.takes()  # what private inputs look like decides nothing, not even here
        everything = Public(private.inputs, source="private, for the control alone", accepted=takes)
        learner = student()
        models = trained(learner.fit_all, say)(everything, private.targets, clips=(None, self.codec.clip))
        Sealed(np.asarray([_accuracy(model, test) for model in models])).store(folder.corrected)
        if hasattr(learner, "taught"):  # it has an heir
            own = trained(learner.taught, say)(everything, private.targets)
            Sealed(np.asarray([_accuracy(own, test)])).store(folder.heir)
        strong(private, test, folder, say)

    def publish(self, folder: RunFolder, model: Model, answers: Followed) -> None:
        """Write the weights, the linear model beside its heir, and some public records as the student names them."""
        np.savez_compressed(folder.weights, weights=answers.values)
        if isinstance(model, Inherited):
            model.linear.save(folder.release / "linear")
        shown = self.public.inputs[:40]
        np.savez_compressed(folder.samples, inputs=shown, labels=model.predict(shown))

    def expose(self, folder: RunFolder) -> None:
        """There are no stages."""


def _accuracy(model: Model, data: Public) -> float:
    return float(np.mean(model.predict(data.inputs) == data.targets))
