"""Several students of masks at once: on a GPU side by side, on a CPU one after the other; who ends in nothing begins again."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tutelage.answers import Answers
from tutelage.data.dataset import Public
from tutelage.nets.masks import MaskModel, check_sight, windows
from tutelage.nets.networks import Factory
from tutelage.nets.pieces import Pieces, Source, images_of
from tutelage.nets.recorded import train_recorded
from tutelage.nets.training import State, Training, train_one
from tutelage.privacy.errors import RecipeError
from tutelage.students.shapes import HALF

Progress = Callable[[int, int], None]
Array = npt.NDArray[Any]
TRIES = 3  # of a network; of short or noisy lessons one in five to thirty ended in finding nothing
LOOKED_AT = 8  # images, to see whether a network finds anything

log = logging.getLogger("tutelage.students")


def lessons(
    public: Public, sets: Sequence[Answers], device: torch.device, window: tuple[int, ...] | None = None
) -> tuple[Source, list[Any]]:
    """Give the images that were asked about, and every set's masks as shares: whole, or in windows that lie side by side.

    What is larger than memory is read when needed.
    """
    space = sets[0].values.shape[1:]
    places = None if window is None else list(windows(space, window, overlap=False))
    images = images_of(public.inputs, sets[0].chosen, device, places)
    masks = [Pieces.masks(answers.values, places, clip=True) for answers in sets]
    return images, masks if isinstance(images, Pieces) else [some.whole().numpy() for some in masks]


def train_masks(
    factory: Factory,
    images: Source,
    masks: Sequence[Any],
    *,
    training: Training,
    seed: int,
    start: Sequence[State] | None = None,
    progress: Progress | None = None,
) -> list[State]:
    """Train one network per set of masks (records, *space), all on the same images (records, channels, *space).

    Where images are `Pieces`, so are masks: they are as many and as large.
    """
    done, total = 0, training.steps * len(masks)

    def tick(steps: int) -> None:
        nonlocal done
        done += steps
        if progress:
            progress(done, total)

    device = images.device
    given = [some.on(device) if isinstance(some, Pieces) else torch.from_numpy(np.array(some, np.float32)).to(device)
             for some in masks]  # fmt: skip
    if device.type == "cuda" and training.optimizer == "adam" and isinstance(images, Tensor):  # the only ones that are recorded
        rows = [torch.arange(len(images), device=device) + number * len(images) for number in range(len(given))]
        state = train_recorded(
            factory,
            images.repeat(len(given), *[1] * (images.ndim - 1)),
            torch.cat(given),
            rows,
            training=training,
            seed=seed,
            teachers=range(len(given)),
            tick=tick,
            start=start,
        )
        return [{name: tensor[number] for name, tensor in state.items()} for number in range(len(given))]
    return [
        train_one(
            factory,
            images,
            some,
            training=training,
            seed=seed,
            teacher=number,
            tick=tick,
            start=None if start is None else start[number],
        )
        for number, some in enumerate(given)
    ]


def train_anew(
    factory: Factory,
    images: Source,
    masks: Sequence[Any],
    shapes: Sequence[Array],
    *,
    look: Look,
    training: Training,
    seed: int,
    progress: Progress | None = None,
    told: bool = False,
) -> list[State]:
    """Train as `train_masks` does; a network that finds nothing, though the mean of its masks shows something, begins again.

    `shapes` are those means (*space). Nothing is said of further tries, and no bar moves: a control's masks are private, and how
    its training went is a function of them. Where masks were let out, `told` warns of those that stay as they are.
    """
    states: dict[int, State] = {}
    todo = list(range(len(masks)))
    for attempt in range(TRIES):
        some, tick = [masks[place] for place in todo], None if attempt else progress
        found = train_masks(factory, images, some, training=training, seed=seed + 2 * attempt, progress=tick)
        states |= dict(zip(todo, found, strict=True))
        todo = [place for place in todo if shows(shapes[place]) and not look.finds(states[place])]
        if not todo:
            break
    if todo and told:
        log.warning("%d students found nothing in %d tries, and stay as they are", len(todo), TRIES)
    return [states[place] for place in range(len(masks))]


def shows(shape: Array) -> bool:
    """Tell whether a mean of masks is more than noise: no share is negative, so what is below zero says how far noise goes."""
    return float(shape.max()) > max(HALF, -2 * float(shape.min()))


@final
@dataclass(frozen=True)
class Look:
    """See by a few images whether a network finds anything. They are read one at a time: a pool may be mapped."""

    model: Callable[[State], MaskModel]
    inputs: Array  # (records, ...) of the pool
    places: Array | range  # in the pool

    def finds(self, state: State) -> bool:
        """Tell whether it finds something in half of them, whatever threshold is wanted."""
        model, places = self.model(state), self.places[:LOOKED_AT]
        found = [bool((model.probabilities(self.inputs[place : place + 1]) > HALF).any()) for place in places]
        return 2 * sum(found) >= len(found)


def check_pool(public: Public, factory: Factory, through: Iterable[tuple[int, ...] | None], threshold: float | Public) -> None:
    """Refuse a pool that a student could not learn from or look at, and a threshold that is none."""
    check_sight(factory, public.inputs, through)
    if isinstance(threshold, Public):
        if threshold.targets is None:
            raise RecipeError("`threshold` must be a number, or public data with masks. Got data without masks instead.")
    elif not (isinstance(threshold, numbers.Real) and 0 < threshold < 1):
        raise RecipeError(f"`threshold` must lie in (0, 1), or be public data with masks. Got {threshold!r} instead.")


def starting(threshold: float | Public) -> float:
    """Give the number that a model is made with, before public masks say better."""
    return 0.5 if isinstance(threshold, Public) else threshold


def settled(models: list[MaskModel], threshold: float | Public) -> list[MaskModel]:
    """Choose the thresholds of models, and of those they began as, where public masks are to say."""
    return [model.settle(threshold) for model in models] if isinstance(threshold, Public) else models
