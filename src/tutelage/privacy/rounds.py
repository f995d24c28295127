"""Rounds that are priced once and charged before the first of them: what generators and linear students ask in.

A counter is written ahead in blocks: a crash wastes rounds and hides none. What a student needs to go on is kept as its
latest state, not as the stream of answers.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy import accounting
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import Event, Gaussian, Reserved, Sampled
from tutelage.privacy.files import reading, write_whole
from tutelage.privacy.mechanisms import NoisyMean, NoisySum
from tutelage.privacy.noise import drawn_member
from tutelage.privacy.queries import Query

if TYPE_CHECKING:
    from tutelage.privacy.curator import Curator

Array = npt.NDArray[Any]
_AHEAD = 64  # rounds that are counted before they are used


@final
class Rounds:
    """Ask queries of one template, each with fresh noise, for as long as rounds are left."""

    def __init__(
        self, curator: Curator, rounds: int, template: Query, *, population: int | None = None, delta: float | None = None
    ) -> None:
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
            raise RecipeError(f"`rounds` must be a whole number ≥ 1. Got {rounds!r} instead.")
        if not isinstance(curator.mechanism, (NoisyMean, NoisySum)):
            raise RecipeError(
                f"`mechanism` must be NoisyMean or NoisySum for rounds. Got {type(curator.mechanism).__name__} instead."
            )
        self._curator, self._mechanism, self._template, self.rounds = curator, curator.mechanism, template, rounds
        self.population = population
        event, count = self._event(delta)
        plan = json.dumps([curator.salted, template.manner, rounds, population, delta], sort_keys=True)
        self.name = hashlib.sha256(plan.encode()).hexdigest()
        if curator.ledger.begun(self.name) is None:
            curator.ledger.charge(event, count=count, reservation=self.name)
        self._begun = self._next = self._end = (
            0  # from the second to the third: the rounds that were counted as used for this conversation, and no other
        )

    def _event(self, delta: float | None) -> tuple[Event, int]:
        """Price all rounds together: as many Gaussian answers, or one pair (ε, δ) where a secret teacher is drawn."""
        once = self._mechanism.event()
        if self.population is None:
            if delta is not None:
                raise RecipeError(f"`delta` must stay open but where a teacher is drawn. Got {delta!r} instead.")
            return once, self.rounds
        if not (isinstance(self.population, int) and self.population >= 2):
            raise RecipeError(f"`population` must be a whole number ≥ 2. Got {self.population!r} instead.")
        if not (isinstance(self._mechanism, NoisyMean) and self._mechanism.teachers == 1):
            raise RecipeError("`mechanism` must be a NoisyMean of one teacher where one is drawn. Got another instead.")
        return reserved(once, self.rounds, self.population, self._curator.ledger.budget.delta if delta is None else delta), 1

    @property
    def left(self) -> int:
        """Count the rounds that may still be asked."""
        if self._next == self._end:  # others may have used some: the ledger knows
            self._begun = self._curator.ledger.begun(self.name) or 0
        return self._end - self._next + self.rounds - self._begun

    def ask(self, query: Query) -> Array:
        """Give the noisy answer of one round: a code that is not decoded yet, or a sum. It is never given again."""
        if query.manner != self._template.manner:
            raise RecipeError("`query` must have the kind, the content and the shapes of the template. Got another instead.")
        if self._next == self._end:  # on disk before the first of them reads anything, and nobody else's
            self._next, self._end = self._curator.ledger.advance(self.name, rounds=self.rounds, ahead=_AHEAD)
            self._begun = self._end
        self._next += 1
        member = None if self.population is None else drawn_member(self.population)
        return self._curator.once(query, member)

    def save(self, state: Mapping[str, npt.ArrayLike]) -> None:
        """Keep what is needed to go on after a crash. It replaces what was kept before."""
        content = io.BytesIO()
        arrays: dict[str, Any] = {name: np.asarray(array) for name, array in state.items()}
        np.savez(content, allow_pickle=False, **arrays)
        write_whole(self._place, content.getvalue())

    def state(self) -> dict[str, Array] | None:
        """Give what was saved last, or nothing."""
        if not self._place.exists():
            return None
        with reading(self._place, "state"), np.load(self._place, allow_pickle=False) as kept:
            return dict(kept)

    @property
    def _place(self) -> Any:
        if self._curator.private is None:
            raise RecipeError("`private` must be the curator's folder where a state is kept. Got None instead.")
        return self._curator.private / f"rounds-{self.name[:16]}.npz"


def reserved(once: Event, rounds: int, population: int, delta: float) -> Reserved:
    """Price rounds on one teacher out of `population`, drawn anew each time, as one pair (ε, δ)."""
    if not isinstance(once, Gaussian):
        raise RecipeError(f"`once` must be a Gaussian answer. Got {type(once).__name__} instead.")
    event = Sampled(once, 1 / population, "fixed", 1, population)
    epsilon = accounting.cost([(event, rounds)], delta).epsilon
    if not np.isfinite(epsilon):
        raise RecipeError("`rounds` must have enough noise to be priced. Got a price beyond every grid instead.")
    return Reserved(event, rounds, max(epsilon, 1e-12), delta)
