"""Small runs on the digits that come with scikit-learn: a generator, and a classifier without a public pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tutelage.data.digits import digits
from tutelage.features.random_networks import RandomNetworks
from tutelage.privacy.budget import Budget
from tutelage.runs import RunFolder
from tutelage.students.linear_rounds import LinearRounds
from tutelage.students.matching import Matching
from tutelage.tasks.statistics.classifier import classify
from tutelage.tasks.statistics.images import OneShot, generate

#: 1,000 records are few: at ε = 1 their sums drown in noise.
BUDGET = Budget(8.0, 1e-5)
TITLES = {
    "images": "1,000 private digits, one generator of images and a linear model that labels them",
    "nopool": "1,000 private digits, a linear model in 60 noisy rounds, no public images",
}


def demonstrate(only: str, out: Path, pages: Callable[[RunFolder], object], progress: Any) -> Any:
    """Carry out one of the small runs, or go on with it."""
    private, _, test = digits()
    given: dict[str, Any] = {
        "classes": 10, "budget": BUDGET, "out": out, "test": test, "resume": True, "pages": pages, "progress": progress,
        "tuned_on": "nothing: settings of the rule", "device": "cpu",
    }  # fmt: skip
    labeller = LinearRounds(drawn=2000)
    if only == "nopool":
        return classify(private, student=labeller, **given)
    how = OneShot(
        networks=RandomNetworks(20, 16), matching=Matching(steps=400, per=20, drawn=4, learning_rate=2e-3), labeller=labeller,
        sums=0.5, labels=0.5, width=12, judged=400,
    )  # fmt: skip
    return generate(private, how=how, **given)
