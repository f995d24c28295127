"""Labels as answers: votes and their winner, or every class's noisy share."""

from __future__ import annotations

import csv
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.asking import Interview, Labels, Model, Progress
from tutelage.data.dataset import Private, Public
from tutelage.privacy.curator import Curator
from tutelage.runs import RunFolder
from tutelage.tasks.account import account, distinct
from tutelage.tasks.strong import strong
from tutelage.tasks.task import Students, trained, voting
from tutelage.telling import silent

Array = npt.NDArray[Any]
_SAMPLES = 40  # public questions with their answers that the report can show


@final
class Labelling:
    """Ask for labels of public records."""

    name = "labels"

    def __init__(self, interview: Interview) -> None:
        self.interview, self.public, self.how = interview, interview.public, interview.how

    @property
    def asked(self) -> str:
        """Hash the questions that are known beforehand."""
        return self.interview.asked

    @property
    def adaptive(self) -> bool:
        """Tell whether the price depends on what was answered."""
        return self.interview.adaptive

    def ask(self, curator: Curator, student: Students, folder: RunFolder, say: Progress) -> Labels:
        """Hold the interview."""
        return self.interview.hold(curator, student, folder.rounds, say)

    def account(self, curator: Curator, folder: RunFolder) -> float | None:
        """Seal the data-dependent ε where it belongs, and publish its sanitised form where that was planned."""
        return account(curator, folder, self.how)

    def lesson(self, answers: Labels) -> Array:
        """Give labels (records,) with -1 where nothing was answered, or shares (records, classes) with NaN there."""
        return answers.values if answers.shares is None else answers.shares

    def counts(self, answers: Labels) -> dict[str, int]:
        """Count the teachers' labels, the different records among them, and the student's own."""
        counts = answers.counts()
        return {**counts, "distinct": distinct(self.public, np.flatnonzero(answers.released))}

    def scores(self, model: Model, answers: Labels, test: Public, student: Students, say: Progress = silent) -> dict[str, float]:
        """Score the student, and the controls that need no private data, on public test data."""
        scores = {"private student": _accuracy(model, test)}
        if self.public.targets is not None and (answers.values >= 0).any():
            right = answers.values == self.public.targets
            for name, some in (("released labels", answers.released), ("reinforced labels", answers.reinforced)):
                if some.any():
                    scores[name] = float(np.mean(right[some]))
            truth = np.where(answers.values >= 0, self.public.targets, -1)
            scores["control: same questions, true labels"] = (
                scores["private student"]  # every answer was right: the same student again
                if answers.shares is None and np.array_equal(truth, answers.values)
                else _accuracy(trained(student().fit, say)(self.public.unlabelled(), truth), test)
            )
        # Without private data and without public labels one class is as good as another.
        scores["control: public only, no answers (ε = 0)"] = float(np.mean(test.targets == np.bincount(test.targets).argmax()))
        return scores

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
        """Score what only the owner of the data may know, and leave it under `private/` (names: runs.CONTROLS, in order)."""
        takes = self.public.takes()  # what private inputs look like decides nothing, not even here
        everything = Public(private.inputs, source="private, for the control alone", accepted=takes)
        unprotected = _accuracy(trained(student().fit, say)(everything, private.targets), test)

        def figures(votes: Array) -> Array:
            ballots = votes[..., None] == np.arange(votes.max() + 1)
            plurality = ballots.sum(axis=0).argmax(axis=-1)
            return np.asarray([unprotected, np.mean(plurality == test.targets), np.mean(votes == test.targets)])

        voting(teachers.vote, say)(test.inputs).map(figures).store(folder.controls)
        strong(private, test, folder, say)

    def publish(self, folder: RunFolder, model: Model, answers: Labels) -> None:
        """Write the labels, and some of the images they belong to."""
        with folder.labels.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["public_record", "label", "source"])
            by = np.where(answers.reinforced, "student", "teachers")
            rows.writerows((index, int(answers.values[index]), by[index]) for index in np.flatnonzero(answers.values >= 0))
        shown = np.flatnonzero(answers.values >= 0)[:_SAMPLES]
        np.savez_compressed(folder.samples, inputs=self.public.inputs[shown], labels=answers.values[shown])

    def expose(self, folder: RunFolder) -> None:
        """There are no stages."""


def _accuracy(model: Model, data: Public) -> float:
    return float(np.mean(model.predict(data.inputs) == data.targets))
