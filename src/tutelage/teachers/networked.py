"""Base of all teachers that are networks: one per shard, trained together, kept in one file."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tutelage.nets.networks import Factory, checked
from tutelage.nets.training import Training
from tutelage.privacy.errors import DataError
from tutelage.privacy.sealed import Sealed
from tutelage.teachers import words
from tutelage.teachers.engines import EngineName
from tutelage.teachers.ensemble import Ensemble, Progress

if TYPE_CHECKING:
    from tutelage.data.dataset import Private
    from tutelage.privacy.units import Shards


class Networked(ABC):
    """Hold settings of the training, and the trained networks."""

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
        self.network = None if network is None else checked(network)
        self.training, self.asked = training or self.usual(), training is not None
        self.engine, self.device, self.chunk, self.seed, self.checkpoint = engine, device, chunk, seed, checkpoint
        self._ensemble: Ensemble | None = None

    @abstractmethod
    def usual(self) -> Training:
        """Give the training that is used where none was given."""

    @abstractmethod
    def fitting(self, private: Private) -> Factory:
        """Give the network for this data where none was given."""

    def suited(self, private: Private) -> Training:
        """Give the training for data of this shape: as was asked for, or as usual."""
        return self.training

    @abstractmethod
    def vote(self, inputs: Any, *, progress: Progress | None = None) -> Sealed:
        """Give every teacher's prediction for every input, sealed."""

    def material(self, private: Private, shards: Shards) -> tuple[Any, Any, Sequence[Any]]:
        """Give inputs, targets, and which rows of them each teacher may read: one entry per shard, which may be empty."""
        return private.inputs, private.targets, shards.indices

    def fit(
        self, private: Private, shards: Shards, *, checkpoint: str | Path | None = None, progress: Progress | None = None
    ) -> Self:
        """Train every teacher on its own shard and nothing else; `checkpoint`, here or before, is a folder under `private/`."""
        network = self.network or self.fitting(private)
        inputs, targets, parts = self.material(private, shards)
        self._ensemble = Ensemble.fit(
            network,
            inputs,
            targets,
            parts,
            training=self.suited(private),
            seed=self.seed,
            device=self.device,
            engine=self.engine,
            chunk=self.chunk,
            checkpoint=checkpoint or self.checkpoint,
            progress=progress,
        )
        return self

    @property
    def key(self) -> str:
        """Describe class and settings, never data. Engine, device and chunk change no more than rounding and are left out."""
        return json.dumps({"teachers": type(self).__name__, **self.settings()}, sort_keys=True)

    def settings(self) -> dict[str, Any]:
        """Give all that decides what a teacher learns from its shard, as plain values."""
        chosen = "by the data's shape" if self.network is None else words.network(self.network)
        return {"network": chosen, "training": words.plain(self.training), "asked": self.asked, "seed": self.seed}

    @property
    def ensemble(self) -> Ensemble:
        """Give the trained networks, which are private."""
        if self._ensemble is None:
            raise DataError("`teachers` must be fitted before they vote. Got none instead.")
        return self._ensemble

    def save(self, path: str | Path) -> None:
        """Write all teachers to one safetensors file; it belongs under `private/`."""
        self.ensemble.save(path)

    def load(self, path: str | Path) -> Self:
        """Take up teachers that were saved before."""
        self._ensemble = Ensemble.load(path, factory=self.network, device=self.device)
        return self

    def __len__(self) -> int:
        return len(self.ensemble)
