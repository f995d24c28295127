"""Teachers that are networks with one output per pixel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tutelage.data.mapped import HELD
from tutelage.nets.inputs import as_inputs
from tutelage.nets.masks import looked_at, windows
from tutelage.nets.networks import Factory
from tutelage.nets.pieces import Pieces
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import Warp
from tutelage.privacy.sealed import Sealed
from tutelage.teachers.ensemble import Progress
from tutelage.teachers.networked import Networked

if TYPE_CHECKING:
    from tutelage.data.dataset import Private
    from tutelage.privacy.units import Shards

AVERAGED = 1 << 27  # numbers of windows that are averaged at once, 512 MiB: of large volumes some teachers at a time
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
        return UNet(shape=(channels, *looked_at(self.window, tuple(space))))

    def settings(self) -> dict[str, Any]:
        """Add the window."""
        return {**super().settings(), "window": self.window}

    def material(self, private: Private, shards: Shards) -> tuple[Any, Any, Sequence[Any]]:
        """See every record of a shard through windows, side by side; the last ones end where the record ends.

        They are read when a batch asks for them: scans may be larger than memory, also where they are seen as a whole.
        """
        if self.window is None and private.inputs.nbytes <= HELD:
            return super().material(private, shards)
        space = as_inputs(private.inputs[:1]).shape[2:]
        places = list(windows(space, self.window, overlap=False))
        mine = [(np.asarray(rows)[:, None] * len(places) + np.arange(len(places))).reshape(-1) for rows in shards.indices]
        return Pieces.inputs(private.inputs, places), Pieces.masks(private.targets, places), mine

    def vote(self, inputs: Any, *, progress: Progress | None = None) -> Sealed:
        """Give every teacher's probability of every pixel, sealed: (teachers, queries, *space) float16.

        Where windows overlap, by half, what they say is averaged: in single precision, some teachers at a time.
        """
        if self.window is None:
            return Sealed(self.ensemble.probabilities(inputs, progress=progress))
        queries = as_inputs(inputs).numpy()
        space = queries.shape[2:]
        places, step = list(windows(space, self.window)), max(1, AVERAGED // max(1, len(queries) * math.prod(space)))
        votes = np.empty((len(self), len(queries), *space), np.float16)
        done, work = 0, len(self) * len(places)
        for first in range(0, len(self), step):
            some = self.ensemble.some(slice(first, first + step))
            total, seen = np.zeros((len(some), *votes.shape[1:]), np.float32), np.zeros(space, np.float32)
            for place in places:
                part = (slice(None), slice(None), *place)
                total[part] += some.probabilities(queries[part], dtype=np.float32, progress=_after(done, work, progress))
                seen[place] += 1
                done += len(some)
            total /= seen  # in place: a second array of this size would not be half a gigabyte
            votes[first : first + step] = total
        return Sealed(votes)


def _after(done: int, work: int, progress: Progress | None) -> Progress | None:
    """Count a piece of work behind what was done before: a bar that began again would say that all is done."""
    return None if progress is None else lambda more, _: progress(done + more, work)
