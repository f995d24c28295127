"""The process's shared random generators, kept out of what is released."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def put_back() -> Iterator[None]:
    """Put the shared generators back to where they were before this step.

    How far a step on private records moves them depends on how many records there are. A student that draws from them
    afterwards, as scikit-learn does without a seed, would begin somewhere else for a neighbouring data set.
    """
    plain, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 - the shared one is meant
    torch: Any = sys.modules.get("torch")  # who never imported it draws nothing from it
    tensors = None if torch is None else torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch is not None and torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(numbers)  # noqa: NPY002
        if tensors is not None:
            torch.set_rng_state(tensors)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
