"""Who answers: one curator on one machine, a coordinator of hospitals, or thirty lines in memory for a test.

A student, a task or a generator sees this protocol alone: no ledger to write into, no mechanism, no teachers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import numpy.typing as npt

from tutelage.privacy.mechanisms import SmoothNumber
from tutelage.privacy.queries import Query
from tutelage.privacy.sealed import Sealed

Array = npt.NDArray[Any]
UNANSWERED = -1


@final
@dataclass(frozen=True, eq=False, repr=False)
class Released:
    """Hold what was released for one query: codes, and what the codec makes of them. All of it is public."""

    codes: Array  # (answers, ...)
    keys: tuple[str, ...]
    decode: Callable[[Array], Array] | None = None

    @cached_property
    def values(self) -> Array:
        """Give the decoded answers. Where a screen kept silent, a label is -1 and a mask not a number."""
        return self.codes if self.decode is None else np.asarray(self.decode(self.codes))

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"Released({len(self)} answers of shape {self.codes.shape[1:]})"


class Conversation(Protocol):
    """Rounds that were priced together and charged before the first of them. Stopping early gives nothing back."""

    @property
    def left(self) -> int:
        """Count the rounds that may still be asked."""

    def ask(self, query: Query) -> Array:
        """Give the noisy answer of one round: a sum, or a code to be decoded. Every round has noise of its own."""

    def save(self, state: Mapping[str, npt.ArrayLike]) -> None:
        """Keep what is needed to go on after a crash. It follows from released answers, and replaces the last one."""

    def state(self) -> dict[str, Array] | None:
        """Give what was saved last, or nothing."""


@runtime_checkable
class Oracle(Protocol):
    """Answer public queries with noisy, bounded, counted answers."""

    codec: Any

    @property
    def run(self) -> str:
        """Name the run that asks, as its ledger does."""

    @property
    def noise(self) -> float | None:
        """Give the standard deviation on every coordinate of an answer. None where only a winner is released."""

    @property
    def batch(self) -> int | None:
        """Say how many inputs to ask about at once. None: as the caller likes."""

    def ask(self, query: Query, *, student_probs: npt.ArrayLike | None = None) -> Released:
        """Answer. What was answered before is given again, free."""

    def known(self, query: Query, *, student_probs: npt.ArrayLike | None = None) -> bool:
        """Tell whether all of this was answered before, so that asking again is free."""

    def remaining(self, wanted: int | None = None, *, beside: SmoothNumber | None = None) -> int:
        """Tell how many more new answers the budget surely holds, `wanted` at most, beside one smooth release."""

    def decode(self, codes: Array, inputs: npt.ArrayLike) -> Array:
        """Turn released codes into answers."""

    def reserve(self, rounds: int, template: Query) -> Conversation:
        """Charge all rounds of a conversation before its first. The same reservation again goes on where it stopped."""

    def data_dependent_epsilon(self) -> Sealed | None:
        """Give the data-dependent price, sealed, where there is one."""

    def sanitised(self, release: SmoothNumber, *, order: float) -> float | None:
        """Publish the data-dependent price through a release that is paid for. None where that cannot be had."""
