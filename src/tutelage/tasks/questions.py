"""Which public records are asked about: chosen by public criteria, and checked before anything is charged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.privacy.errors import RecipeError
from tutelage.telling import Progress, silent, telling

Array = npt.NDArray[Any]
Questions = Callable[[Public, int], Array]  # (unlabelled pool, how many) to indices


@runtime_checkable
class Curious(Protocol):
    """Chooses the first round's questions like any other, and later ones by what the student does not know yet."""

    def __call__(self, public: Public, count: int) -> Array:
        """Give the first questions."""

    def again(self, public: Public, count: int, *, shares: Array, asked: Array) -> Array:
        """Give later ones: `shares` (records, classes) is what the student predicts, `asked` (records,) marks the old ones."""


def check_count(queries: int, public: Public) -> None:
    """Refuse more questions than there are records."""
    if not (isinstance(queries, int) and 1 <= queries <= len(public)):
        raise RecipeError(f"`queries` must be between 1 and the public pool's {len(public)} records. Got {queries!r} instead.")


def chosen_questions(public: Public, queries: int, questions: Questions | None, say: Progress = silent) -> Array:
    """Choose what to ask about by public criteria alone: without any, the first of the pool."""
    if questions is None:
        return np.arange(queries)
    return checked(telling(questions, say, "choosing questions")(public.unlabelled(), queries), queries, public)


def checked(chosen: Any, most: int, public: Public, asked: Array | None = None) -> Array:
    """Refuse anything but different records of the pool, none asked before, and no more than planned."""
    chosen = np.asarray(chosen)
    whole = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer) and 1 <= len(chosen) <= most
    if not whole or chosen.min() < 0 or chosen.max() >= len(public) or len(np.unique(chosen)) != len(chosen):
        raise RecipeError(f"`questions` must choose 1 to {most} different records of the public pool. Got others instead.")
    if asked is not None and asked[chosen].any():
        raise RecipeError("`questions` must choose records that were not asked before. Got some that were instead.")
    return chosen
