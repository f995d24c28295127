"""Queries and what is released for them: what tasks and students exchange with an oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy.typing as npt

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True, eq=False)
class Query:
    """Hold what is asked: public inputs, or a state of a student. All of it is public."""

    kind: str  # "inputs" or "state"
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def inputs(cls, inputs: Array, *, student_probs: Array | None = None) -> Self:
        """Ask about public inputs; `student_probs` (queries, classes) is what the student predicts, where a screen takes it."""
        beside = {} if student_probs is None else {"student_probs": student_probs}
        return cls("inputs", {"inputs": inputs, **beside})

    @classmethod
    def state(cls, **arrays: Array) -> Self:
        """Ask which way a state should move."""
        return cls("state", arrays)

    def __len__(self) -> int:
        return len(self.arrays["inputs"]) if self.kind == "inputs" else 1


@final
@dataclass(frozen=True, eq=False)
class Released:
    """Hold what an oracle released: codes with noise, and what they decode to."""

    codes: Array
    values: Array
