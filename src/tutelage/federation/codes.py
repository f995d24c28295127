"""What hospitals contribute: a vote, a code of a mask, or a public function of their records. Named by content keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tutelage.codecs.dct import DCT
from tutelage.codecs.votes import Votes
from tutelage.federation.envelope import key_of
from tutelage.privacy.bounds import Ball
from tutelage.recipes.sections import Count, Positive, Section

Array = npt.NDArray[Any]


@final
class VoteCodec(Section):
    """A class for every public input; the winner is released."""

    kind: Literal["votes"]
    classes: Annotated[int, Field(ge=2, le=65535)]

    @property
    def key(self) -> str:
        """Give the content key by which a policy allows this codec."""
        return key_of({"codec": self.model_dump()})

    @property
    def task(self) -> str:
        """Give the content key of what is done with such contributions."""
        return key_of({"task": "labels", "mechanism": "gnmax"})

    @property
    def dimension(self) -> int:
        """Count the numbers of one contribution."""
        return self.classes

    def build(self) -> Votes:
        """Build the codec."""
        return Votes(self.classes)

    def meaning(self) -> str:
        """Say what one contribution is."""
        return "for every public input the class that each local model votes for"


@final
class MaskCodec(Section):
    """The lowest frequencies of a mask of every public image; the noisy mean code is released."""

    kind: Literal["dct"]
    shape: tuple[Count, ...]
    kept: Count
    norm: Positive

    @property
    def key(self) -> str:
        """Give the content key by which a policy allows this codec."""
        return key_of({"codec": self.model_dump(mode="json")})

    @property
    def task(self) -> str:
        """Give the content key of what is done with such contributions."""
        return key_of({"task": "masks", "mechanism": "mean"})

    @property
    def dimension(self) -> int:
        """Count the numbers of one contribution."""
        return self.kept

    def build(self) -> DCT:
        """Build the codec."""
        return DCT(tuple(self.shape), self.kept, self.norm)

    def meaning(self) -> str:
        """Say what one contribution is."""
        return f"for every public image the {self.kept:,} lowest frequencies of each local model's mask, clipped to {self.norm:g}"


@final
class MomentCodec(Section):
    """How many records of each class there are, and their sum, place by place; the noisy total is released.

    A place is what teachers are elsewhere: patients are divided among them by a hash, and what a place adds is clipped jointly.
    """

    kind: Literal["class-moments"]
    classes: Annotated[int, Field(ge=2, le=65535)]
    width: Count  # numbers of a record
    norm: Positive

    @property
    def key(self) -> str:
        """Give the content key by which a policy allows this codec."""
        return key_of({"codec": self.model_dump()})

    @property
    def task(self) -> str:
        """Give the content key of what is done with such contributions."""
        return key_of({"task": "statistic", "mechanism": "mean"})

    @property
    def dimension(self) -> int:
        """Count the numbers of one contribution."""
        return self.classes * (self.width + 1)

    def build(self) -> ClassMoments:
        """Build the codec."""
        return ClassMoments(self.classes, self.width, self.norm)

    def meaning(self) -> str:
        """Say what one contribution is."""
        return f"for every place the count and the sum of its records of each class, clipped to {self.norm:g} together"


Codec = Annotated[VoteCodec | MaskCodec | MomentCodec, Field(discriminator="kind")]


@final
@dataclass(frozen=True)
class ClassMoments:
    """Bound what a place adds, and read released moments."""

    classes: int
    width: int
    norm: float

    @property
    def bound(self) -> Ball:
        """Short vectors."""
        return Ball(self.classes * (self.width + 1), self.norm)

    def encode(self, predictions: Array) -> Array:
        """Take moments (places, queries, dimension) as they are."""
        return np.asarray(predictions, dtype=np.float64)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Give (queries, classes, 1 + width): how many records, and their sum, per place of the study."""
        return np.asarray(codes).reshape(len(codes), self.classes, 1 + self.width)


def class_moments(inputs: Array, targets: Array, parts: Any, codec: ClassMoments) -> Array:
    """Give every place's count and sum for each class: (places, 1, dimension). No record moves another place's row."""
    rows = np.asarray(inputs, dtype=np.float64).reshape(len(inputs), -1)
    found = np.zeros((len(parts), codec.classes, 1 + codec.width))
    for place, indices in enumerate(parts):
        for index in indices:
            found[place, targets[index], 0] += 1
            found[place, targets[index], 1:] += rows[index]
    return found.reshape(len(parts), 1, -1)
