"""Rounds of questions on disk: what was asked, and what the student predicted."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.privacy.files import reading, write_whole

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Round:
    """Hold one round's questions."""

    chosen: Array  # (questions,) indices into the public pool
    shares: Array  # (questions, classes) what the student predicts; uniform while it knows nothing


@final
class Rounds:
    """Keep every round, so that a resumed run asks the same questions with the same expectations and pays for none twice.

    Both follow from the pool and from answers that were released: they are public. They are kept because what is computed again,
    on a GPU or by another number of threads, need not be the same to the last bit: another student expects something else, other
    clusters have other prototypes, and both would be other questions.
    """

    def __init__(self, folder: Path, run: str, public: Public) -> None:
        self.folder, self.book = folder, f"{run}|{public.sha256}"  # those of another run or pool are not taken up

    def read(self, number: int) -> Round | None:
        """Give a round that was kept, or None."""
        path = self._path(number)
        if not path.exists():
            return None
        with reading(path, "rounds"), np.load(path, allow_pickle=False) as kept:
            return Round(kept["chosen"], kept["shares"]) if str(kept["book"]) == self.book else None

    def keep(self, number: int, one: Round) -> None:
        """Write a round, whole or not at all, before its first question is asked."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        np.savez_compressed(content, chosen=one.chosen, shares=one.shares, book=np.asarray(self.book))
        write_whole(self._path(number), content.getvalue())

    def _path(self, number: int) -> Path:
        return self.folder / f"{number + 1}.npz"
