"""The data-dependent price of votes: sealed under `private/`, and published only through a release that is paid for."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from tutelage.data.dataset import Public
from tutelage.planning import Aggregation, Sanitise
from tutelage.privacy import accounting
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import Error
from tutelage.privacy.ledger import Entry
from tutelage.runs import RunFolder


def account(curator: Curator, folder: RunFolder, how: Aggregation) -> float | None:
    """Leave the data-dependent ε, sealed, where it belongs, and give its sanitised form where that was planned."""
    if how.vectors:
        return None  # a mean's price does not depend on the data
    sanitised = _sanitised(curator, how.sanitise)
    budget = curator.ledger.budget
    if budget.unit.teachers == 1 and _answered(curator.ledger.entries()):
        orders, plain = accounting.ORDERS, curator.ledger.spent().epsilon
        # Votes that disagree can make this reading the dearer one: what holds for all votes holds for these, so the lesser is
        # taken. Which of the two it was depends on the votes, and stays sealed with the figure.
        try:
            raw = curator.data_dependent_rdp(orders).map(
                lambda rdp: min(float(accounting.rdp_to_epsilon(rdp, orders, budget.delta)[0]), plain)
            )
        except Error as error:  # a figure that never leaves must not decide whether there is a release
            folder.write_inside(folder.failed_controls, f"{error}\n")
        else:
            raw.store(folder.private / "data_dependent_epsilon.npy")
    return sanitised


def distinct(public: Public, places: Any) -> int:
    """Count the different records among those of a pool: one that is there twice is asked about once."""
    return len({hashlib.sha256(np.ascontiguousarray(public.inputs[place]).tobytes()).digest() for place in places})


def _answered(rows: list[Entry]) -> bool:
    """Tell whether the book holds a release at all: kills may have used up a whole budget before one."""
    return any(row.kind == "release" for row in rows)


def _sanitised(curator: Curator, sanitise: Sanitise | None) -> float | None:
    """Publish the data-dependent ε where that was planned and is still affordable (a crash may have used up its room).

    It prices the whole ledger as one plan: where another run, or a second plan, was charged, it is left out.
    """
    rows = [row for row in curator.ledger.entries() if row.kind in ("charge", "release")]
    if sanitise is None or not _answered(rows) or not curator.ledger.own():
        return None
    release = sanitise.release()
    charge, after = rows[-2:]
    kept = after.kind == "release" and charge.body.get("event", {}).get("kind") == "SmoothRelease"
    if not kept and not curator.ledger.affordable(release.event()):
        return None
    return curator.sanitised_epsilon(release, order=sanitise.order)
