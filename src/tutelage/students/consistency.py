"""A student that must say the same of an image, of its neighbours and of its distortion, on the whole public pool."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.data.accepted import Accepted, taken
from tutelage.data.dataset import Public
from tutelage.nets.answering import answer
from tutelage.nets.augmentation import DIGITS, Augmentation
from tutelage.nets.compiling import Replayed
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.model import Model, Taught
from tutelage.nets.networks import ConvNet, Factory
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.students.graph import spread
from tutelage.students.shares import are_shares, centred

Progress = Callable[[int, int], None]
WEAK = Augmentation(rotation=5, scale=0.05, shift=1)
STRONG = Augmentation(rotation=20, scale=0.2, shear=20, shift=2.5, elastic=1.0, cutout=8)


@final
@dataclass(frozen=True, kw_only=True)
class Consistency:
    """Say how the student learns.

    As in FixMatch (Sohn et al. 2020), averaged weights name weakly distorted images and the network learns those names on
    strongly distorted ones. The names are read once a round. At first not alone by the network: answers are spread over the
    graph of what it sees (Iscen et al. 2019), and a name counts as far as the spreading is sure and the network agrees. In the
    last rounds the network names alone, by shares averaged over views and rounds: it distils itself.
    """

    steps: int = 6000
    batch: int = 64  # answered inputs per step
    ratio: int = 6  # pool inputs per answered one
    rate: float = 2e-3
    decay: float = 1e-2
    alone: float = 0.15  # share of the steps before the pool joins
    rounds: int = 10  # how often the pool is named anew; 0 gives the supervised student
    weight: float = 2.0  # of the pool beside the answers
    own: float = 0.4  # share of the rounds, the last ones, in which the network names alone
    views: int = 4  # weak distortions over which names are averaged
    judged: int = 8  # weak distortions over which the finished model averages
    neighbours: int = 10
    diffusion: float = 0.99  # how far answers are spread
    average: float = 0.995  # of the weights that name and predict
    flip_rate: float = 0.02  # how often an answer is expected to be wrong, from the noise and public simulation
    doubt: bool = False  # name the pool also where every record has an answer, so that wrong ones can be outvoted
    labelled: Augmentation = DIGITS  # of answered inputs
    weak: Augmentation = WEAK
    strong: Augmentation = STRONG

    def __post_init__(self) -> None:
        whole = (("steps", 1), ("batch", 1), ("ratio", 1), ("rounds", 0), ("views", 1), ("judged", 1), ("neighbours", 1))
        for name, least in whole:
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= least):
                raise RecipeError(f"`{name}` must be a whole number ≥ {least}. Got {value!r} instead.")
        for name in ("average", "flip_rate", "decay", "alone", "own", "diffusion"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"`{name}` must be in [0, 1). Got {getattr(self, name)!r} instead.")
        if not (self.rate > 0 and self.weight >= 0):
            raise RecipeError(f"`rate` must be > 0 and `weight` ≥ 0. Got {self.rate!r} and {self.weight!r} instead.")

    def round_at(self, step: int) -> int:
        """Tell the round of a step: 0 while the answers are alone, then 1 to `rounds`."""
        first = round(self.alone * self.steps)
        return 0 if step < first or not self.rounds else 1 + (step - first) * self.rounds // (self.steps - first)

    def rate_at(self, step: int) -> float:
        """Climb linearly over a fiftieth of the steps, then follow half a cosine to zero."""
        return self.rate * min(1.0, (step + 1) / max(1, 0.02 * self.steps)) * 0.5 * (1 + math.cos(math.pi * step / self.steps))


class Names(NamedTuple):
    """What the pool is called in a round."""

    shares: Tensor  # (records, classes)
    weights: Tensor  # (records,) from 0, not believed, to 1


@final
class ConsistencyStudent(Taught):
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
        super().__init__()

    def check(self, public: Public) -> None:
        """Refuse a pool that it could not learn from: its answers are still to be paid for."""
        some = as_inputs(public.inputs[:1])
        self._check_images(some)
        shape = tuple(some.shape[1:])
        found = answer(self._factory(some, self.classes or 2), shape)
        if found is None or len(found) != 1:
            raise RecipeError(f"`network` must answer one number per class of images of shape {shape}. Got one that does not.")

    def fit(self, public: Any, labels: Any, answered: Any = None, *, progress: Progress | None = None) -> ConsistencyStudent:
        """Learn from public inputs (a Public or an array) and labels (records,); -1, or a false `answered`, is no answer.

        Or from noisy shares of the votes (records, classes), not a number where there is no answer.
        """
        inputs = as_inputs(getattr(public, "inputs", public))
        answers = _read(labels, answered)
        known = int(_answered(answers).sum())
        if len(answers) != len(inputs) or not known:
            raise DataError(
                "`labels` must have one entry per input and at least one answer. "
                f"Got {len(answers)} for {len(inputs)} inputs and {known} instead."
            )
        self._check_images(inputs)
        classes = self.classes or getattr(self.network, "classes", None) or _classes(answers)
        if answers.ndim == 2 and answers.shape[1] != classes:
            raise DataError(f"`labels` must be shares of the network's {classes} classes. Got {answers.shape[1]} instead.")
        factory = self._factory(inputs, classes)
        self._model = self._train(factory, as_float(inputs), answers, classes, taken(public), progress)
        return self

    def _check_images(self, inputs: Tensor) -> None:
        if inputs.ndim != 4:
            raise RecipeError(
                f"`public` must hold images for a student that distorts them. Got {inputs.ndim} dimensions instead."
            )

    def _factory(self, inputs: Tensor, classes: int) -> Factory:
        return self.network or ConvNet(shape=tuple(inputs.shape[1:]), classes=classes, widths=(32, 64, 128), hidden=128)

    def _train(
        self, factory: Factory, inputs: Tensor, answers: Tensor, classes: int, takes: Accepted, progress: Progress | None
    ) -> Model:
        """Take the steps; the averaged weights are the model."""
        s, place = self.settings, pick_device(self.device)
        if answers.ndim == 1 and bool((answers >= 0).all()) and not s.doubt:
            s = replace(s, rounds=0)  # nothing is left to be named: the non-private control is plainly supervised
        inputs, answers = inputs.to(place), answers.to(place)
        known, names, current = torch.nonzero(_answered(answers))[:, 0], None, 0
        with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
            torch.manual_seed(self.seed)
            network = factory().to(place, memory_format=torch.channels_last).train()
            averaged = copy.deepcopy(network).eval().requires_grad_(False)
            generator = torch.Generator(device=place).manual_seed(self.seed)
            step_of = Step(network, inputs, answers, s, classes)
            replayed = Replayed(step_of, place=place)
            for step in range(s.steps):
                if s.round_at(step) != current:
                    current = s.round_at(step)
                    alone = names is not None and current > round((1 - s.own) * s.rounds)
                    seen = see_pool(averaged, inputs, settings=s, generator=generator)
                    names = own_names(seen, names) if alone else spread_names(seen, answers, settings=s)
                    step_of.believe(names)
                    known = believed(known, answers, names)
                step_of.draw(known, generator=generator, rate=s.rate_at(step))
                replayed()
                follow(averaged, network, min(s.average, (1 + step) / (10 + step)))
                if progress and ((step + 1) % 20 == 0 or step + 1 == s.steps):
                    progress(step + 1, s.steps)
        given: dict[str, Any] = {"views": s.judged, "distortion": s.weak, "accepted": takes}
        return Model(factory, averaged.state_dict(), device=self.device, **given)


@final
class Step:
    """Hold what a step reads and writes in fixed places, so that its kernels can be recorded once and replayed."""

    def __init__(self, network: nn.Module, inputs: Tensor, answers: Tensor, settings: Consistency, classes: int) -> None:
        self.network, self.inputs, self.answers, self.settings, place = network, inputs, answers, settings, inputs.device
        gpu = place.type == "cuda"
        self.rate = torch.tensor(settings.rate, device=place)
        self.optimizer = torch.optim.AdamW(
            network.parameters(), lr=self.rate, weight_decay=settings.decay, fused=True, capturable=gpu
        )
        pool = settings.batch * settings.ratio
        self.some, self.rest = (torch.zeros(size, dtype=torch.int64, device=place) for size in (settings.batch, pool))
        self.draws = torch.zeros(settings.batch, settings.labelled.draws, device=place)
        self.pool_draws = torch.zeros(pool, settings.strong.draws, device=place)
        self.names = Names(torch.zeros(len(inputs), classes, device=place), torch.zeros(len(inputs), device=place))
        self.joined = settings.rounds > 0 and settings.weight > 0
        self.judged = self.joined and gpu  # recorded kernels do not change; elsewhere the pool waits until it has names
        self.place = place

    def believe(self, names: Names) -> None:
        """Take over what the pool is called from now on."""
        self.judged = self.joined
        for mine, theirs in zip(self.names, names, strict=True):
            mine.copy_(theirs)

    def draw(self, known: Tensor, *, generator: torch.Generator, rate: float) -> None:
        """Choose the step's records and their distortions."""
        s = self.settings
        self.some.copy_(known[torch.randint(len(known), (s.batch,), generator=generator, device=self.place)])
        self.draws.copy_(s.labelled.draw(s.batch, generator=generator))
        if self.joined:
            torch.randint(len(self.inputs), (len(self.rest),), generator=generator, out=self.rest)
            self.pool_draws.copy_(s.strong.draw(len(self.rest), generator=generator))
        self.rate.fill_(rate)

    def __call__(self) -> None:
        """Judge answered and pool images in one pass, and move the weights."""
        s = self.settings
        images = s.labelled.apply(self.inputs[self.some], self.draws)
        if self.judged:
            images = torch.cat([images, s.strong.apply(self.inputs[self.rest], self.pool_draws)])
        with torch.autocast(self.place.type, dtype=torch.bfloat16, enabled=self.place.type == "cuda"):
            scores = self.network(images).float()
        heard = self.answers[self.some]
        loss = shares_loss(scores[: s.batch], heard) if heard.ndim == 2 else answered_loss(scores[: s.batch], heard, s.flip_rate)
        if self.judged:
            entropy = F.cross_entropy(scores[s.batch :], self.names.shares[self.rest], reduction="none")
            loss = loss + s.weight * (entropy * self.names.weights[self.rest]).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def answered_loss(scores: Tensor, labels: Tensor, flip_rate: float) -> Tensor:
    """Score the noisy answer, not the truth: forward correction (Patrini et al. 2017) for uniform flips.

    It is bounded where an answer is wrong, so that a few wrong ones are outvoted instead of learned by heart.
    """
    if not flip_rate:
        return F.cross_entropy(scores, labels)
    true = scores.softmax(dim=1).gather(1, labels[:, None])[:, 0]  # (batch,)
    heard = (1 - flip_rate) * true + flip_rate / max(1, scores.shape[1] - 1) * (1 - true)
    return -heard.log().mean()


def shares_loss(scores: Tensor, shares: Tensor) -> Tensor:
    """Judge by squared error: ‖p − s‖² = ‖p‖² − 2·p·s + what p cannot change.

    It is linear in the noisy shares s, so that noise of mean zero leaves the gradient unbiased. So is cross-entropy's, but the
    noise makes shares negative, and −s·log p has no least value there: single records would be learned by heart without end.
    """
    return (scores.softmax(dim=1) - shares).square().sum(dim=1).mean()


def believed(known: Tensor, answers: Tensor, names: Names) -> Tensor:
    """Set aside answers that their neighbours outvote; of shares none, because their largest alone says little."""
    if answers.ndim == 2:
        return known
    kept = known[names.shares[known].argmax(dim=1) == answers[known]]
    return kept if len(kept) else known


def _read(labels: Any, answered: Any) -> Tensor:
    """Give labels (records,) with -1, or shares (records, classes) with rows that are not a number, for no answer."""
    shares = are_shares(labels)
    answers = centred(labels).astype(np.float32) if shares else np.asarray(labels).astype(np.int64)
    if answered is not None:
        answers[~np.asarray(answered, dtype=bool)] = np.nan if shares else -1
    return torch.from_numpy(answers)


def _answered(answers: Tensor) -> Tensor:
    return answers >= 0 if answers.ndim == 1 else ~answers[:, 0].isnan()


def _classes(answers: Tensor) -> int:
    return int(answers.max()) + 1 if answers.ndim == 1 else answers.shape[1]


class Seen(NamedTuple):
    """What a network sees in the pool, over views."""

    features: Tensor  # (records, width), what its last layer reads
    shares: Tensor  # (records, classes)


@torch.no_grad()
def see_pool(averaged: nn.Module, inputs: Tensor, *, settings: Consistency, generator: torch.Generator) -> Seen:
    """Average features and shares of every record over weakly distorted views."""
    last = [layer for layer in averaged.modules() if isinstance(layer, nn.Linear)]
    caught: list[Tensor] = []
    hook = last[-1].register_forward_pre_hook(lambda _, given: caught.append(given[0])) if last else None
    features, own = 0.0, 0.0
    for _ in range(settings.views):
        seen, said = [], []
        for block in inputs.split(2048 if inputs.is_cuda else 512):
            caught.clear()
            scores = averaged(settings.weak(block, generator=generator))
            seen.append(F.normalize((caught[0] if caught else scores).flatten(1), dim=1))
            said.append(scores.softmax(dim=1))
        features, own = features + torch.cat(seen), own + torch.cat(said)
    if hook is not None:
        hook.remove()
    return Seen(features, own / settings.views)


def spread_names(seen: Seen, answers: Tensor, *, settings: Consistency) -> Names:
    """Spread the answers over the graph of what the network sees, and believe where it agrees."""
    classes = seen.shares.shape[1]
    shares = spread(seen.features, answers, classes, neighbours=settings.neighbours, diffusion=settings.diffusion)
    doubt = -(shares * shares.clamp(min=1e-12).log()).sum(dim=1) / math.log(max(2, classes))
    labels = shares.argmax(dim=1)
    weights = (1 - doubt).clamp(0, 1) * (seen.shares.argmax(dim=1) == labels)
    return Names(F.one_hot(labels, classes).float(), weights)


def own_names(seen: Seen, before: Names) -> Names:
    """Take the network's own shares, averaged with the names before: a round alone is noisier than all of them.

    The names before count as far as they were believed: one that was not would come back by half.
    """
    weights = before.weights[:, None]
    shares = (seen.shares + weights * before.shares) / (1 + weights)
    return Names(shares, torch.ones_like(shares[:, 0]))


@torch.no_grad()
def follow(averaged: nn.Module, network: nn.Module, keep: float) -> None:
    """Move the averaged weights a little towards the network's."""
    torch._foreach_lerp_(list(averaged.parameters()), list(network.parameters()), 1 - keep)
    for mine, theirs in zip(averaged.buffers(), network.buffers(), strict=True):
        mine.copy_(theirs)
