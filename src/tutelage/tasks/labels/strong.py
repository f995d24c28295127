"""A strong control for tables: boosted trees on all private records. The student's own learner may be weak."""

from __future__ import annotations

import functools

import numpy as np

from tutelage.data.dataset import Private, Public
from tutelage.estimators import grow
from tutelage.privacy.sealed import Sealed
from tutelage.runs import RunFolder
from tutelage.telling import Progress, silent

FEWEST = 1000  # records: boosted trees of fewer are no strong control


def strong(private: Private, test: Public, folder: RunFolder, say: Progress = silent) -> None:
    """Score boosted trees where records are rows of a table, and leave the figure under `private/`."""
    if private.inputs.ndim != 2 or len(private) < FEWEST or len(np.unique(private.targets)) < 2:
        return
    from sklearn.ensemble import HistGradientBoostingClassifier

    progress = functools.partial(say, "controls: boosted trees")
    model = grow(HistGradientBoostingClassifier(random_state=0), private.inputs, private.targets, progress)
    Sealed([np.mean(model.predict(test.inputs) == test.targets)]).store(folder.sealed("strong"))
