"""Teachers that are networks which judge one region of an image at a time, and choose the object's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tutelage.nets.crops import CHANNELS, SIDE, SILHOUETTES, Crops, Cut, crops_of
from tutelage.nets.networks import ConvNet, Factory
from tutelage.nets.training import Training
from tutelage.privacy.sealed import Sealed
from tutelage.teachers import words
from tutelage.teachers.cleaning import numbers
from tutelage.teachers.engines import EngineName
from tutelage.teachers.ensemble import Progress
from tutelage.teachers.networked import Networked

if TYPE_CHECKING:
    from tutelage.data.dataset import Private
    from tutelage.privacy.units import Shards

USUAL = Training(steps=1600, batch=32, augmentation=SILHOUETTES)
_TOGETHER = 250  # networks of a stack: a number that no private record moves


@final
@dataclass(frozen=True)
class _Patient:
    """Cut images; one on which the cut fails is cut as a blank one. Every image is cut on its own, so that no other changes."""

    cut: Cut

    @property
    def shape(self) -> tuple[int, ...]:
        return self.cut.shape

    @property
    def regions(self) -> int:
        return self.cut.regions

    @property
    def share(self) -> float:
        return self.cut.share

    def seeing(self, inputs: Any) -> Any:
        try:
            return self.cut.seeing(inputs)
        except Exception:  # what it says may quote an image
            given = np.array(inputs)
        for image in given:
            try:
                self.cut.seeing(image[None])
            except Exception:
                image[...] = 0
        return self.cut.seeing(given)


@final
class RegionTeachers(Networked):
    """Train one small network per shard on regions, cut out and scaled; all of them choose a region of an image, or none.

    Inputs are images (records, channels, height, width), targets masks (records, height, width). `cut` divides images into
    regions, and must be the codec through which the teachers are asked (`codecs.regionvotes.RegionVotes`).
    """

    def __init__(
        self,
        cut: Cut,
        network: Factory | None = None,
        *,
        side: int = SIDE,
        training: Training | None = None,
        engine: EngineName = "auto",
        device: str = "auto",
        chunk: int | None = None,
        seed: int = 0,
        checkpoint: str | Path | None = None,
    ) -> None:
        given: dict[str, Any] = {
            "engine": engine,
            "device": device,
            "chunk": chunk or _TOGETHER,
            "seed": seed,
            "checkpoint": checkpoint,
        }
        super().__init__(network, training=training, **given)
        self.cut, self.side = cut, side

    def usual(self) -> Training:
        """Bend silhouettes far: what an animal's outline allows."""
        return USUAL

    def fitting(self, private: Private) -> Factory:
        """Give a small network of the crops' size."""
        return ConvNet(shape=(CHANNELS, self.side, self.side), classes=2)

    def material(self, private: Private, shards: Shards) -> tuple[Any, Any, Sequence[Any]]:
        """Cut all images once; every teacher is given the crops of its own. What is not finite in an image becomes 0."""
        inputs, targets = numbers(private.inputs), np.clip(numbers(private.targets), 0, 1)
        said = [(np.arange(len(inputs)), targets)]
        crops, [chosen] = crops_of(_Patient(self.cut), inputs, said, side=self.side, device=self.device)
        return crops.lessons((shard, chosen[shard]) for shard in shards.indices)

    def settings(self) -> dict[str, Any]:
        """Add how images are cut, and the size of a crop."""
        return {**super().settings(), "cut": words.plain(self.cut), "side": self.side}

    def vote(self, inputs: Any, *, progress: Progress | None = None) -> Sealed:
        """Give every teacher's choice, sealed: (teachers, queries) numbers of regions, the last of which is none.

        A number in place of a mask: a thousand teachers' masks of a large pool would not fit. `paint` gives masks.
        """
        crops, _ = crops_of(self.cut, inputs, side=self.side, device=self.device)
        return Sealed(self._chosen(crops, progress))

    def paint(self, inputs: Any, *, progress: Progress | None = None) -> Sealed:
        """Paint every teacher's choice, sealed: (teachers, queries, height, width) of true and false, for any other codec."""
        seen = self.cut.seeing(np.asarray(inputs))
        crops = Crops.of(seen.labels, self.cut.regions, side=self.side, device=self.device)
        return Sealed(seen.labels[None] == self._chosen(crops, progress)[:, :, None, None])  # none is no region's number

    def _chosen(self, crops: Crops, progress: Progress | None) -> np.ndarray:
        return crops.chosen(self.ensemble.shares(crops.pictures, label=1, progress=progress), self.cut.share)
