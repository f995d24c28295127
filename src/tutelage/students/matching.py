"""Fit a generator until its images have the released moments: class by class, for as long as one likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from tutelage.privacy.errors import DataError

if TYPE_CHECKING:  # a description needs no torch
    from tutelage.nets.generators import Drawing, Generator
    from tutelage.students.moments import Moments

Progress = Callable[[int, int], None]


@final
@dataclass(frozen=True)
class Matching:
    """Describe the fit: `steps` of Adam, `per` images of every class a step, `drawn` of the many moments each step."""

    steps: int = 2000
    per: int = 48
    drawn: int = 4
    learning_rate: float = 1.5e-3
    averaging: float = 0.995  # of the weights, over steps
    random_state: int = 0

    def fit(
        self,
        drawing: Drawing,
        many: Sequence[Moments] = (),
        always: Sequence[Moments] = (),
        *,
        begin: Generator | None = None,
        device: str = "cpu",
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Generator:
        """Fit a generator, from `begin` or anew. A fit that was killed goes on from its checkpoint to the same end."""
        import torch

        from tutelage.nets.seeded import seeded
        from tutelage.students.moments import Fit

        if not many and not always:
            raise DataError("`many` or `always` must hold moments. Got none instead.")
        place = torch.device(device)
        with seeded(self.random_state, place):
            network = drawing.built().to(place)
            if begin is not None:
                network.load_state_dict(begin.state)
            walk = Fit(self, network, Path(checkpoint) if checkpoint is not None else None)
            for step in range(walk.done, self.steps):
                walk.step(step, many, always)
                if progress is not None:
                    progress(step + 1, self.steps)
            return walk.finished(drawing)
