"""States of a student: it asks which way to move, follows the released answer, and asks again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private, Public
from tutelage.privacy.errors import BudgetExceeded, RecipeError
from tutelage.privacy.oracle import Oracle
from tutelage.runs import RunFolder
from tutelage.students.inherited import Inherited
from tutelage.tasks.scores import Score
from tutelage.tasks.states.checks import check_learner, check_widths
from tutelage.tasks.states.reading import READING
from tutelage.tasks.task import Learning, Model, Plan, accuracy, most_frequent, with_classes, with_labels
from tutelage.telling import Progress, telling

Array = npt.NDArray[Any]
_KEPT = 64  # rounds after which a state is kept
_SAMPLES = 40  # public records that the report shows with the student's labels


@final
@dataclass(frozen=True, eq=False)
class Followed:
    """Hold the state that the answers led to, and how many of them were released."""

    state: Mapping[str, Array]
    rounds: int

    @property
    def values(self) -> Array:
        """Give the weights of a linear model; of another student, the first array of its state."""
        return np.asarray(self.state["weights"] if "weights" in self.state else next(iter(self.state.values()), np.zeros(0)))


@final
class States:
    """Run an IterativeStudent against the oracle, for as many rounds as are planned at most."""

    def __init__(self, plan: Plan) -> None:
        if not plan.how.vectors:
            raise RecipeError(f"`method` must be 'mean' for states of a student. Got {plan.how.method!r} instead.")
        if plan.questions is not None:
            raise RecipeError("`questions` must stay open: this student chooses its own queries. Got some instead.")
        self.plan, self.name = plan, getattr(plan.codec, "task", "states")

    @property
    def asked(self) -> str:
        """Say what is asked: every query follows from the answers before it."""
        return "what each guess is missing"

    @property
    def adaptive(self) -> bool:
        """What is asked depends on the answers; how many and at what price does not."""
        return False

    def check(self, *, teachers: Any, learner: Any, test: Public | None) -> None:
        """Refuse teachers or a student with other features, classes or rounds than were planned."""
        check_widths(self.plan.codec, teachers, learner)
        check_learner(learner, self.plan.queries)

    def cleaned(self, private: Private) -> Private:
        """Leave out private records whose label is no class of the codec."""
        return with_classes(private, self.plan.codec)

    def judged(self, test: Public) -> Public:
        """Leave out test records whose label nobody knows."""
        return with_labels(test)

    def ask(self, oracle: Oracle, learning: Learning) -> Followed:
        """Go all rounds. A student that `reserves` them has them charged at once: then states are kept, and not the answers."""
        learner = learning.learner
        done = (self._reserved if getattr(learner, "reserves", False) else self._one_by_one)(oracle, learner, learning.say)
        if not done:
            raise BudgetExceeded("the budget must hold at least one answer. Got none left after earlier kills instead.")
        return Followed(learner.state_dict(), done)

    def _one_by_one(self, oracle: Oracle, learner: Any, say: Progress) -> int:
        """Pay for every round; what was answered before is given again, free, and leads to the same queries."""
        for done in range(self.plan.queries):
            query = learner.query()
            if query is None or (not oracle.known(query) and oracle.remaining(1) < 1):  # a kill may have used up the room
                return done
            learner.update(oracle.ask(query).values[0])
            say("asking the teachers", done + 1, self.plan.queries)
        return self.plan.queries

    def _reserved(self, oracle: Oracle, learner: Any, say: Progress) -> int:
        """Pay for all rounds before the first. After a crash the student goes on from the state that was kept last."""
        if (query := learner.query()) is None:
            return 0
        rounds = oracle.reserve(self.plan.queries, query)
        if (state := rounds.state()) is not None:
            learner.load_state_dict(state)
        while rounds.left and (query := learner.query()) is not None:
            learner.update(oracle.decode(rounds.ask(query)[None], query.rows)[0])
            if rounds.left % _KEPT == 0:
                rounds.save(learner.state_dict())
            say("asking the teachers", self.plan.queries - rounds.left, self.plan.queries)
        rounds.save(learner.state_dict())
        return self.plan.queries - rounds.left

    def fit(self, answers: Followed, learning: Learning) -> Model:
        """Give the model of the last state. A student that can also learn from the pool goes on with it."""
        learner, public = learning.learner, self.plan.public
        if public is None or not hasattr(learner, "fit"):
            made: Model = learner.result()
            return made
        model: Model = telling(learner.fit, learning.say, "training the student")(public.unlabelled(), answers.values)
        return model

    def counts(self, answers: Followed) -> dict[str, int]:
        """Count the rounds."""
        return {"released": answers.rounds, "distinct": answers.rounds, "reinforced": 0}

    def scores(self, model: Model, answers: Followed, test: Public, learning: Learning) -> dict[str, float]:
        """Score the student, the linear model that it learned from, and what no private data gives."""
        return {
            Score.STUDENT: accuracy(model, test),
            **self._pool_labels(model, test, learning),
            Score.PUBLIC_ONLY: most_frequent(test),
        }

    def _pool_labels(self, model: Model, test: Public, learning: Learning) -> dict[str, float]:
        """Score the linear model that labelled the pool, its labels, and what true labels would have taught."""
        if not isinstance(model, Inherited):
            return {}
        scores: dict[str, float] = {Score.LINEAR: accuracy(model.linear, test)}
        public = self.plan.pool
        if public.targets is None:
            return scores
        sure = model.names >= 0
        other = learning.trained(learning.another().taught)(public, public.targets)
        if other is model.heir:
            raise RecipeError("`student` of an heir must make a new one at every call. Got the same one twice instead.")
        scores[Score.POOL_LABELS] = float(np.mean(model.names[sure] == public.targets[sure]))
        return scores | {Score.TRUE_POOL: accuracy(other, test)}

    def publish(self, folder: RunFolder, model: Model, answers: Followed) -> None:
        """Write the state, the linear model beside the one it taught, and some public records as the student labels them."""
        arrays: dict[str, Any] = dict(answers.state)
        np.savez_compressed(folder.release / READING.answers, **arrays)
        if isinstance(model, Inherited):
            model.linear.save(folder.release / "linear")
        if self.plan.public is not None:
            shown = self.plan.public.inputs[:_SAMPLES]
            np.savez_compressed(folder.samples, inputs=shown, labels=model.predict(shown))


opened = States
