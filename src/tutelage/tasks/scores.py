"""Names of scores: the keys of scores.json and of the figures under `private/`. Their values are a file format."""

from __future__ import annotations

from enum import StrEnum
from typing import final

CONTROL, STAGE = "control: ", "stage: "


@final
class Score(StrEnum):
    """Name a score. Older releases hold these values: they do not change."""

    STUDENT = "private student"
    PUBLIC_ONLY = "control: public only, no answers (ε = 0)"

    # labels
    RELEASED_LABELS = "released labels"
    REINFORCED_LABELS = "reinforced labels"
    TRUE_LABELS = "control: same questions, true labels"
    ALL_LABELS = "control: non-private, all private labels"
    PLURALITY = "control: plurality of teachers, no noise"
    ONE_TEACHER = "control: one teacher"
    BOOSTED = "control: non-private, boosted trees on all private records"

    # states
    LINEAR = "the linear model that named the pool"
    TRUE_POOL = "control: the same heir, true labels of the pool"
    POOL_LABELS = "names that the heir was told"
    EXACT_CORRECTIONS = "control: the same corrections, no noise"
    ALL_LABELS_NETWORK = "control: non-private, the heir's network on all private labels"

    # masks
    RELEASED_MASKS = "released masks"
    MEAN_SHAPE = "control: mean shape, constant"
    MEAN_SHAPE_LABEL = "control: mean shape, as the student's label"
    PUBLIC_MASKS = "control: public masks alone (ε = 0)"
    ALL_MASKS = "control: non-private, all private masks"
    TEACHER = "stage: teacher"
    ENCODED_TEACHER = "stage: encoded teacher"
    ENSEMBLE = "stage: ensemble, no noise"

    @property
    def plain(self) -> str:
        """Give the name without its prefix."""
        return self.value.removeprefix(CONTROL).removeprefix(STAGE)
