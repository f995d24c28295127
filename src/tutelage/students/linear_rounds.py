"""A classifier without a public pool: a linear softmax, corrected in noisy rounds, on features that nobody's data taught.

The features are scattering, whitened by procedural images. In every round the private records say, summed and noisy, what the
model gets wrong about them; the model follows, and its later half is averaged. How many axes count is a rule from how many units
there are and the budget's μ: docs/guide/generation.md derives it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from tutelage.features.correction import Descent
from tutelage.features.procedural import procedural
from tutelage.features.scattering import Scattering
from tutelage.features.whitening import Whitening, whitening
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.queries import Form, Query

Array = npt.NDArray[Any]
KIND = "tutelage.linear-rounds/1"


@final
@dataclass(frozen=True)
class LinearRounds:
    """Describe the student. What stays open follows from the rule; `units_per_axis` is the rule's one constant.

    An axis is worth its noise where units · μ is large beside it, so that later axes count less: axis number `half` counts half,
    with half = units · μ / units_per_axis. The noise of the fitted weights is then the same at every size and budget, and so is
    the best length of the way, rounds · rate.
    """

    features: Scattering = field(default_factory=Scattering)
    half: float | None = None
    axes: int | None = None
    rounds: int = 60
    clip: float = 0.25
    rate: float = 0.7
    units_per_axis: float = 80.0
    most_axes: int = 1200
    drawn: int = 6000  # procedural images
    random_state: int = 0

    def __post_init__(self) -> None:
        for name in ("half", "axes"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise RecipeError(f"`{name}` must be above 0. Got {getattr(self, name)!r} instead.")
        for name in ("rounds", "clip", "rate", "units_per_axis", "most_axes", "drawn"):
            if not getattr(self, name) > 0:
                raise RecipeError(f"`{name}` must be above 0. Got {getattr(self, name)!r} instead.")

    def ruled(self, *, units: int, mu: float, shape: tuple[int, ...]) -> tuple[int, float]:
        """Give how many axes, and which of them counts half, for so many units on a public roster and this μ."""
        half = self.half or max(4.0, units * mu / self.units_per_axis)
        most = min(self.most_axes, self.features.width(shape), self.drawn // 4)
        return self.axes or min(most, max(32, round(6 * half))), half

    def whitening(self, shape: tuple[int, ...], axes: int, *, device: str = "cpu") -> Whitening:
        """Whiten by procedural images: the same for everybody who asks for this shape."""
        images = procedural(self.drawn, (shape[0], shape[1], shape[2]), random_state=self.random_state)
        return whitening(self.features(images, device=device), axes, device=device)

    def student(
        self, *, units: int, mu: float, shape: tuple[int, ...], classes: tuple[str, ...], device: str = "cpu"
    ) -> LinearRoundsStudent:
        """Build the student for a private set of these public sizes."""
        axes, half = self.ruled(units=units, mu=mu, shape=shape)
        seen = Seen(self.features, shape, self.whitening(shape, axes, device=device).tapered(half), device)
        counts = 1 / (1 + np.arange(axes) / half)
        step = self.rate * float(counts.sum() ** 2 / np.square(counts).sum()) / units
        return LinearRoundsStudent(seen, classes, rounds=self.rounds, step=step, clip=self.clip)


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """See images as whitened features (n, axes) of length 1, each on its own."""

    features: Scattering
    shape: tuple[int, ...]
    whitening: Whitening
    device: str = "cpu"

    def __call__(self, images: Array, *, progress: Callable[[int, int], None] | None = None) -> Array:
        """Give features (n, axes)."""
        images = np.asarray(images)
        if images.shape[1:] != tuple(self.shape):
            raise DataError(f"`images` must have the shape {tuple(self.shape)}. Got {images.shape[1:]} instead.")
        return self.whitening(self.features(images, device=self.device, progress=progress), device=self.device)

    @property
    def width(self) -> int:
        """Count the axes."""
        return len(self.whitening.spread)


@final
class LinearRoundsStudent:
    """Ask what the weights are missing, follow the answer, ask again: an iterative student that needs no public inputs."""

    form = Form.OUTER

    def __init__(self, seen: Seen, classes: tuple[str, ...], *, rounds: int, step: float, clip: float) -> None:
        if len(classes) < 2:
            raise RecipeError(f"`classes` must be at least 2. Got {len(classes)} instead.")
        self.seen, self.classes, self.rounds, self.step, self.clip = seen, tuple(classes), rounds, step, clip
        self._descent = Descent(seen.width, len(classes), rounds)

    def query(self) -> Query | None:
        """Put the weights to the private records; nothing when the rounds are over."""
        return None if self._descent.done >= self.rounds else self.template()

    def template(self) -> Query:
        """Give a query of the kind that all rounds have."""
        return Query.state(Form.OUTER, {"asks": "what a linear softmax is missing"}, weights=self._descent.guess)

    def update(self, answer: Array) -> None:
        """Follow a noisy sum of corrections (axes, classes)."""
        self._descent.follow(self.step * np.asarray(answer))

    def state_dict(self) -> dict[str, Array]:
        """Give what is needed to go on: it follows from released answers."""
        return self._descent.state_dict()

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Go on from what was kept."""
        if np.shape(state["guess"]) != self._descent.guess.shape:
            raise DataError(f"`state` must be of weights {self._descent.guess.shape}. Got {np.shape(state['guess'])} instead.")
        self._descent.load_state_dict(dict(state))

    def result(self) -> LinearRoundsModel:
        """Give the model that the rounds so far led to."""
        return LinearRoundsModel(self.seen, self._descent.weights, self.classes)


@final
class LinearRoundsModel:
    """Hold public features and the weights that noisy rounds led to."""

    def __init__(self, seen: Seen, weights: Array, classes: tuple[str, ...]) -> None:
        self.seen, self.weights, self.classes = seen, np.asarray(weights, dtype=np.float32), tuple(classes)

    def scores(self, images: Array) -> Array:
        """Give logits (n, classes)."""
        return np.asarray(self.seen(images) @ self.weights)

    def predict_proba(self, images: Array) -> Array:
        """Give class probabilities (n, classes)."""
        return np.asarray(softmax(self.scores(images), axis=1))

    probabilities = predict_proba

    def predict(self, images: Array) -> Array:
        """Give the numbers of classes (n,)."""
        return self.scores(images).argmax(axis=1)

    def save(self, path: str | Path) -> Path:
        """Write weights, axes and settings to one .npz file of plain arrays."""
        target = Path(path).with_suffix(".npz")
        how = self.seen.whitening
        about = {"shape": list(self.seen.shape), "classes": list(self.classes), "features": self.seen.features.plain()}
        np.savez_compressed(
            target, format=np.asarray(KIND), about=np.asarray(json.dumps(about, sort_keys=True)), weights=self.weights,
            centre=how.centre.astype(np.float32), axes=how.axes.astype(np.float32), spread=how.spread.astype(np.float32),
        )  # fmt: skip
        return target

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu") -> LinearRoundsModel:
        """Read a model back; nothing in the file is executed."""
        with np.load(Path(path), allow_pickle=False) as file:
            if str(file.get("format", "")) != KIND:
                raise DataError(f"`path` must name a file of kind {KIND!r}. Got {Path(path).name!r} instead.")
            about = json.loads(str(file["about"]))
            how = Whitening(file["centre"], file["axes"], file["spread"])
            weights = file["weights"]
        features = Scattering(mirror=bool(about["features"]["mirror"]), floor=about["features"]["floor"])
        return cls(Seen(features, tuple(about["shape"]), how, device), weights, tuple(about["classes"]))


def missing(seen: Array, labels: Array, weights: Array) -> Array:
    """Give what weights (axes, classes) get wrong about records: label minus guess (n, classes)."""
    wanted = labels[:, None] == np.arange(weights.shape[1])
    return np.asarray(wanted - softmax(seen @ weights, axis=1))
