"""Teachers that are networks with classes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tutelage.nets.inputs import as_inputs
from tutelage.nets.networks import ConvNet, Factory, Perceptron
from tutelage.nets.training import Training
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.sealed import Sealed
from tutelage.teachers.engines import EngineName
from tutelage.teachers.ensemble import Progress
from tutelage.teachers.networked import Networked

if TYPE_CHECKING:
    from tutelage.data.dataset import Private

_WIDTHS = (16, 32, 64)  # of the default network, as far as an image can be halved


@final
class Classifier(Networked):
    """Train one network per shard and let all of them vote; what they vote is sealed.

    Without a network, one for the data's shape is taken, with as many outputs as `classes`. The labels are not asked how many
    classes there are: one private record could then change every teacher, where a unit may change one.
    """

    def __init__(
        self,
        network: Factory | None = None,
        *,
        classes: int = 10,
        training: Training | None = None,
        engine: EngineName = "auto",
        device: str = "auto",
        chunk: int | None = None,
        seed: int = 0,
        checkpoint: str | Path | None = None,
    ) -> None:
        if not (isinstance(classes, int) and classes >= 2):
            raise RecipeError(f"`classes` must be a whole number ≥ 2. Got {classes!r} instead.")
        # A network of one's own knows better, or nobody does: the number here may be the one that was not given.
        self.classes = classes if network is None else getattr(network, "classes", None)
        given: dict[str, Any] = {"device": device, "chunk": chunk, "seed": seed, "checkpoint": checkpoint}
        super().__init__(network, training=training, engine=engine, **given)

    def usual(self) -> Training:
        """Train as digits are trained."""
        return Training()

    def fitting(self, private: Private) -> Factory:
        """Give a small convolutional network for images, and layers without convolutions for tables."""
        shape = tuple(as_inputs(private.inputs[:1]).shape[1:])
        if len(shape) == 1:
            return Perceptron(features=math.prod(shape), classes=self.classes)
        if len(shape) != 3:
            raise RecipeError(f"`network` must be given for records of shape {shape}. Got none instead.")
        depth = min(shape[1:]).bit_length() - 1  # how often the smaller side can be halved
        if not depth:
            raise RecipeError(f"`network` must be given for images of {shape[1:]} pixels. Got none instead.")
        return ConvNet(shape=(shape[0], shape[1], shape[2]), classes=self.classes, widths=_WIDTHS[:depth])

    def suited(self, private: Private) -> Training:
        """Leave distortions of images out where there are none, unless they were asked for."""
        if self.asked or as_inputs(private.inputs[:1]).ndim == 4:
            return self.training
        return replace(self.training, augmentation=None)

    def settings(self) -> dict[str, Any]:
        """Add the number of classes."""
        return {**super().settings(), "classes": self.classes}

    def vote(self, inputs: Any, *, progress: Progress | None = None) -> Sealed:
        """Give every teacher's label for every input, sealed: (teachers, queries)."""
        return Sealed(self.ensemble.predict(inputs, progress=progress))
