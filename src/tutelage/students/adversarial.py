"""The papers' student: a discriminator with one class more than the labels, beside a generator (Salimans et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from tutelage.data.accepted import taken
from tutelage.data.dataset import Public
from tutelage.nets.compiling import Replayed
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.model import Model, Taught
from tutelage.nets.networks import Factory
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.students.convolutions import Convolutions
from tutelage.students.game import Game
from tutelage.students.perceptrons import Perceptrons
from tutelage.students.players import Kind
from tutelage.students.shares import refuse_shares

Progress = Callable[[int, int], None]
KINDS: dict[str, type[Perceptrons] | type[Convolutions]] = {"perceptron": Perceptrons, "convolutional": Convolutions}
OWN = ("rate", "average", "widths", "generator", "input_noise", "hidden_noise")  # what each kind has values of its own for
FIRST = 500  # inputs that layers take their first scales from


@final
@dataclass(frozen=True, kw_only=True)
class Adversarial:
    """Say how discriminator and generator learn; what is left open depends on the kind, for MNIST or for colour images."""

    kind: Literal["perceptron", "convolutional"] = "perceptron"
    steps: int = 20_000
    batch: int = 100
    latent: int = 100
    rate: float | None = None
    average: float | None = None
    widths: tuple[int, ...] | None = None
    generator: tuple[int, ...] | None = None
    input_noise: float | None = None
    hidden_noise: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RecipeError(f"`kind` must be one of {', '.join(map(repr, KINDS))}. Got {self.kind!r} instead.")
        for name in ("steps", "batch", "latent"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 1):
                raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {value!r} instead.")
        rate, average = self.players.rate, self.players.average
        if not rate > 0 or not 0 <= average < 1:
            raise RecipeError(f"`rate` must be > 0 and `average` in [0, 1). Got {rate!r} and {average!r} instead.")
        for name in ("widths", "generator"):
            value = getattr(self, name)
            if value is not None and not (value and min(value) >= 1):
                raise RecipeError(f"`{name}` must name widths ≥ 1. Got {value!r} instead.")

    @property
    def players(self) -> Kind:
        """Give both players' settings: the kind's own, but for those given here."""
        return KINDS[self.kind](**{name: value for name in OWN if (value := getattr(self, name)) is not None})


@final
class AdversarialStudent(Taught):
    """Learn labels, and what real images look like, from answers and the unanswered pool."""

    learns_shares = False

    def __init__(
        self, *, settings: Adversarial | None = None, classes: int | None = None, device: str = "auto", seed: int = 0
    ) -> None:
        self.settings, self.classes, self.device, self.seed = settings or Adversarial(), classes, device, seed
        super().__init__()

    def check(self, public: Public) -> None:
        """Refuse a pool that its players could not see or draw: its answers are still to be paid for."""
        self.settings.players.factory(tuple(as_inputs(public.inputs[:1]).shape[1:]), self.classes or 2)

    def fit(self, public: Any, labels: Any, answered: Any = None, *, progress: Progress | None = None) -> AdversarialStudent:
        """Learn from public inputs (a Public or an array) and labels (records,); -1, or a false `answered`, is no answer."""
        refuse_shares(labels, "adversarial")
        inputs = as_inputs(getattr(public, "inputs", public))
        answers = np.asarray(labels).astype(np.int64)
        known = np.flatnonzero(answers >= 0 if answered is None else np.asarray(answered, dtype=bool))
        if len(answers) != len(inputs) or not len(known):
            raise DataError(
                f"`labels` must have one entry per input and at least one answer. Got {len(answers)} and {len(known)} instead."
            )
        classes = self.classes or int(answers[known].max()) + 1
        factory = self.settings.players.factory(tuple(inputs.shape[1:]), classes)
        self._model = self._train(factory, inputs, torch.from_numpy(answers), torch.from_numpy(known), progress)
        self._model.accepted = taken(public)
        return self

    def _train(self, factory: Factory, inputs: Tensor, labels: Tensor, known: Tensor, progress: Progress | None) -> Model:
        """Alternate the two players; the averaged discriminator, without its noise, is the model."""
        s, kind, place = self.settings, self.settings.players, pick_device(self.device)
        inputs, labels, known = inputs.to(place), labels.to(place), known.to(place)
        with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
            torch.manual_seed(self.seed)
            some = as_float(inputs[torch.randperm(len(inputs), device=place)[:FIRST]])
            dice = torch.rand(FIRST, s.latent, device=place)
            players = kind.players(factory, tuple(inputs.shape[1:]), some, dice)
            game = Game(players, inputs, labels, known, batch=s.batch, latent=s.latent)
            replayed = Replayed(game, place=place)
            for step in range(s.steps):
                game.rate.fill_(kind.rate * min(1.0, 3 - 3 * step / s.steps))  # down to zero over the last third
                game.follow.fill_(1 - min(kind.average, (1 + step) / (10 + step)))
                replayed()
                if progress and ((step + 1) % 50 == 0 or step + 1 == s.steps):
                    progress(step + 1, s.steps)
            game.end()
        return Model(factory, players.published(), device=self.device)
