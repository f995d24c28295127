"""A toy task: which of several attributes a public record has. Teachers give yes or no to each; the mean is released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tests.tasks.toy.reading import READING

from tutelage.privacy.bounds import Binary
from tutelage.privacy.queries import Query
from tutelage.tasks.scores import Score


@dataclass(frozen=True)
class Attributes:
    """The codec: yes or no to each attribute."""

    task: ClassVar[str] = "toy"
    count: int

    @property
    def bound(self) -> Binary:
        return Binary(self.count)

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        return np.asarray(predictions, dtype=np.float64)

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(codes)


class Toy:
    """Ask about the first records, once."""

    name, asked, adaptive = "toy", "the first records", False

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    def check(self, **_: Any) -> None:
        pass

    def cleaned(self, private: Any) -> Any:
        return private

    def judged(self, test: Any) -> Any:
        return test

    def ask(self, oracle: Any, learning: Any) -> Any:
        return oracle.ask(Query.inputs(self.plan.public.inputs[: self.plan.queries]))

    def fit(self, answers: Any, learning: Any) -> Any:
        return learning.learner.fit(self.plan.public.unlabelled(), answers.values)

    def counts(self, answers: Any) -> dict[str, int]:
        return {"released": len(answers), "distinct": len(answers), "reinforced": 0}

    def scores(self, model: Any, answers: Any, test: Any, learning: Any) -> dict[str, float]:
        most = (np.mean(test.targets) > 0.5) == test.targets
        return {
            Score.STUDENT: float(np.mean(model.predict(test.inputs) == test.targets)),
            Score.PUBLIC_ONLY: float(np.mean(most)),
        }

    def publish(self, folder: Any, model: Any, answers: Any) -> None:
        np.savez(folder.release / READING.answers, values=answers.values)


opened = Toy
