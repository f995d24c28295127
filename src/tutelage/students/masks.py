"""A student of masks: learns decoded answers, bent with their images into many more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch

from tutelage.answers import Answers
from tutelage.data.accepted import taken
from tutelage.data.dataset import Public
from tutelage.nets.inputs import arranged, pick_device
from tutelage.nets.masks import MaskModel, looked_at
from tutelage.nets.networks import Factory
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import VOLUMES
from tutelage.students.stack import Look, Progress, check_pool, lessons, settled, starting, train_anew

TRAINING = Training(steps=600, batch=4, augmentation=VOLUMES)


@final
class MaskStudent:
    """Learn from masks as they were decoded, clipped to [0, 1]: as shares, so that a doubtful pixel is a doubtful label.

    A network that ends in finding nothing, though the masks' mean shows something, begins again from other weights.
    With a `window` it learns from windows of that size, cut side by side, and looks at larger inputs through such that overlap.
    `threshold` is from which share on a pixel belongs to the mask; or public data with masks, on which it is chosen.
    """

    def __init__(
        self,
        network: Factory | None = None,
        *,
        training: Training = TRAINING,
        threshold: float | Public = 0.5,
        window: tuple[int, ...] | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.network, self.training, self.threshold, self.window = network, training, threshold, window
        self.device, self.seed = device, seed

    def check(self, public: Public) -> None:
        """Refuse a pool that it could not learn from or look at: its answers are still to be paid for."""
        channels, *space = arranged(public.inputs[:1]).shape[1:]
        factory = self.network or UNet(shape=(channels, *looked_at(self.window, tuple(space))))
        check_pool(public, factory, (self.window,), self.threshold)

    def fit(self, public: Public, answers: Answers, *, progress: Progress | None = None) -> MaskModel:
        """Learn from one set of answers."""
        return self.fit_all(public, [answers], progress=progress)[0]

    def fit_all(self, public: Public, sets: Sequence[Answers], *, progress: Progress | None = None) -> list[MaskModel]:
        """Learn from several sets of answers about the same questions, a student each."""
        images, masks = lessons(public, sets, pick_device(self.device), self.window)
        factory = self.network or UNet(shape=tuple(images.shape[1:]))
        given: dict[str, Any] = {
            "threshold": starting(self.threshold), "window": self.window, "device": self.device, "accepted": taken(public)
        }  # fmt: skip
        look = Look(lambda state: MaskModel(factory, state, **given), public.inputs, sets[0].chosen)
        shapes, how = [answers.mean for answers in sets], {"training": self.training, "seed": self.seed}
        states = train_anew(factory, images, masks, shapes, look=look, **how, progress=progress)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return settled([MaskModel(factory, state, **given) for state in states], self.threshold)
