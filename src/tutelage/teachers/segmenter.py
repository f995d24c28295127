"""Networks that learned from private shards and say of every pixel how likely it is the object's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tutelage.nets.inputs import as_inputs
from tutelage.nets.networks import Factory
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import Warp
from tutelage.privacy.errors import DataError
from tutelage.privacy.sealed import Sealed
from tutelage.teachers.engines import EngineName
from tutelage.teachers.ensemble import Ensemble, Progress

if TYPE_CHECKING:
    from tutelage.data.dataset import Private
    from tutelage.privacy.units import Shards

GENTLE = Training(steps=1000, batch=8, augmentation=Warp(rotation=10, scale=0.1, shift=2, keep=0.1))


@final
class Segmenter:
    """Train one network per shard and let all of them draw masks; what they draw is sealed."""

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
        self.network, self.training = network, training or GENTLE
        self.engine, self.device, self.chunk, self.seed, self.checkpoint = engine, device, chunk, seed, checkpoint
        self._ensemble: Ensemble | None = None

    def fit(
        self, private: Private, shards: Shards, *, checkpoint: str | Path | None = None, progress: Progress | None = None
    ) -> Segmenter:
        """Train every teacher on its own shard and nothing else; `checkpoint`, here or before, is a folder under `private/`.

        Inputs are (records, channels, *space), targets masks (records, *space).
        """
        if self.network is None:
            self.network = UNet(shape=tuple(as_inputs(private.inputs[:1]).shape[1:]))
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
        """Give every teacher's probability of every pixel, sealed: (teachers, queries, *space) float16."""
        return Sealed(self.ensemble.probabilities(inputs, progress=progress))

    def save(self, path: str | Path) -> None:
        """Write all teachers to one safetensors file; it belongs under `private/`."""
        self.ensemble.save(path)

    def load(self, path: str | Path) -> Segmenter:
        """Take up teachers that were saved before."""
        self._ensemble = Ensemble.load(path, factory=self.network, device=self.device)
        return self

    def __len__(self) -> int:
        return len(self.ensemble)
