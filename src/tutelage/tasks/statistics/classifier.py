"""Learn a classifier from private images and nothing else: no public pool, no pretrained network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private, Public
from tutelage.privacy.budget import Budget
from tutelage.privacy.errors import DataError
from tutelage.privacy.queries import Form
from tutelage.runs import RunFolder
from tutelage.students.linear_rounds import LinearRounds, LinearRoundsModel
from tutelage.tasks.statistics.functions import Missing, Pixels, image_shape
from tutelage.tasks.statistics.walk import Sum, opened

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]


@final
@dataclass(frozen=True)
class Classified:
    """Hold what `classify` gave: a model that may be published, and at what price."""

    model: LinearRoundsModel
    folder: RunFolder
    guarantee: dict[str, Any]
    scores: dict[str, float]

    def predict(self, images: Array) -> Array:
        """Give the numbers of classes (n,) of images (n, channels, side, side) in 0…1."""
        return self.model.predict(images)


def classify(
    private: Private,
    *,
    classes: Sequence[str] | int,
    budget: Budget,
    out: str | Path,
    values: tuple[float, float] = (0.0, 1.0),
    student: LinearRounds | None = None,
    test: Public | None = None,
    ledger: str | Path | None = None,
    resume: bool = False,
    seed: int = 0,
    tuned_on: str = "not stated",
    data: Mapping[str, Any] | None = None,
    purpose: str = "",
    recipe: str = "",
    device: str = "cpu",
    pages: Callable[[RunFolder], object] | None = None,
    progress: Progress | None = None,
) -> Classified:
    """Fit a linear softmax on public features to private images in noisy rounds, all charged before the first.

    `classes` and `values` (the range of a pixel) are declared, never read off the data. `test` are public images with labels,
    for scores alone. Formal guarantee: everything under `out`/release is (ε, δ)-DP for the budget and unit.
    """
    from tutelage.nets.inputs import pick_device

    how, say = student or LinearRounds(), progress or _silent
    names = tuple(map(str, range(classes))) if isinstance(classes, int) else tuple(map(str, classes))
    pixels, place = Pixels(image_shape(private), *map(float, values)), str(pick_device(device))
    if private.places is None:
        raise DataError("`private` must have a public roster: its length decides how many axes count. Got none instead.")
    learner = how.student(units=private.places, mu=budget.mu, shape=pixels.shape, classes=names, device=place)
    what = Sum(1.0, Form.OUTER, learner.seen.width, norm=learner.clip, right=len(names), rounds=learner.rounds)
    plan = {"task": "classifier without a pool", "student": asdict(how), "classes": list(names), **pixels.plain()}
    given = {"ledger": ledger, "resume": resume, "seed": seed, "tuned_on": tuned_on, "data": data, "purpose": purpose}
    private = private.labelled(len(names))
    with opened(private, task="states", out=out, budget=budget, plan=plan, recipe=recipe, **given) as walk:
        walk.rounds(Missing(learner.seen, pixels), what, learner, progress=say)
        model = learner.result()
        model.save(walk.folder.release / "student")
        np.savez_compressed(walk.folder.release / "weights.npz", weights=model.weights)
        scores: dict[str, float] = {}
        if test is not None and test.targets is not None:
            truth = np.asarray(test.targets)
            scores["private student"] = float(np.mean(model.predict(pixels(test.inputs)) == truth))
            scores["control: public only, no answers (ε = 0)"] = float(np.mean(truth == np.bincount(truth).argmax()))
        document = walk.publish(scores, pages)
    return Classified(model, walk.folder, document, scores)


def _silent(stage: str, done: int, total: int) -> None:
    """Say nothing."""
