"""A student that also learns from the shape of the unlabelled public pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.accepted import Accepted, taken
from tutelage.data.dataset import Public
from tutelage.estimators import Progress, flat
from tutelage.students.shares import refuse_shares
from tutelage.students.supervised import SupervisedStudent

Array = npt.NDArray[Any]


@final
class SpreadingStudent:
    """Spread noisy answers over a nearest-neighbour graph of the whole public pool, then fit a classifier on the result.

    Spreading outvotes single wrong labels: an answer that disagrees with its neighbours gives way (clamping below 1).
    """

    learns_shares = False

    def __init__(self, kind: str = "kernel", *, neighbours: int = 7, clamping: float = 0.8, seed: int = 0) -> None:
        self.kind, self.neighbours, self.clamping, self.seed = kind, neighbours, clamping, seed
        self._student = SupervisedStudent(kind, seed=seed)
        self._graph: Any = None
        self._takes: Accepted | None = None

    def fit(self, public: Public, labels: Array, *, progress: Progress | None = None) -> SpreadingStudent:
        """Learn from labels (records,), -1 where nothing was answered."""
        from sklearn.semi_supervised import LabelSpreading

        refuse_shares(labels, "spreading")
        self._graph = None
        if len(np.unique(labels[labels >= 0])) < 2:
            self._student.fit(public, labels, progress=progress)
            return self
        if progress:
            progress(0, 1)  # the graph cannot say how far it is
        neighbours = min(self.neighbours, len(public) - 1)
        graph = LabelSpreading(kernel="knn", n_neighbors=neighbours, alpha=self.clamping, max_iter=200)
        with np.errstate(invalid="ignore", divide="ignore"):  # a far corner of the pool may hear no label at all
            graph.fit(flat(public.inputs), labels)
        heard = graph.label_distributions_.sum(axis=1) > 0
        self._student.fit(public, np.where(heard, graph.transduction_, -1), progress=progress)
        self._graph, self._takes = graph, taken(public)
        return self

    def predict(self, inputs: Array) -> Array:
        """Give labels (records,)."""
        return self._student.predict(inputs)

    def probabilities(self, inputs: Array) -> Array:
        """Give class shares (records, largest label + 1): what the nearest records of the pool came to be called."""
        if self._graph is None:
            return self._student.probabilities(inputs)
        assert self._takes is not None
        inputs, labels = self._takes(inputs), self._graph.classes_
        shares = np.zeros((len(inputs), int(labels.max()) + 1))
        with np.errstate(invalid="ignore", divide="ignore"):
            shares[:, labels] = self._graph.predict_proba(flat(inputs))
        deaf = ~np.isfinite(shares).all(axis=1)  # no label came near: the classifier's own guess
        if deaf.any():
            guess = self._student.probabilities(np.asarray(inputs)[deaf])
            shares[deaf] = np.pad(guess, ((0, 0), (0, shares.shape[1] - guess.shape[1])))
        return shares

    def save(self, path: Path) -> Path:
        """Store the model without pickle."""
        return self._student.save(path)
