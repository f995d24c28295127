"""Networks that learned from private shards and vote on labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tutelage.nets.networks import ConvNet, Factory
from tutelage.nets.training import Training
from tutelage.privacy.sealed import Sealed
from tutelage.teachers.ensemble import Progress
from tutelage.teachers.networked import Networked

if TYPE_CHECKING:
    from tutelage.data.dataset import Private


@final
class Classifier(Networked):
    """Train one network per shard and let all of them vote; what they vote is sealed."""

    def usual(self) -> Training:
        """Train as digits are trained."""
        return Training()

    def fitting(self, private: Private) -> Factory:
        """Give the default for small grey images of ten classes."""
        return ConvNet()

    def vote(self, inputs: Any, *, progress: Progress | None = None) -> Sealed:
        """Give every teacher's label for every input, sealed: (teachers, queries)."""
        return Sealed(self.ensemble.predict(inputs, progress=progress))
