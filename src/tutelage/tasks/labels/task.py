"""Labels as answers: votes and their winner, or every class's noisy share."""

from __future__ import annotations

import csv
from typing import Any, final

import numpy as np

from tutelage.codecs.votes import Votes
from tutelage.data.dataset import Private, Public
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.oracle import Oracle
from tutelage.runs import RunFolder
from tutelage.tasks.checks import check_classes
from tutelage.tasks.labels.interview import Interview, Labels
from tutelage.tasks.labels.reading import COLUMNS, READING
from tutelage.tasks.scores import Score
from tutelage.tasks.table import space
from tutelage.tasks.task import Learning, Model, Plan, accuracy, distinct, most_frequent, with_classes, with_labels
from tutelage.telling import telling

_SAMPLES = 40  # public questions with their answers that the report can show


@final
class Labelling:
    """Ask for labels of public records."""

    name = "labels"

    def __init__(self, plan: Plan) -> None:
        if space(plan.codec) is not None:
            got = type(plan.codec).__name__
            raise RecipeError(f"`codec` must be one for labels where targets are labels: Votes. Got an object of {got} instead.")
        if plan.how.selection is not None:
            raise RecipeError("`selection` must stay open where targets are labels: shares of votes are few. Got it instead.")
        self.plan, self.public, self.how = plan, plan.pool, plan.how
        classes = plan.codec.bound.dimension
        self.interview = Interview(self.public, plan.queries, classes, plan.how, plan.questions, plan.say)

    @property
    def asked(self) -> str:
        """Hash the questions that are known beforehand."""
        return self.interview.asked

    @property
    def adaptive(self) -> bool:
        """Tell whether the price depends on what was answered."""
        return self.interview.adaptive

    def check(self, *, teachers: Any, learner: Any, test: Public | None) -> None:
        """Refuse labels that the codec has no class for, and a student that has no class for what may be answered."""
        codec, shares = self.plan.codec, self.how.vectors
        if isinstance(codec, Votes):
            check_classes(codec.classes, self.public, test, teachers=teachers, learner=learner, shares=shares)

    def cleaned(self, private: Private) -> Private:
        """Leave out private records whose label is no class of the codec."""
        return with_classes(private, self.plan.codec)

    def judged(self, test: Public) -> Public:
        """Leave out test records whose label nobody knows."""
        return with_labels(test)

    def ask(self, oracle: Oracle, learning: Learning) -> Labels:
        """Hold the interview."""
        return self.interview.hold(oracle, learning.student, learning.folder.rounds, learning.say)

    def fit(self, answers: Labels, learning: Learning) -> Model:
        """Train on labels (records,) with -1 where nothing was answered, or shares (records, classes) with NaN there."""
        given = answers.values if answers.shares is None else answers.shares
        model: Model = telling(learning.learner.fit, learning.say, "training the student")(self.public.unlabelled(), given)
        return model

    def counts(self, answers: Labels) -> dict[str, int]:
        """Count the teachers' labels, the different records among them, and the student's own."""
        return {**answers.counts(), "distinct": distinct(self.public, np.flatnonzero(answers.released))}

    def scores(self, model: Model, answers: Labels, test: Public, learning: Learning) -> dict[str, float]:
        """Score the student, and the controls that need no private data, on public test data."""
        scores: dict[str, float] = {Score.STUDENT: accuracy(model, test)}
        if self.public.targets is not None and (answers.values >= 0).any():
            right = answers.values == self.public.targets
            for name, some in ((Score.RELEASED_LABELS, answers.released), (Score.REINFORCED_LABELS, answers.reinforced)):
                if some.any():
                    scores[name] = float(np.mean(right[some]))
            truth = np.where(answers.values >= 0, self.public.targets, -1)
            scores[Score.TRUE_LABELS] = (
                scores[Score.STUDENT]  # every answer was right: the same student again
                if answers.shares is None and np.array_equal(truth, answers.values)
                else accuracy(learning.trained(learning.another().fit)(self.public.unlabelled(), truth), test)
            )
        return {**scores, Score.PUBLIC_ONLY: most_frequent(test)}

    def publish(self, folder: RunFolder, model: Model, answers: Labels) -> None:
        """Write the labels, and some of the images they belong to."""
        with (folder.release / READING.answers).open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(COLUMNS)
            by = np.where(answers.reinforced, "student", "teachers")
            rows.writerows((index, int(answers.values[index]), by[index]) for index in np.flatnonzero(answers.values >= 0))
        shown = np.flatnonzero(answers.values >= 0)[:_SAMPLES]
        np.savez_compressed(folder.samples, inputs=self.public.inputs[shown], labels=answers.values[shown])


opened = Labelling
