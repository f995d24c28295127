"""Networks that learned from private shards and say of every pixel how likely it is the object's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tutelage.nets.inputs import as_inputs
from tutelage.nets.networks import Factory
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import Warp
from tutelage.privacy.sealed import Sealed
from tutelage.teachers.ensemble import Progress
from tutelage.teachers.networked import Networked

if TYPE_CHECKING:
    from tutelage.data.dataset import Private

GENTLE = Training(steps=1000, batch=8, augmentation=Warp(rotation=10, scale=0.1, shift=2, keep=0.1))


@final
class Segmenter(Networked):
    """Train one network per shard and let all of them draw masks; what they draw is sealed.

    Inputs are (records, channels, *space), targets masks (records, *space).
    """

    def usual(self) -> Training:
        """Warp gently: what is right for all images."""
        return GENTLE

    def fitting(self, private: Private) -> Factory:
        """Give a U-Net of the images' size."""
        return UNet(shape=tuple(as_inputs(private.inputs[:1]).shape[1:]))

    def vote(self, inputs: Any, *, progress: Progress | None = None) -> Sealed:
        """Give every teacher's probability of every pixel, sealed: (teachers, queries, *space) float16."""
        return Sealed(self.ensemble.probabilities(inputs, progress=progress))
