"""A student that learns from answered questions alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.accepted import Accepted, taken
from tutelage.data.dataset import Public
from tutelage.estimators import Fitted, Progress, Regressed, estimator, flat, grow, store
from tutelage.privacy.errors import DataError
from tutelage.students.shares import are_shares, centred

Array = npt.NDArray[Any]


@final
class SupervisedStudent:
    """Fit a scikit-learn classifier on the public inputs that were answered; a regression where answers are shares."""

    def __init__(self, kind: str = "forest", *, seed: int = 0) -> None:
        self.kind, self.seed, self._model = kind, seed, estimator(kind, seed=seed)
        self._takes: Accepted | None = None

    def fit(self, public: Public, labels: Array, *, progress: Progress | None = None) -> SupervisedStudent:
        """Learn from labels (records,), -1 where nothing was answered, or noisy shares (records, classes), NaN there."""
        self._takes = taken(public)
        if are_shares(labels):
            return self._fit_shares(public, centred(labels), progress)
        known = labels >= 0
        inputs = flat(public.inputs)[known]
        if len(np.unique(labels[known])) < 2:  # scikit-learn wants two classes; one is a constant, none is class 0
            self._model = _constant(int(labels[known][0]) if known.any() else 0)
        else:
            grow(self._model, inputs, labels[known], progress)
        return self

    def _fit_shares(self, public: Public, shares: Array, progress: Progress | None) -> SupervisedStudent:
        known = np.isfinite(shares[:, 0])
        model = Regressed(self.kind, seed=self.seed)
        inputs = flat(public.inputs)[known]
        self._model = model.fit(inputs, shares[known], progress=progress) if known.any() else _constant(0)
        return self

    def predict(self, inputs: Array) -> Array:
        """Give labels (records,)."""
        return np.asarray(self._model.predict(self._rows(inputs)))

    def _rows(self, inputs: Array) -> Array:
        return flat(inputs if self._takes is None else self._takes(inputs))

    def probabilities(self, inputs: Array) -> Array:
        """Give class shares (records, largest label + 1): the classifier's own, or all on one class where it has none."""
        labels = np.asarray(self._model.classes_, dtype=np.int64)
        if hasattr(self._model, "predict_proba"):
            own = np.asarray(self._model.predict_proba(self._rows(inputs)))
        else:
            own = self.predict(inputs)[:, None] == labels
        shares = np.zeros((len(own), int(labels.max()) + 1))
        shares[:, labels] = own
        return shares

    def save(self, path: Path) -> Path:
        """Store the model, with what it takes, without pickle; the ending says how to read it."""
        if self._takes is None:
            raise DataError("`student` must be fitted before it is stored. Got none instead.")
        target = path.with_suffix(".skops")
        store(Fitted(self._model, self._takes), target)
        return target


def _constant(label: int) -> Any:
    from sklearn.dummy import DummyClassifier

    return DummyClassifier(strategy="constant", constant=label).fit([[0.0]], [label])
