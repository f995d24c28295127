"""What an heir became, beside the linear model that named the pool for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@final
class Inherited:
    """Hold what the heir became, and what it learned from: both are made of released weights and public records alone."""

    def __init__(self, heir: Any, linear: Any, names: Array) -> None:
        self.heir, self.linear = heir, linear
        self.names = names  # (public records,), -1 where the linear model was not sure

    def predict(self, inputs: Array) -> Array:
        """Give the heir's labels (records,)."""
        return np.asarray(self.heir.predict(inputs))

    def save(self, path: Path) -> Path:
        """Write the heir; the ending says how to read it."""
        written: Path = self.heir.save(path)
        return written
