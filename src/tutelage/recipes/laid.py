"""The public pool of a run with its images laid over each other, before anybody is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.recipes.learned import learned
from tutelage.runs import RunFolder

Progress = Callable[[str, int, int], None]
Laid = tuple[Public, str]
NAME = "alignment"


def laid(public: Public, settings: Mapping[str, Any], folder: RunFolder, *, device: str, progress: Progress | None) -> Laid:
    """Align the pool, and name the file in the release that says where every image went: the answers are about those places.

    The file holds the moved pool's hash, too. A run that goes on moves its pool by the file, and refuses another outcome
    (a changed file, a machine that rounds otherwise): it would ask other questions, and pay for them.
    """
    from tutelage.features.alignment import Aligning, Alignment

    how, say = Aligning(**settings), progress or (lambda what, done, total: None)

    def fit() -> dict[str, npt.NDArray[Any]]:
        found = Alignment.fit(
            public.inputs, settings=how, device=device, progress=lambda done, total: say("aligning", done, total)
        )
        return {**found.arrays(), "moved": _bytes(found.pool(public))}

    def read(arrays: dict[str, npt.NDArray[Any]]) -> Public:
        moved = arrays.pop("moved")
        pool = Alignment(**arrays).pool(public)
        if not np.array_equal(moved, _bytes(pool)):
            raise ValueError("the pool has gone elsewhere")
        return pool

    return learned(folder, NAME, f"{how!r}|{public.sha256}", fit, read)


def _bytes(pool: Public) -> npt.NDArray[Any]:
    return np.frombuffer(bytes.fromhex(pool.sha256), dtype=np.uint8)
