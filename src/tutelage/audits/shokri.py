"""The shadow network of Shokri et al. (2017): learn from shadow models' outputs how a member's output looks.

One hidden layer of 64 units reads the logarithms of all class probabilities, the loss and the label. It is weaker than LiRA,
which knows how hard each record is; papers report it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.audits.scores import shares
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]


def shokri(target: npt.ArrayLike, labels: npt.ArrayLike, models: npt.ArrayLike, inside: npt.ArrayLike, *, seed: int = 0) -> Array:
    """Give each record's probability to be a member (records,).

    `target` is (records, classes), `models` (models, records, classes) of shadow models, `inside` (models, records).
    """
    many, within = np.asarray(models, dtype=np.float64), np.asarray(inside, dtype=bool)
    rows = described(target, labels)
    if many.ndim != 3 or within.shape != many.shape[:2] or many.shape[1] != len(rows):
        raise DataError("`models` must be (models, records, classes) as `inside` and `target` are. Got other shapes instead.")
    if within.all() or not within.any():
        raise DataError("`inside` must hold members and others. Got one kind alone instead.")
    known = np.concatenate([described(one, labels) for one in many])
    return learned(known, within.reshape(-1), rows, seed=seed)


def learned(known: Array, inside: Array, rows: Array, *, seed: int = 0) -> Array:
    """Learn what tells members from others among known rows, and give the probability of membership of new ones."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    centre, spread = known.mean(axis=0), known.std(axis=0) + 1e-9
    network = MLPClassifier((64,), max_iter=100, early_stopping=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit((known - centre) / spread, inside)
    return np.asarray(network.predict_proba((rows - centre) / spread)[:, 1])


def described(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Give what the network reads: log-probabilities, the loss, and the label (records, 2·classes + 1)."""
    given, wanted = shares(probabilities, labels)
    logs = np.log(given + 1e-12)
    return np.hstack([logs, logs[np.arange(len(logs)), wanted][:, None], np.eye(given.shape[1])[wanted]])
