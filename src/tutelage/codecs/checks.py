"""What every codec asks of its parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tutelage.privacy.errors import RecipeError


def positive(**named: float) -> None:
    """Refuse what is not a finite number > 0."""
    for name, value in named.items():
        if isinstance(value, bool) or not (isinstance(value, (int, float, np.number)) and 0 < value < math.inf):
            raise RecipeError(f"`{name}` must be a finite number > 0. Got {value!r} instead.")


def not_negative(**named: float) -> None:
    """Refuse what is not a finite number ≥ 0."""
    for name, value in named.items():
        if isinstance(value, bool) or not (isinstance(value, (int, float, np.number)) and 0 <= value < math.inf):
            raise RecipeError(f"`{name}` must be a finite number ≥ 0. Got {value!r} instead.")


def whole(**named: int) -> None:
    """Refuse what is not a whole number ≥ 1."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {value!r} instead.")


def share(**named: float) -> None:
    """Refuse what does not lie in (0, 1]."""
    for name, value in named.items():
        if isinstance(value, bool) or not (isinstance(value, (int, float, np.number)) and 0 < value <= 1):
            raise RecipeError(f"`{name}` must lie in (0, 1]. Got {value!r} instead.")


def checked_folds(folds: int, masks: int) -> None:
    """Refuse a division of masks into one part, or into more parts than there are masks; 0 is none."""
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 0 or folds == 1 or folds > masks:
        raise RecipeError(f"`folds` must be 0, or from 2 to the {masks} masks. Got {folds!r} instead.")


def sizes(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Give the shape of a mask as plain whole numbers."""
    if not isinstance(shape, (tuple, list)) or not shape:
        raise RecipeError(f"`{name}` must be a tuple of whole numbers ≥ 1. Got {shape!r} instead.")
    for size in shape:
        whole(**{name: size})
    return tuple(int(size) for size in shape)


def settle(codec: object, **values: float | None) -> None:
    """Keep checked numbers in a frozen codec as Python's own: numpy's print otherwise, and the print is the codec's name."""
    for name, value in values.items():
        object.__setattr__(codec, name, value)
