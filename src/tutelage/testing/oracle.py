"""An oracle in memory: answers are a function of the query. No ledger, no export, no guarantee."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import BudgetExceeded
from tutelage.privacy.mechanisms import SmoothNumber
from tutelage.privacy.oracle import Conversation, Released
from tutelage.privacy.queries import Query

Array = npt.NDArray[Any]


@final
class MemoryOracle:
    """Answer with what `answer` gives for a query: codes (answers, ...), noise and all. `room` limits new answers."""

    run, batch = "memory", None

    def __init__(self, answer: Callable[[Query], Array], codec: Any, *, noise: float | None = None, room: int = 1 << 30) -> None:
        self.answer, self.codec, self.noise, self.room = answer, codec, noise, room
        self.queries: list[Query] = []  # those that were asked for the first time
        self._kept: dict[str, Array] = {}

    def ask(self, query: Query, *, student_probs: npt.ArrayLike | None = None) -> Released:
        """Give answers, the first ones again where a query comes again."""
        keys = self._keys(query, student_probs)
        fresh = set(keys) - set(self._kept)
        if len(fresh) > self.room:
            raise BudgetExceeded(f"`room` must hold {len(fresh)} more answers. Got room for {self.room} instead.")
        if fresh:
            self.room -= len(fresh)
            self.queries.append(query)
            self._kept |= {key: code for key, code in zip(keys, self.answer(query), strict=True) if key in fresh}
        return Released(np.stack([self._kept[key] for key in keys]), tuple(keys), lambda codes: self.decode(codes, query.rows))

    def known(self, query: Query, *, student_probs: npt.ArrayLike | None = None) -> bool:
        """Tell whether all of this was answered before."""
        return set(self._keys(query, student_probs)) <= set(self._kept)

    def _keys(self, query: Query, student_probs: npt.ArrayLike | None) -> list[str]:
        return query.keys("memory", None if student_probs is None else np.asarray(student_probs, dtype=np.float64))

    def remaining(self, wanted: int | None = None, *, beside: SmoothNumber | None = None) -> int:
        """Tell how many more new answers there is room for."""
        return self.room if wanted is None else min(self.room, wanted)

    def decode(self, codes: Array, inputs: npt.ArrayLike) -> Array:
        """Turn codes into answers."""
        asked = np.asarray(inputs)
        codec = self.codec.seeing(asked) if hasattr(self.codec, "seeing") else self.codec
        return np.asarray(codec.decode(codes, asked) if len(codes) else codes)

    def reserve(self, rounds: int, template: Query) -> Conversation:
        """Take room for all rounds of a conversation."""
        if rounds > self.room:
            raise BudgetExceeded(f"`rounds` must be at most {self.room}. Got {rounds} instead.")
        self.room -= rounds
        return _Rounds(self.answer, rounds)

    def data_dependent_epsilon(self) -> None:
        """There is no price."""

    def sanitised(self, release: SmoothNumber, *, order: float) -> None:
        """There is no price."""


class _Rounds:
    """A conversation in memory."""

    def __init__(self, answer: Callable[[Query], Array], left: int) -> None:
        self.answer, self.left = answer, left
        self._state: dict[str, Array] | None = None

    def ask(self, query: Query) -> Array:
        """Answer one round."""
        if self.left < 1:
            raise BudgetExceeded("`rounds` must hold one more. Got none left instead.")
        self.left -= 1
        return np.asarray(self.answer(query))[0]

    def save(self, state: Mapping[str, npt.ArrayLike]) -> None:
        """Keep a state."""
        self._state = {name: np.array(array) for name, array in state.items()}

    def state(self) -> dict[str, Array] | None:
        """Give the last state."""
        return self._state
