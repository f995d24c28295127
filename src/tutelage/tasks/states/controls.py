"""Controls of states that need private data: the same rounds without noise, and boosted trees for tables."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from tutelage.data.dataset import Private, Public
from tutelage.privacy.sealed import Sealed
from tutelage.runs import RunFolder
from tutelage.tasks.labels.strong import strong
from tutelage.tasks.task import Learning, accuracy, everything


@final
class Controls:
    """Score what only the owner of the data may know (names: reading.READING.sealed, in order)."""

    def score(self, task: Any, private: Private, teachers: Any, answers: Any, test: Public, learning: Learning) -> None:
        """Leave the figures sealed under `private/`. A student that cannot learn from labels has no such controls."""
        pool, learner, folder = everything(task, private), learning.another(), learning.folder
        if hasattr(learner, "fit_all"):
            clips = (None, task.plan.codec.clip)
            models = learning.trained(learner.fit_all)(pool, private.targets, clips=clips)
            Sealed(np.asarray([accuracy(model, test) for model in models])).store(folder.sealed("corrected"))
        if hasattr(learner, "taught"):  # it teaches another student
            own = learning.trained(learner.taught)(pool, private.targets)
            Sealed(np.asarray([accuracy(own, test)])).store(folder.sealed("heir"))
        strong(private, test, folder, learning.say)

    def expose(self, folder: RunFolder) -> None:
        """There are no pictures."""
