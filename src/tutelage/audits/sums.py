"""The game on a sum over records: one place whose rows point one way, or another, in every form that a sum can have."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.audits.game import ALARM, Game, compare
from tutelage.privacy.accounting import Cost, cost
from tutelage.privacy.budget import Budget
from tutelage.privacy.curator import Curator
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import NoisySum
from tutelage.privacy.queries import Form, Query
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.sums import Block

Array = npt.NDArray[Any]
_LOUD = 10.0  # times what the bound lets through
_ENOUGH = 1e7  # ε of the ledger that only counts


def play_sum(mechanism: NoisySum, delta: float, *, answers: int = 1, releases: int = 2000, alarm: float = ALARM) -> Game:
    """Play against a sum that is released `answers` times, each with other noise: an attacker reads their mean.

    The sum has two coordinates in place of all: its noise and how far one place moves it are the same.
    """
    small = dataclasses.replace(
        mechanism, width=2, places=1 + mechanism.unit.teachers, groups=min(2, mechanism.groups), right=min(1, mechanism.right)
    )
    one, other = (_Given(small, side) for side in (0, 1))
    direction = one.sum() - other.sum()
    samples = [
        [sum(float((small.contribute(side.blocks()) * direction).sum()) for _ in range(answers)) for _ in range(releases)]
        for side in (one, other)
    ]
    epsilon, mu = compare(*samples, delta, alarm=alarm)
    return Game(epsilon, mu, _charged(small, one, answers, delta), releases, answers)


@final
class _Given:
    """Contribute one place's rows, as long as its bound and loud, along the first direction or the other."""

    key = "the game's"

    def __init__(self, mechanism: NoisySum, side: int) -> None:
        self.mechanism, self.side = mechanism, side

    def vector(self) -> Array:
        """Give the row of length `norm`: opposite ones where signs are free, else two that have nothing in common."""
        form, ends = self.mechanism.form, np.eye(2)
        if form == Form.GRAM or self.mechanism.nonnegative:
            return np.asarray(self.mechanism.norm * ends[self.side])
        return np.asarray(self.mechanism.norm * ends[0] * (1 - 2 * self.side))

    def sum(self) -> Array:
        """Give what the place adds to the sum."""
        vector, form = self.vector(), self.mechanism.form
        if form == Form.GRAM:
            added: Array = np.outer(vector, vector)
        else:
            added = vector[:, None] if form == Form.OUTER else vector
        if form == Form.GROUPED or (form == Form.GRAM and self.mechanism.groups > 1):
            return np.stack([added, *[np.zeros_like(added)] * (self.mechanism.groups - 1)])
        return added

    def blocks(self) -> Iterator[Block]:
        """Give one block of one row per place that the unit reaches."""
        form, reach = self.mechanism.form, self.mechanism.unit.teachers
        left = np.repeat(_LOUD * self.vector()[None], reach, axis=0)
        groups = Sealed(np.zeros(reach, dtype=np.int64)) if self.mechanism.groups > 1 else None
        right = Sealed(np.ones((reach, 1))) if form == Form.OUTER else None
        yield Block(Sealed(np.arange(reach)), Sealed(left), groups, right)

    def contributions(self, query: Query) -> Iterator[Block]:
        """Answer any query with the same rows."""
        return self.blocks()


def _charged(mechanism: NoisySum, given: _Given, answers: int, delta: float) -> Cost:
    budget = Budget(_ENOUGH, delta, mechanism.unit, mechanism.adjacency)
    with tempfile.TemporaryDirectory() as place, Ledger(Path(place) / "ledger.sqlite", budget) as ledger:
        curator = Curator(given, None, mechanism, ledger)  # type: ignore[arg-type]
        for number in range(answers):
            curator.ask(Query.statistic(mechanism.form, {"answer": number}))
        return cost(ledger.totals(), delta)
