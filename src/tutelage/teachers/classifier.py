"""Networks that learned from private shards and vote on labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tutelage.nets.networks import ConvNet, Factory
from tutelage.nets.training import Training
from tutelage.privacy.errors import DataError
from tutelage.privacy.sealed import Sealed
from tutelage.teachers.engines import EngineName
from tutelage.teachers.ensemble import Ensemble, Progress

if TYPE_CHECKING:
    from tutelage.data.dataset import Private
    from tutelage.privacy.units import Shards


@final
class Classifier:
    """Train one network per shard and let all of them vote; what they vote is sealed."""

    def __init__(
        self,
        network: Factory | None = None,
        *,
        training: Training | None = None,
        engine: EngineName = "auto",
        device: str = "auto",
        chunk: int | None = None,
        seed: int = 0,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.network, self.training = network or ConvNet(), training or Training()
        self.engine, self.device, self.chunk, self.seed, self.checkpoint = engine, device, chunk, seed, checkpoint
        self._ensemble: Ensemble | None = None

    def fit(
        self, private: Private, shards: Shards, *, checkpoint: str | Path | None = None, progress: Progress | None = None
    ) -> Classifier:
        """Train every teacher on its own shard and nothing else; `checkpoint`, here or before, is a folder under `private/`."""
        self._ensemble = Ensemble.fit(
            self.network,
            private.inputs,
            private.targets,
            shards.indices,
            training=self.training,
            seed=self.seed,
            device=self.device,
            engine=self.engine,
            chunk=self.chunk,
            checkpoint=checkpoint or self.checkpoint,
            progress=progress,
        )
        return self

    @property
    def ensemble(self) -> Ensemble:
        """Give the trained networks, which are private."""
        if self._ensemble is None:
            raise DataError("`teachers` must be fitted before they vote. Got none instead.")
        return self._ensemble

    def vote(self, inputs: Any, *, progress: Progress | None = None) -> Sealed:
        """Give every teacher's label for every input, sealed: (teachers, queries)."""
        return Sealed(self.ensemble.predict(inputs, progress=progress))

    def save(self, path: str | Path) -> None:
        """Write all teachers to one safetensors file; it belongs under `private/`."""
        self.ensemble.save(path)

    def load(self, path: str | Path) -> Classifier:
        """Take up teachers that were saved before."""
        self._ensemble = Ensemble.load(path, factory=self.network, device=self.device)
        return self

    def __len__(self) -> int:
        return len(self.ensemble)
