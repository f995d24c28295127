"""A student that never decodes: it fits a few free parameters so that the codes of its masks are the released ones.

All N answers together say about K²μ²‖deviation‖²/(2C²) nats about how images deviate from their mean shape, whatever N is:
enough for hundreds of numbers, not for a network. So the network learns from the mean shape first, and only a few of its
parameters are then moved by the answers, all of them at once and in code space, where the noise is white.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tutelage.answers import Answers
from tutelage.data.accepted import Accepted, taken
from tutelage.data.dataset import Public
from tutelage.nets.inputs import arranged, as_float, as_inputs, pick_device
from tutelage.nets.masks import MaskModel
from tutelage.nets.networks import Factory
from tutelage.nets.training import State, Training
from tutelage.nets.unet import UNet, Which, free_parameters
from tutelage.nets.warps import VOLUMES
from tutelage.privacy.errors import RecipeError
from tutelage.students.shapes import freedoms, mean_shape
from tutelage.students.stack import Look, Progress, check_pool, lessons, settled, starting, train_anew, train_masks

Freedom = Literal["auto", "head", "norms", "last", "all"]
PER_SIGNAL = 30
SEEMING = 4  # deviations of the square of noise alone, beyond which something is more than noise


class Measured(NamedTuple):
    """Hold what one set of answers measures of masks, as its codec says (codecs.linear.Measurement)."""

    matrix: npt.NDArray[Any]  # (dimension, pixels)
    values: npt.NDArray[Any]  # (questions, dimension), what it gives
    stretch: float = 1.0  # how much longer deviations are in `values` than in pixels


@final
@dataclass(frozen=True, kw_only=True)
class Latent:
    """Say how the student learns: from the mean shape, from the codes, and from what it then says itself."""

    begin: Training = field(default=Training(steps=600, batch=4, augmentation=VOLUMES))
    faint: float = 0.5  # share of the beginning's steps that a mean shape gets which is fainter than its noise
    free: Freedom = "auto"  # which parameters the codes may move; "auto" lets the noise and the size of the mean shape decide
    steps: int = 300
    rate: float = 1e-2
    batch: int = 8  # images per step in code space
    again: Training | None = field(default=Training(steps=600, batch=4, rate=1e-3, augmentation=VOLUMES))  # on its own masks

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 1):
                raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {value!r} instead.")
        if not self.rate > 0:
            raise RecipeError(f"`rate` must be > 0. Got {self.rate!r} instead.")
        if not 0 < self.faint <= 1:
            raise RecipeError(f"`faint` must be in (0, 1]. Got {self.faint!r} instead.")
        if self.free not in ("auto", "head", "norms", "last", "all"):
            raise RecipeError(f"`free` must be 'auto', 'head', 'norms', 'last' or 'all'. Got {self.free!r} instead.")


@final
class LatentStudent:
    """Learn from noisy codes of masks. All of it is post-processing of released codes.

    `threshold` is from which share on a pixel belongs to the mask; or public data with masks, on which it is chosen. A network
    of which it cannot tell the last layer is refused here, and not when all answers are paid for.
    """

    def __init__(
        self,
        network: Factory | None = None,
        *,
        settings: Latent | None = None,
        threshold: float | Public = 0.5,
        window: tuple[int, ...] | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.network, self.settings, self.threshold, self.window = network, settings or Latent(), threshold, window
        self.device, self.seed = device, seed
        self._takes: Accepted | None = None
        if network is not None and self.settings.free != "all":
            with torch.random.fork_rng(devices=[]):
                free_parameters(network(), "head")

    def check(self, public: Public) -> None:
        """Refuse a pool that it could not learn from, all of an image at once, or look at through its window."""
        through = (None,) if self.window is None else (None, self.window)
        check_pool(public, self._factory(public), through, self.threshold)

    def fit(self, public: Public, answers: Answers, *, progress: Progress | None = None) -> MaskModel:
        """Learn from one set of answers. Exact masks, which have no codes, are simply learned."""
        return self.fit_all(public, [answers], progress=progress)[0]

    def fit_all(self, public: Public, sets: Sequence[Answers], *, progress: Progress | None = None) -> list[MaskModel]:
        """Learn from several releases about the same questions, a student each."""
        how, place = self.settings, pick_device(self.device)
        factory, self._takes = self._factory(public), taken(public)
        if not all(answers.noisy for answers in sets):
            look, shapes = self._look(factory, public.inputs, sets[0].chosen), [answers.mean for answers in sets]
            given: dict[str, Any] = {"look": look, "training": how.begin, "seed": self.seed}
            states = train_anew(factory, *lessons(public, sets, place), shapes, **given, progress=progress)
            return settled([self._model(factory, state) for state in states], self.threshold)
        pool = as_inputs(public.inputs).to(place)  # whole: the matrix of what codes measure is larger still
        told = measured([answers.linear() for answers in sets])
        shapes = [told_shape(answers, found, place) for answers, found in zip(sets, told, strict=True)]
        lengths = [patience(answers, found, how) for answers, found in zip(sets, told, strict=True)]
        parts = Parts(progress, sum(lengths) + len(sets) * (how.steps + (how.again.steps if how.again else 0)))
        look = self._look(factory, public.inputs, range(len(pool)))
        began = self._begun(factory, pool, shapes, lengths, parts, look)
        tick = parts.next(len(sets) * how.steps)
        moved = []
        for number, (state, answers, found, shape) in enumerate(zip(began, sets, told, shapes, strict=True)):
            moved.append(self._moved(factory, state, pool[answers.chosen], answers, found, shape))
            tick((number + 1) * how.steps, len(sets) * how.steps)
        first = [self._model(factory, state) for state in began]
        models = [self._model(factory, state, began=one) for state, one in zip(moved, first, strict=True)]
        if how.again is None:
            return settled(models, self.threshold)
        own = [model.probabilities(public.inputs) for model in models]
        tick = parts.next(len(sets) * how.again.steps)
        states = train_masks(factory, pool, own, training=how.again, seed=self.seed + 1, start=moved, progress=tick)
        last = [self._model(factory, state, began=one) for state, one in zip(states, models, strict=True)]
        return settled(last, self.threshold)

    def _factory(self, public: Public) -> Factory:
        return self.network or UNet(shape=tuple(arranged(public.inputs[:1]).shape[1:]))

    def _begun(
        self, factory: Factory, pool: Tensor, shapes: list[npt.NDArray[Any]], lengths: list[int], parts: Parts, look: Look
    ) -> list[State]:
        """Train a network on each mean shape, those together that learn for as long."""
        states: dict[int, State] = {}
        for length in sorted(set(lengths)):
            some = [place for place, one in enumerate(lengths) if one == length]
            told = [shapes[place] for place in some]
            labels = [np.broadcast_to(shape, (len(pool), *shape.shape)) for shape in told]
            tick, training = parts.next(len(some) * length), replace(self.settings.begin, steps=length)
            given: dict[str, Any] = {"training": training, "seed": self.seed, "progress": tick, "told": True}
            states |= dict(zip(some, train_anew(factory, pool, labels, told, look=look, **given), strict=True))
        return [states[place] for place in range(len(shapes))]

    def _look(self, factory: Factory, inputs: npt.NDArray[Any], places: npt.NDArray[Any] | range) -> Look:
        return Look(lambda state: self._model(factory, state), inputs, places)

    def _model(self, factory: Factory, state: State, began: MaskModel | None = None) -> MaskModel:
        given: dict[str, Any] = {"threshold": starting(self.threshold), "window": self.window, "device": self.device}
        return MaskModel(factory, state, **given, began=began, accepted=self._takes)

    def _moved(
        self, factory: Factory, state: State, images: Tensor, answers: Answers, found: Measured, shape: npt.NDArray[Any]
    ) -> State:
        """Move the free parameters until the codes of the network's masks are the released ones."""
        how, place = self.settings, images.device
        network = factory().to(place)
        network.load_state_dict(state)
        matrix, values, stretch = found
        which = freedom(network, answers, shape, values.size, stretch=stretch) if how.free == "auto" else how.free
        names = free_parameters(network, which)
        free = {name: tensor.detach().clone().requires_grad_() for name, tensor in network.named_parameters() if name in names}
        optimizer = torch.optim.Adam(list(free.values()), lr=how.rate)
        seen, wanted = torch.from_numpy(matrix).to(place), torch.from_numpy(values.astype(np.float32)).to(place)
        generator, half = torch.Generator().manual_seed(self.seed), how.begin.half(place)
        batch = min(how.batch, len(images))
        for step in range(how.steps):
            rows = torch.randperm(len(images), generator=generator)[:batch].to(place)
            with torch.autocast(place.type, dtype=torch.bfloat16, enabled=half):
                logits = functional_call(network, free, (as_float(images[rows]),))
            shares = logits.float().sigmoid().flatten(1)  # (batch, pixels)
            loss = ((shares @ seen.T - wanted[rows]) / answers.sigma).square().sum() / batch
            optimizer.zero_grad()
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = how.rate * 0.5 * (1 + np.cos(np.pi * step / how.steps))
            optimizer.step()
        return {**{name: tensor.cpu() for name, tensor in state.items()}, **{name: t.detach().cpu() for name, t in free.items()}}


def patience(answers: Answers, found: Measured, how: Latent) -> int:
    """Give the steps for which the mean shape is learned: fewer where its noise is larger than the shape itself.

    A network learns a label's outline first and its noise last. What the rule was chosen on: benchmarks/chosen.py.
    """
    return how.begin.steps if clearness(answers, found) >= 1 else max(1, int(how.faint * how.begin.steps))


def clearness(answers: Answers, found: Measured) -> float:
    """Estimate the square of what the mean shape measures over its noise; noise alone is about 0, and may be below.

    Noise is counted on as many numbers as a smooth shape has at most: more measurements of it do not make it fainter. Where they
    are so many more that what noise alone may seem to be is larger than that, this counts in its place.
    """
    mean = found.values.mean(axis=0, dtype=np.float64)  # (dimension,)
    signal = float(mean @ mean) * len(answers) / answers.sigma**2 - len(mean)
    counted, most = len(mean), freedoms(answers.values.shape[1:])
    return signal / (counted if counted <= most else max(most, SEEMING * math.sqrt(2 * counted)))


def told_shape(answers: Answers, found: Measured, place: torch.device) -> npt.NDArray[Any]:
    """Give the mean shape that a set of answers tells, with its noise taken down."""
    parts = (found.matrix, found.values.mean(axis=0), answers.mean)
    matrix, told, decoded = (torch.from_numpy(np.asarray(one, dtype=np.float32)).to(place) for one in parts)
    return mean_shape(matrix, told, answers.sigma / len(answers) ** 0.5, decoded)


def measured(sets: Sequence[Answers]) -> list[Measured]:
    """Give what every set measures of masks; a codec's matrix, which takes seconds for volumes, is made once."""
    found: dict[int, Measured] = {}
    for first in {id(answers.codec): answers for answers in sets}.values():
        same = [place for place, answers in enumerate(sets) if answers.codec is first.codec]
        whole = replace(first, **_joined([sets[place] for place in same])).measured()
        ends = np.cumsum([len(sets[place]) for place in same])[:-1]
        parts = zip(same, np.split(whole.values, ends), strict=True)
        found |= {place: Measured(whole.matrix, values, whole.stretch) for place, values in parts}
    return [found[place] for place in range(len(sets))]


def _joined(sets: Sequence[Answers]) -> dict[str, Any]:
    return {name: np.concatenate([getattr(answers, name) for answers in sets]) for name in ("chosen", "values", "codes")}


def freedom(network: nn.Module, answers: Answers, shape: npt.NDArray[Any], numbers: int, *, stretch: float = 1.0) -> Which:
    """Free the largest group of parameters that the answers can tell apart from their noise; a few steps are a bridle too.

    What they can tell: a deviation as long as the mean shape itself, over the noise, N times. Nothing else of them enters.
    The shape is the one whose noise is taken down: a noisy one looks longer than it is, and would free too much.
    The noise is on codes, so it counts how long such a deviation is as a code: `stretch` times as long as in pixels, 1 where rows
    are orthonormal. The code of the mean shape itself would not say so: it is made of slower waves than deviations from it, which
    a rescaled codec weighs down (to half of their square on hippocampi: benchmarks/stretch.py).
    Per such unit of signal PER_SIGNAL parameters may move: on one public pool that was better than one each. And never more
    parameters than the answers measure `numbers`, however clear those are: what no number speaks about could drift anywhere.
    """
    told = len(answers) * float(np.square(shape, dtype=np.float64).sum()) * (stretch / answers.sigma) ** 2
    most = min(PER_SIGNAL * told, numbers)
    parameters = dict(network.named_parameters())
    choices: tuple[Which, ...] = ("head", "norms", "last")
    sizes = {which: sum(parameters[name].numel() for name in free_parameters(network, which)) for which in choices}
    return max((which for which in choices if sizes[which] <= most), key=sizes.__getitem__, default="head")


@final
class Parts:
    """Count the steps of three trainings as one."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.before = progress, total, 0

    def next(self, steps: int) -> Progress:
        """Give the progress of the next training, which takes so many steps in all."""
        before, self.before = self.before, self.before + steps

        def tick(done: int, _: int) -> None:
            if self.progress:
                self.progress(before + done, self.total)

        return tick
