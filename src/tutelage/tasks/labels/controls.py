"""Controls of labels that need private data: all private labels, teachers without noise, and boosted trees for tables."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private, Public
from tutelage.privacy.sealed import Sealed
from tutelage.runs import RunFolder
from tutelage.tasks.labels.strong import strong
from tutelage.tasks.task import VOTING, Learning, accuracy, everything
from tutelage.telling import telling

Array = npt.NDArray[Any]


@final
class Controls:
    """Score what only the owner of the data may know (names: reading.READING.sealed, in order)."""

    def score(self, task: Any, private: Private, teachers: Any, answers: Any, test: Public, learning: Learning) -> None:
        """Leave the figures sealed under `private/`."""
        fit = learning.trained(learning.another().fit)
        unprotected = accuracy(fit(everything(task, private), private.targets), test)

        def figures(votes: Array) -> Array:
            ballots = votes[..., None] == np.arange(votes.max() + 1)
            plurality = ballots.sum(axis=0).argmax(axis=-1)
            return np.asarray([unprotected, np.mean(plurality == test.targets), np.mean(votes == test.targets)])

        votes: Sealed = telling(teachers.vote, learning.say, VOTING)(test.inputs)
        votes.map(figures).store(learning.folder.sealed("controls"))
        strong(private, test, learning.folder, learning.say)

    def expose(self, folder: RunFolder) -> None:
        """There are no pictures."""
