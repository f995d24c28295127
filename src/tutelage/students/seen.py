"""Prototypes of what filters of the public pool see in its images, in place of their pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight, blocks
from tutelage.privacy.errors import RecipeError
from tutelage.students.questions import typical

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]
# Enough to tell shapes apart, and a few seconds for some thousand images on a CPU. Of three settings the one whose students were
# right most often on MNIST's public pool (short students, two seeds).
SEEING = Seeing(axes=40, filters=200)


@final
class SeenPrototypes:
    """Ask about the most typical image of each of many clusters of what filters of the pool see.

    Pixels are alike where ink lies in the same places. Sevens with a bar, about one in a hundred of MNIST's digits, lie among
    twos then: hardly one is a prototype, and a student that was never told calls most of them twos. Filters see strokes, and a
    bar is one. What they see is also brought to one spread along every axis: a rare stroke counts as much as a common one.
    """

    def __init__(self, how: Seeing = SEEING, *, seed: int = 0) -> None:
        self.how, self.seed = how, seed

    def __call__(self, public: Public, count: int, *, progress: Progress | None = None) -> Array:
        """Give the indices of `count` different records. On the CPU wherever the rest runs: it is a matter of seconds.

        `progress` counts rounds of finding filters and blocks of images that are seen: once to learn the axes, once along them.
        """
        shape = public.inputs.shape[1:]
        if len(shape) not in (2, 3):
            raise RecipeError(
                f"`public` must hold images where filters choose the questions. Got records of shape {shape} instead."
            )
        axes = min(self.how.axes, max(1, len(public) - 1))  # a small pool has no more
        how = replace(self.how, axes=axes, patch=min(self.how.patch, 1 + min(shape[-2:]) // 2))  # several fit into an image
        looks, learned = blocks(len(public)), 0

        def learning(done: int, of: int) -> None:
            nonlocal learned
            learned = of
            if progress is not None:
                progress(done, of + looks)

        def looking(done: int, _: int) -> None:
            if progress is not None:
                progress(learned + done, learned + looks)

        sight = Sight.learn(public, how, seed=self.seed, device="cpu", progress=learning)
        return typical(sight(public.inputs, progress=looking)[:, 1:], count, seed=self.seed)  # without the constant
