"""A student that is the guess itself: one layer over features that the public pool taught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.accepted import Accepted, taken
from tutelage.data.dataset import Public
from tutelage.features.correction import Descent, correction, shares
from tutelage.features.sight import Sight, blocks
from tutelage.privacy.errors import DataError
from tutelage.privacy.queries import Query

Array = npt.NDArray[Any]
KIND = "tutelage.linear/1"


@final
class LinearModel:
    """Hold public features and the weights that were learned on them."""

    def __init__(self, sight: Sight, weights: Array, accepted: Accepted | None = None) -> None:
        self.sight, self.weights, self.accepted = sight, weights, accepted  # without: whatever can be seen

    def probabilities(self, inputs: Array) -> Array:
        """Give class probabilities (records, classes)."""
        return shares(self.sight(inputs if self.accepted is None else self.accepted(inputs)), self.weights)

    def predict(self, inputs: Array) -> Array:
        """Give labels (records,)."""
        return self.probabilities(inputs).argmax(axis=1)

    def save(self, path: str | Path) -> Path:
        """Write weights, features and what it takes to one .npz file of plain arrays."""
        target = Path(path).with_suffix(".npz")
        told: dict[str, Any] = {"format": np.asarray(KIND), "weights": self.weights, **self.sight.arrays()}
        if self.accepted is not None:
            told["accepted"] = np.asarray(self.accepted.plain())
        np.savez_compressed(target, **told)
        return target

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> LinearModel:
        """Read a model back; nothing in the file is executed."""
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        if str(arrays.pop("format", "")) != KIND:
            raise DataError(f"`path` must name a file of kind {KIND!r}. Got {Path(path).name!r} instead.")
        weights = arrays.pop("weights")
        accepted = Accepted.read(str(arrays.pop("accepted"))) if "accepted" in arrays else None
        return cls(Sight.of(arrays, device=device), weights, accepted)


@final
class LinearStudent:
    """Ask what a guess is missing, follow the answer, and ask again: an IterativeStudent of one layer over public features.

    It needs no public pool; where there is one, it says which inputs the model takes. As a control it follows corrections of
    given labels without noise.
    """

    def __init__(self, sight: Sight, *, classes: int, rounds: int = 25, rate: float = 4.0) -> None:
        self.sight, self.classes, self.rounds, self.rate = sight, classes, rounds, rate * sight.width
        self._descent = Descent(sight.width, classes, rounds)

    def query(self) -> Query | None:
        """Ask which way the guess should move; None after the last round."""
        return Query.state(weights=self._descent.guess) if self._descent.done < self.rounds else None

    def update(self, answer: Array) -> None:
        """Follow a released step (width, classes)."""
        self._descent.follow(answer)

    def state_dict(self) -> dict[str, Array]:
        """Give the weights, and what the next guess depends on."""
        return {"weights": self._descent.weights, **self._descent.state_dict()}

    def load_state_dict(self, state: dict[str, Array]) -> None:
        """Go on from a state."""
        self._descent.load_state_dict(state)

    def result(self) -> LinearModel:
        """Give the model of the mean of the later guesses."""
        return LinearModel(self.sight, self._descent.weights)

    def fit(self, public: Public, answers: Array) -> LinearModel:
        """Learn from weights (width, classes), or from labels (records,)."""
        if np.shape(answers) == (self.sight.width, self.classes):
            return LinearModel(self.sight, np.asarray(answers), taken(public))
        return self.fit_all(public, answers, clips=(None,))[0]

    def fit_all(
        self,
        public: Public,
        labels: Array,
        *,
        clips: Sequence[float | None],
        progress: Callable[[int, int], None] | None = None,
    ) -> list[LinearModel]:
        """Follow corrections of labels (records,) without noise, once for every clip; the records are looked at once.

        `progress` counts blocks of records that are looked at, and then rounds.
        """
        told = np.asarray(labels)
        if told.shape != (len(public),) or told.dtype.kind not in "iu":
            wanted = (self.sight.width, self.classes)
            raise DataError(f"`answers` must be weights {wanted} or a label per record. Got shape {told.shape} instead.")
        tell, work = progress or (lambda done, total: None), len(clips) * self.rounds
        seen, models = self.sight(public.inputs, progress=lambda done, looks: tell(done, looks + work)), []
        done = looks = blocks(len(public))
        for clip in clips:
            descent = Descent(self.sight.width, self.classes, self.rounds)
            for _ in range(self.rounds):
                missing = correction(seen, told, descent.guess)
                cut = 1.0 if clip is None else _cut(seen, missing, clip)
                descent.follow(self.rate * (seen.T @ (missing * cut) / len(seen)))
                done += 1
                tell(done, looks + work)
            models.append(LinearModel(self.sight, descent.weights, taken(public)))
        return models


def _cut(seen: Array, missing: Array, clip: float) -> Array:
    """Give the factor (records, 1) that clips each outer product as the curator would."""
    lengths = np.linalg.norm(seen, axis=1, keepdims=True) * np.linalg.norm(missing, axis=1, keepdims=True)
    return np.asarray(np.minimum(1.0, clip / np.maximum(lengths, 1e-12)))
