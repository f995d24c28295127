"""The data-dependent price of votes: sealed under `private/`, and published only through a release that is paid for."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from tutelage.data.dataset import Public
from tutelage.planning import Aggregation
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import Error
from tutelage.runs import RunFolder


def account(curator: Curator, folder: RunFolder, how: Aggregation) -> float | None:
    """Leave the data-dependent ε, sealed, where it belongs, and give its sanitised form where that was planned."""
    if how.vectors:
        return None  # a mean's price does not depend on the data
    sanitised = None if how.sanitise is None else curator.sanitised(how.sanitise.release(), order=how.sanitise.order)
    try:
        raw = curator.data_dependent_epsilon()
    except Error as error:  # a figure that never leaves must not decide whether there is a release
        folder.write_inside(folder.failed_controls, f"{error}\n")
    else:
        if raw is not None:
            raw.store(folder.private / "data_dependent_epsilon.npy")
    return sanitised


def distinct(public: Public, places: Any) -> int:
    """Count the different records among those of a pool: one that is there twice is asked about once."""
    return len({hashlib.sha256(np.ascontiguousarray(public.inputs[place]).tobytes()).digest() for place in places})
