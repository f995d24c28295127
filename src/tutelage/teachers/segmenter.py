"""Networks that learned from private shards and say of every pixel how likely it is the object's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tutelage.data.mapped import HELD
from tutelage.nets.inputs import as_inputs
from tutelage.nets.masks import windows
from tutelage.nets.networks import Factory
from tutelage.nets.pieces import Pieces
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import Warp
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.sealed import Sealed
from tutelage.teachers.ensemble import Progress
from tutelage.teachers.networked import Networked

if TYPE_CHECKING:
    from tutelage.data.dataset import Private
    from tutelage.privacy.units import Shards

GENTLE = Training(steps=1000, batch=8, augmentation=Warp(rotation=10, scale=0.1, shift=2, keep=0.1))


@final
class Segmenter(Networked):
    """Train one network per shard and let all of them draw masks; what they draw is sealed.

    Inputs are (records, channels, *space), targets masks (records, *space).
    """

    window: tuple[int, ...] | None = None

    def through(self, window: Sequence[int] | None) -> Segmenter:
        """Let teachers learn from windows of this size, and look at larger inputs through them; without one, at all of them."""
        self.window = None if window is None else tuple(window)
        return self

    def usual(self) -> Training:
        """Warp gently: what is right for all images."""
        return GENTLE

    def fitting(self, private: Private) -> Factory:
        """Give a U-Net of the images' size, or of the window's."""
        channels, *space = as_inputs(private.inputs[:1]).shape[1:]
        return UNet(shape=(channels, *self._seen(tuple(space))))

    def material(self, private: Private, shards: Shards) -> tuple[Any, Any, Sequence[Any]]:
        """See every record of a shard through windows, side by side; the last ones end where the record ends.

        They are read when a batch asks for them: scans may be larger than memory, also where they are seen as a whole.
        """
        if self.window is None and private.inputs.nbytes <= HELD:
            return super().material(private, shards)
        space = as_inputs(private.inputs[:1]).shape[2:]
        places = list(windows(space, self._seen(space), overlap=False))
        mine = [(np.asarray(rows)[:, None] * len(places) + np.arange(len(places))).reshape(-1) for rows in shards.indices]
        return Pieces.inputs(private.inputs, places), Pieces.masks(private.targets, places), mine

    def vote(self, inputs: Any, *, progress: Progress | None = None) -> Sealed:
        """Give every teacher's probability of every pixel, sealed: (teachers, queries, *space) float16.

        Where windows overlap, by half, what they say is averaged.
        """
        if self.window is None:
            return Sealed(self.ensemble.probabilities(inputs, progress=progress))
        queries = as_inputs(inputs).numpy()
        space = queries.shape[2:]
        total, seen = np.zeros((len(self), len(queries), *space), np.float32), np.zeros(space, np.float32)
        places = list(windows(space, self._seen(space)))
        for number, place in enumerate(places):
            part = (slice(None), slice(None), *place)
            tell = None if progress is None else _part(progress, number, len(places))
            total[part] += self.ensemble.probabilities(queries[part], dtype=np.float32, progress=tell)
            seen[place] += 1
        total /= seen
        return Sealed(total.astype(np.float16))

    def _seen(self, space: tuple[int, ...]) -> tuple[int, ...]:
        """Give the size of what is looked at in one go."""
        if self.window is None:
            return space
        if len(self.window) != len(space):
            raise RecipeError(f"`window` must have {len(space)} sizes, one per side. Got {self.window!r} instead.")
        return tuple(min(have, want) for have, want in zip(space, self.window, strict=True))


def _part(progress: Progress, number: int, parts: int) -> Progress:
    """Count one of several equal pieces of work as a part of all: a bar that began again would say that it was done."""
    return lambda done, total: progress(number * total + done, parts * total)
