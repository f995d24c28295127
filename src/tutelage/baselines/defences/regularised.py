"""Weight decay, label smoothing and early stopping: no guarantee, less overfitting."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

from tutelage.baselines.defences.records import Records, model
from tutelage.data.dataset import Private, Public
from tutelage.distillation.lessons import Lesson, learn
from tutelage.nets.model import Model
from tutelage.nets.networks import Factory
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.ledger import Ledger


@final
@dataclass(frozen=True, kw_only=True)
class Regularised:
    """Train plainly, with `decay` of weights, `smoothing` of labels, and only the first `stop` of the steps.

    No guarantee. All zero and `stop` 1 is the undefended network. `stop` is a number that was chosen elsewhere: stopping by a
    look at private records would be one more look.
    """

    network: Factory
    classes: int
    decay: float = 5e-3
    smoothing: float = 0.2
    stop: float = 1.0
    lesson: Lesson = field(default_factory=Lesson)
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.smoothing < 1 and 0 < self.stop <= 1 and self.decay >= 0):
            raise RecipeError("`smoothing`, `stop` and `decay` must lie in [0, 1), (0, 1] and [0, ∞). Got others instead.")

    def fit(self, private: Private, *, ledger: Ledger, public: Public | None = None) -> Model:
        """Train on the private records."""
        records = Records.read(
            private, ledger, method="weight decay and label smoothing", classes=self.classes, device=self.device
        )
        soft = (1 - self.smoothing) * records.hot + self.smoothing / self.classes
        steps = max(1, round(self.stop * self.lesson.steps))
        lesson = replace(self.lesson, decay=self.decay, steps=steps)
        return model(
            self.network, learn(self.network, records.images, soft, lesson=lesson, seeds=(self.seed,)), device=self.device
        )
