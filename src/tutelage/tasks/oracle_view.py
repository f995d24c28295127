"""What a task sees of an oracle: queries go in, released answers come out. No ledger, no mechanism, no teachers."""

from __future__ import annotations

import math
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage.planning import Sanitise
from tutelage.privacy import accounting
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import Error
from tutelage.privacy.events import SmoothRelease
from tutelage.privacy.ledger import Entry
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.queries import Query, Released
from tutelage.runs import RunFolder

Array = npt.NDArray[Any]


class Oracle(Protocol):
    """Answers queries with released values: a curator on this machine, a coordinator of hospitals, or a test's own."""

    codec: Any
    run: str  # names the run whose answers these are
    noise: float | None  # deviation on every coordinate of a code; None where answers are no noisy codes
    batch: int | None  # how many queries to ask at once; None leaves it to the task

    def ask(self, query: Query) -> Released:
        """Give released answers. The same query again is free."""

    def known(self, query: Query) -> bool:
        """Tell whether all of a query was answered before."""

    def remaining(self, query: Query) -> int:
        """Tell how many of these queries fit the budget if none was answered before."""


@final
class CuratorView:
    """Show a curator to a task."""

    def __init__(self, curator: Curator, sanitise: Sanitise | None = None) -> None:
        self._curator, self._sanitise = curator, sanitise
        self.codec, self.batch = curator.codec, None

    @property
    def run(self) -> str:
        """Name the run in its ledger."""
        return self._curator.ledger.run

    @property
    def noise(self) -> float | None:
        """Give the deviation on every coordinate of a mean; what a selection left out was not measured."""
        mechanism = self._curator.mechanism
        if not isinstance(mechanism, NoisyMean) or self._curator.selection is not None:
            return None
        return mechanism.sigma / mechanism.teachers

    def ask(self, query: Query) -> Released:
        """Charge, read, keep, give."""
        inputs, baseline = _asked(query)
        codes = self._curator.codes(inputs, baseline=baseline)
        return Released(codes, self._curator.decode(codes, inputs))

    def known(self, query: Query) -> bool:
        """Tell whether asking is free."""
        inputs, baseline = _asked(query)
        return self._curator.known(inputs, baseline=baseline)

    def remaining(self, query: Query) -> int:
        """Tell how many of these queries fit, beside the sanitised ε where that is planned."""
        curator = self._curator
        room, totals = min(curator.affordable(), len(query)), curator.ledger.totals()
        if self._sanitise is None or any(isinstance(event, SmoothRelease) for event, _ in totals):
            return room
        steps = [step.event() for step in (curator.screen, curator.mechanism) if step is not None]
        budget, last = curator.ledger.budget, (self._sanitise.release().event(), 1)
        while room and not accounting.admits([*totals, *((step, room) for step in steps), last], budget.epsilon, budget.delta):
            room -= 1
        return room

    def account(self, folder: RunFolder) -> float | None:
        """Leave the data-dependent ε of votes sealed under `private/`, and give its sanitised form where that was planned."""
        if isinstance(self._curator.mechanism, NoisyMean):
            return None  # a mean's price does not depend on the data
        sanitised, ledger = self._sanitised(), self._curator.ledger
        if ledger.budget.unit.teachers == 1 and _answered(ledger.entries()):
            orders, plain = accounting.ORDERS, ledger.spent().epsilon
            # Votes that disagree can make this reading the dearer one: what holds for all votes holds for these, so the lesser
            # is taken. Which of the two it was depends on the votes, and stays sealed with the figure.
            try:
                raw = self._curator.data_dependent_rdp(orders).map(
                    lambda rdp: min(float(accounting.rdp_to_epsilon(rdp, orders, ledger.budget.delta)[0]), plain)
                )
            except Error as error:  # a figure that never leaves must not decide whether there is a release
                folder.write_inside(folder.failed_controls, f"{error}\n")
            else:
                raw.store(folder.private / "data_dependent_epsilon.npy")
        return sanitised

    def _sanitised(self) -> float | None:
        """Publish the data-dependent ε where that was planned and is still affordable (a crash may have used up its room).

        It prices the whole ledger as one plan: where another run, or a second plan, was charged, it is left out.
        """
        ledger = self._curator.ledger
        rows = [row for row in ledger.entries() if row.kind in ("charge", "release")]
        if self._sanitise is None or not _answered(rows) or not ledger.own():
            return None
        release = self._sanitise.release()
        charge, after = rows[-2:]
        kept = after.kind == "release" and charge.body.get("event", {}).get("kind") == "SmoothRelease"
        if not kept and not ledger.affordable(release.event()):
            return None
        return self._curator.sanitised_epsilon(release, order=self._sanitise.order)


def _asked(query: Query) -> tuple[Array, Array | None]:
    """Give rows for the curator. A state is one row, however many arrays it has."""
    if query.kind == "inputs":
        return query.arrays["inputs"], query.arrays.get("student_probs")
    parts = [np.asarray(part) for part in query.arrays.values()]
    whole = parts[0] if len(parts) == 1 else np.concatenate([part.reshape(math.prod(part.shape)) for part in parts])
    return whole[None], None


def _answered(rows: list[Entry]) -> bool:
    """Tell whether the ledger holds a release at all: kills may have used up a whole budget before one."""
    return any(row.kind == "release" for row in rows)
