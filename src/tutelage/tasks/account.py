"""The data-dependent price of votes: sealed under `private/`, and published only through a release that is paid for."""

from __future__ import annotations

from tutelage.planning import Aggregation
from tutelage.privacy.errors import Error
from tutelage.privacy.oracle import Oracle
from tutelage.runs import RunFolder


def account(oracle: Oracle, folder: RunFolder, how: Aggregation) -> float | None:
    """Leave the data-dependent ε, sealed, where it belongs, and give its sanitised form where that was planned."""
    sanitised = None if how.sanitise is None else oracle.sanitised(how.sanitise.release(), order=how.sanitise.order)
    try:
        raw = oracle.data_dependent_epsilon()
    except Error as error:  # a figure that never leaves must not decide whether there is a release
        folder.write_inside(folder.failed_controls, f"{error}\n")
    else:
        if raw is not None:
            raw.store(folder.private / "data_dependent_epsilon.npy")
    return sanitised
