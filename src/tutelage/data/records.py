"""What every reader returns: arrays in rows, and a print-out that shows none of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from tutelage.privacy.errors import DataError


@final
@dataclass(frozen=True, repr=False, eq=False)
class Records:
    """Hold what one file says, before anybody has decided whether it is private."""

    inputs: np.ndarray  # (records, ...) float32
    targets: np.ndarray  # (records,) int64
    units: np.ndarray | None = None  # (records,) ids, where the file knows whose record it is

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets) or (self.units is not None and len(self.units) != len(self.inputs)):
            raise DataError("`inputs`, `targets` and `units` must have one entry per record. Got unequal lengths instead.")

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Any) -> Records:
        return Records(self.inputs[index], self.targets[index], None if self.units is None else self.units[index])

    def __repr__(self) -> str:
        return f"Records({len(self)})"


def check_classes(path: Path | str, targets: np.ndarray, classes: int) -> None:
    """Refuse labels outside 0 .. classes - 1."""
    if targets.size and not (targets.min() >= 0 and targets.max() < classes):
        raise DataError(f"`{path}` must hold labels of {classes} classes. Got a label outside them instead.")
