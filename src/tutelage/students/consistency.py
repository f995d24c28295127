"""A student that must say the same of an image, of its neighbours and of its distortion, on the whole public pool."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.nets.augmentation import DIGITS, Augmentation
from tutelage.nets.compiling import compile_or_not
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.model import Model
from tutelage.nets.networks import ConvNet, Factory, ResidualNet
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.students.graph import spread

Progress = Callable[[int, int], None]
WEAK = Augmentation(rotation=5, scale=0.05, shift=1)
STRONG = Augmentation(rotation=20, scale=0.2, shear=20, shift=2.5, elastic=1.0, cutout=8)


@final
@dataclass(frozen=True, kw_only=True)
class Consistency:
    """Say how the student learns.

    As in FixMatch (Sohn et al. 2020), averaged weights name weakly distorted images and the network learns those names on
    strongly distorted ones. The names are read once a round and not alone by the network: answers are spread over the graph
    of what it sees (Iscen et al. 2019), and a name counts as far as the spreading is sure and the network agrees.
    """

    steps: int = 6000
    batch: int = 64  # answered inputs per step
    ratio: int = 6  # pool inputs per answered one
    rate: float = 2e-3
    decay: float = 1e-2
    alone: float = 0.15  # share of the steps before the pool joins
    rounds: int = 10  # how often the pool is named anew; 0 gives the supervised student
    weight: float = 2.0  # of the pool beside the answers
    views: int = 4  # weak distortions over which names are averaged
    neighbours: int = 10
    diffusion: float = 0.99  # how far answers are spread
    average: float = 0.995  # of the weights that name and predict
    flip_rate: float = 0.02  # how often an answer is expected to be wrong, from the noise and public simulation
    labelled: Augmentation = DIGITS  # of answered inputs
    weak: Augmentation = WEAK
    strong: Augmentation = STRONG

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch", 1), ("ratio", 1), ("rounds", 0), ("views", 1), ("neighbours", 1)):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= least):
                raise RecipeError(f"`{name}` must be a whole number ≥ {least}. Got {value!r} instead.")
        for name in ("average", "flip_rate", "decay", "alone", "diffusion"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"`{name}` must be in [0, 1). Got {getattr(self, name)!r} instead.")
        if not (self.rate > 0 and self.weight >= 0):
            raise RecipeError(f"`rate` must be > 0 and `weight` ≥ 0. Got {self.rate!r} and {self.weight!r} instead.")

    def round_at(self, step: int) -> int:
        """Tell the round of a step: 0 while the answers are alone, then 1 to `rounds`."""
        first = round(self.alone * self.steps)
        return 0 if step < first or not self.rounds else 1 + (step - first) * self.rounds // (self.steps - first)


class Names(NamedTuple):
    """What the pool is called in a round."""

    labels: Tensor  # (records,)
    weights: Tensor  # (records,) from 0, not believed, to 1


@final
class ConsistencyStudent:
    """Learn from noisy answers and from the unanswered rest of the pool; post-processing of what was released."""

    def __init__(
        self,
        network: Factory | None = None,
        *,
        settings: Consistency | None = None,
        classes: int | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.network, self.settings, self.classes = network, settings or Consistency(), classes
        self.device, self.seed = device, seed
        self._model: Model | None = None

    def fit(self, public: Any, labels: Any, answered: Any = None, *, progress: Progress | None = None) -> ConsistencyStudent:
        """Learn from public inputs (a Public or an array) and labels (records,); -1, or a false `answered`, is no answer."""
        inputs = as_inputs(getattr(public, "inputs", public))
        answers = np.asarray(labels).astype(np.int64)
        if answered is not None:
            answers = np.where(np.asarray(answered, dtype=bool), answers, -1)
        if len(answers) != len(inputs) or not (answers >= 0).any():
            raise DataError(
                "`labels` must have one entry per input and at least one answer. "
                f"Got {len(answers)} for {len(inputs)} inputs and {int((answers >= 0).sum())} instead."
            )
        if inputs.ndim != 4:
            raise RecipeError(
                f"`public` must hold images for a student that distorts them. Got {inputs.ndim} dimensions instead."
            )
        classes = self.classes or int(answers.max()) + 1
        kind = ResidualNet if pick_device(self.device).type == "cuda" else ConvNet  # thirty times less work for a CPU
        factory = self.network or kind(shape=tuple(inputs.shape[1:]), classes=classes)
        self._model = self._train(factory, as_float(inputs), torch.from_numpy(answers), progress)
        return self

    def _train(self, factory: Factory, inputs: Tensor, answers: Tensor, progress: Progress | None) -> Model:
        """Take the steps; the averaged weights are the model."""
        s, place = self.settings, pick_device(self.device)
        inputs, answers = inputs.to(place), answers.to(place)
        known, names, current = torch.nonzero(answers >= 0)[:, 0], None, 0
        with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
            torch.manual_seed(self.seed)
            network = factory().to(place).train()
            averaged = copy.deepcopy(network).eval().requires_grad_(False)
            generator = torch.Generator(device=place).manual_seed(self.seed)
            optimizer = torch.optim.AdamW(network.parameters(), lr=s.rate, weight_decay=s.decay, fused=True)
            loss = Loss(network, s, place)
            of_answers, of_pool = loss.of_answers, loss.of_pool
            if place.type == "cuda":
                of_answers, of_pool = compile_or_not(of_answers, "student's step"), compile_or_not(of_pool, "pool's step")
            for step in range(s.steps):
                if s.round_at(step) != current:
                    current = s.round_at(step)
                    names = name_pool(averaged, inputs, answers, settings=s, generator=generator)
                    kept = known[names.labels[known] == answers[known]]  # what its neighbours outvote is set aside
                    known = kept if len(kept) else known
                some = known[torch.randint(len(known), (s.batch,), generator=generator, device=place)]
                total = of_answers(inputs[some], answers[some], s.labelled.draw(s.batch, generator=generator))
                if names is not None and s.weight:
                    rest = torch.randint(len(inputs), (s.batch * s.ratio,), generator=generator, device=place)
                    draws = s.strong.draw(len(rest), generator=generator)
                    total = total + s.weight * of_pool(inputs[rest], names.labels[rest], names.weights[rest], draws)
                optimizer.zero_grad()
                total.backward()
                for group in optimizer.param_groups:
                    climb = min(1.0, (step + 1) / max(1, 0.02 * s.steps))
                    group["lr"] = s.rate * climb * 0.5 * (1 + math.cos(math.pi * step / s.steps))
                optimizer.step()
                follow(averaged, network, min(s.average, (1 + step) / (10 + step)))
                if progress and ((step + 1) % 20 == 0 or step + 1 == s.steps):
                    progress(step + 1, s.steps)
        return Model(factory, averaged.state_dict(), device=self.device)

    @property
    def model(self) -> Model:
        """Give the trained model."""
        if self._model is None:
            raise DataError("`student` must be fitted before it predicts. Got none instead.")
        return self._model

    def predict(self, inputs: Any) -> np.ndarray:
        """Give labels (records,)."""
        return self.model.predict(inputs)

    def save(self, path: str | Path) -> Path:
        """Store the model without pickle; the ending says how to read it."""
        return self.model.save(path)


@final
class Loss:
    """Hold the two halves of a step's loss, each small enough to be compiled whole."""

    def __init__(self, network: nn.Module, settings: Consistency, place: torch.device) -> None:
        self.network, self.settings, self.place = network, settings, place

    def scores(self, images: Tensor) -> Tensor:
        """Run the network, on a GPU in bfloat16."""
        with torch.autocast(self.place.type, dtype=torch.bfloat16, enabled=self.place.type == "cuda"):
            return self.network(images).float()

    def of_answers(self, images: Tensor, labels: Tensor, draws: Tensor) -> Tensor:
        """Judge answered images (batch, ...) by their noisy labels (batch,)."""
        return answered_loss(self.scores(self.settings.labelled.apply(images, draws)), labels, self.settings.flip_rate)

    def of_pool(self, images: Tensor, labels: Tensor, weights: Tensor, draws: Tensor) -> Tensor:
        """Judge strongly distorted pool images (batch · ratio, ...) by what the round calls them."""
        scores = self.scores(self.settings.strong.apply(images, draws))
        return (F.cross_entropy(scores, labels, reduction="none") * weights).mean()


def answered_loss(scores: Tensor, labels: Tensor, flip_rate: float) -> Tensor:
    """Judge the answer that would be heard, not the truth: forward correction (Patrini et al. 2017) for uniform flips.

    It is bounded where an answer is wrong, so that a few wrong ones are outvoted instead of learned by heart.
    """
    if not flip_rate:
        return F.cross_entropy(scores, labels)
    true = scores.softmax(dim=1).gather(1, labels[:, None])[:, 0]  # (batch,)
    heard = (1 - flip_rate) * true + flip_rate / max(1, scores.shape[1] - 1) * (1 - true)
    return -heard.log().mean()


@torch.no_grad()
def name_pool(
    averaged: nn.Module, inputs: Tensor, answers: Tensor, *, settings: Consistency, generator: torch.Generator
) -> Names:
    """Spread the answers over the graph of what the averaged network sees, and believe where it agrees."""
    last = [layer for layer in averaged.modules() if isinstance(layer, nn.Linear)]
    caught: list[Tensor] = []
    hook = last[-1].register_forward_pre_hook(lambda _, given: caught.append(given[0])) if last else None
    features, own = 0.0, 0.0
    for _ in range(settings.views):
        seen, said = [], []
        for block in inputs.split(512):
            caught.clear()
            scores = averaged(settings.weak(block, generator=generator))
            seen.append(F.normalize((caught[0] if caught else scores).flatten(1), dim=1))
            said.append(scores.softmax(dim=1))
        features, own = features + torch.cat(seen), own + torch.cat(said)  # (records, width), (records, classes)
    if hook is not None:
        hook.remove()
    shares = spread(features, answers, own.shape[1], neighbours=settings.neighbours, diffusion=settings.diffusion)
    doubt = -(shares * shares.clamp(min=1e-12).log()).sum(dim=1) / math.log(max(2, own.shape[1]))
    labels = shares.argmax(dim=1)
    return Names(labels, (1 - doubt).clamp(0, 1) * (own.argmax(dim=1) == labels))


@torch.no_grad()
def follow(averaged: nn.Module, network: nn.Module, keep: float) -> None:
    """Move the averaged weights a little towards the network's."""
    torch._foreach_lerp_(list(averaged.parameters()), list(network.parameters()), 1 - keep)
    for mine, theirs in zip(averaged.buffers(), network.buffers(), strict=True):
        mine.copy_(theirs)
