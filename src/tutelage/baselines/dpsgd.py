"""DP-SGD (Abadi et al. 2016) on whole units, with Opacus: the baseline that trains on private data directly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

import torch
from torch import Tensor, nn

from tutelage.baselines.checks import check_share, check_unit, check_whole
from tutelage.baselines.cohort import Cohort, Distortion, check_distortion, places
from tutelage.baselines.gradients import built, trainable, unit_gradients
from tutelage.baselines.price import Step, batch, calibrated, step
from tutelage.baselines.released import released
from tutelage.data.dataset import Private
from tutelage.nets.inputs import pick_device
from tutelage.nets.masks import MaskModel
from tutelage.nets.networks import Factory
from tutelage.privacy import accounting
from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import Gaussian, Sampled
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.units import Adjacency

if TYPE_CHECKING:
    from tutelage.nets.model import Model

Progress = Callable[[int, int], None]
_ROUNDING = 1 + 2.0**-10  # Opacus takes norms in 32 bits: over millions of coordinates they can fall short, by less than this


@final
@dataclass(frozen=True, kw_only=True)
class DPSGD:
    """Clip every unit's mean gradient, sum, add Gaussian noise, step; with augmentation multiplicity (De et al. 2022).

    Formal guarantee: all weights that training goes through are together (epsilon, delta)-DP for the book's unit and adjacency,
    where the noise is taken as Gaussian. Opacus draws it in floats from torch's generator, and samples come from there too, not
    from the hardened sampler in privacy/mechanisms.py: a baseline to compare with, not a release path.

    Adjacency: in a replace-one book one unit moves the clipped sum by the ball's diameter, 2·clip. With `rate` 1, the default,
    every unit is in every step, and T steps are one exact Gaussian with μ = 2·clip·√T/σ. Below 1 a fixed number of units is drawn
    without replacement, the sampler that docs/theory/sampled.md proves for replace-one; that saves time, never noise. Poisson
    sampling, the usual one for DP-SGD, is proved there for add-remove: such a book gets it, and sensitivity `clip`.
    """

    network: Factory = field(kw_only=False)
    epsilon: float
    delta: float
    steps: int = 200
    rate: float = 1.0  # share of the units in one step
    clip: float = 1.0  # 2-norm of one unit's mean gradient; choose it on public data
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9  # of sgd; Adam's first
    averaging: float = 0.0  # decay of an exponential mean of the weights, which is then the model; 0: the last weights
    augmentation: Distortion | None = None
    multiplicity: int = 4  # views of a unit per step, averaged before the clip; they go round its records
    chunk: int = 16  # units whose gradients are in memory at once: time and memory, no figure
    device: str = "auto"
    seed: int = 0  # of weights, and of distortions where everyone takes part; noise and samples have none

    def __post_init__(self) -> None:
        accounting.positive(epsilon=self.epsilon, clip=self.clip, learning_rate=self.learning_rate)
        accounting.probability(delta=self.delta)
        check_whole(steps=self.steps, multiplicity=self.multiplicity, chunk=self.chunk)
        check_share(averaging=self.averaging, momentum=self.momentum)
        batch(self.rate, 1)
        if self.optimizer not in ("adam", "sgd"):
            raise RecipeError(f"`optimizer` must be 'adam' or 'sgd'. Got {self.optimizer!r} instead.")

    def sensitivity(self, adjacency: Adjacency = Adjacency.REPLACE_ONE) -> float:
        """Bound how far one unit moves the clipped sum. A unit that goes takes its gradient along: then it is the radius."""
        ball = Ball(1, self.clip)  # its diameter is the same in any number of dimensions
        return _ROUNDING * (ball.diameter() if adjacency == Adjacency.REPLACE_ONE else ball.radius())

    def event(self, units: int, adjacency: Adjacency = Adjacency.REPLACE_ONE) -> Step:
        """Say what one of the `steps` steps is: the smallest noise that keeps all of them inside (epsilon, delta)."""
        check_whole(units=units)
        one = {"rate": self.rate, "population": units, "adjacency": adjacency}
        sensitivity = self.sensitivity(adjacency)
        sigma = calibrated(sensitivity, **one, steps=self.steps, epsilon=self.epsilon, delta=self.delta)
        return step(Gaussian(sensitivity, sigma), **one)

    def fit(self, private: Private, *, ledger: Ledger, progress: Progress | None = None) -> Model | MaskModel:
        """Charge for all steps, then train. No loss and no norm is told: they are private."""
        _opacus()  # a missing library must not cost anything
        check_unit(private, ledger.budget)
        masks, place = private.targets.ndim > 1, pick_device(self.device)
        check_distortion(self.augmentation, masks=masks)
        network = built(self.network, seed=self.seed, device=place)
        event = self.event(places(private), ledger.budget.adjacency)
        ledger.charge(event, count=self.steps)
        cohort = Cohort.of(private, device=place)
        return released(self.network, self._trained(network, cohort, event, progress), masks=masks, device=self.device)

    def _trained(self, network: nn.Module, cohort: Cohort, event: Step, progress: Progress | None) -> dict[str, Tensor]:
        place = next(network.parameters()).device
        descent = Descent(self, network, sigma=(event.event if isinstance(event, Sampled) else event).sigma)
        # Of a sample, views are secret too: by a known seed one unit more would visibly change everyone's after it.
        views = descent.secret if isinstance(event, Sampled) else torch.Generator().manual_seed(self.seed)
        mean = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        for done in range(1, self.steps + 1):
            chosen = self._sample(event, len(cohort), descent.secret)
            for part in chosen.split(self.chunk) if len(chosen) else ():
                seen = cohort.views(part, self.multiplicity, augmentation=self.augmentation, generator=views)
                descent.gather(*(tensor.to(place) for tensor in seen))
            descent.step(expected=self.rate * len(cohort) if _poisson(event) else len(chosen))
            decay = min(self.averaging, done / (10 + done))  # the first weights are soon forgotten
            for name, tensor in network.state_dict().items():
                mean[name] = decay * mean[name] + (1 - decay) * tensor if tensor.is_floating_point() else tensor.clone()
            if progress:
                progress(done, self.steps)
        return mean

    def _sample(self, event: Step, units: int, secret: torch.Generator) -> Tensor:
        """Draw who takes part, anew and in secret: a seed that someone knows would amplify nothing."""
        if not isinstance(event, Sampled):
            return torch.arange(units)
        if _poisson(event):
            return (torch.rand(units, generator=secret, device=secret.device) < event.rate).nonzero()[:, 0].cpu()
        return torch.randperm(units, generator=secret, device=secret.device)[: event.size].cpu()


@final
class Descent:
    """Let Opacus clip and sum the units' gradients, add the noise, and step."""

    def __init__(self, plan: DPSGD, network: nn.Module, *, sigma: float) -> None:
        self.network, self.weights = network, trainable(network)
        parameters = list(self.weights.values())
        inner: torch.optim.Optimizer
        if plan.optimizer == "sgd":
            inner = torch.optim.SGD(parameters, lr=plan.learning_rate, momentum=plan.momentum)
        else:
            inner = torch.optim.Adam(parameters, lr=plan.learning_rate, betas=(plan.momentum, 0.999))
        self.secret = torch.Generator(parameters[0].device)
        self.secret.seed()  # from the operating system
        self.optimizer = _opacus()(
            inner,
            noise_multiplier=sigma / plan.clip,  # Opacus draws N(0, (noise_multiplier·max_grad_norm)²) on the sum
            max_grad_norm=plan.clip,
            expected_batch_size=None,
            loss_reduction="sum",
            generator=self.secret,
        )
        self.optimizer.zero_grad()

    def gather(self, images: Tensor, targets: Tensor) -> None:
        """Clip these units' gradients and add them to the sum."""
        slopes = unit_gradients(self.network, self.weights, images, targets, shared=True)
        for name, parameter in self.weights.items():
            parameter.grad_sample = slopes[name]  # where Opacus looks for them
        self.optimizer.clip_and_accumulate()
        for parameter in self.weights.values():
            parameter.grad_sample = None

    def step(self, *, expected: float) -> None:
        """Noise the sum, divide it by the expected number of units, follow it, and forget it."""
        for parameter in self.weights.values():
            if parameter.summed_grad is None:  # a Poisson sample may be empty: its sum is zero, and noised like any other
                parameter.summed_grad = torch.zeros_like(parameter)
        self.optimizer.add_noise()
        for parameter in self.weights.values():
            assert parameter.grad is not None
            parameter.grad /= expected
        self.optimizer.original_optimizer.step()
        self.optimizer.zero_grad()


def _poisson(event: Step) -> bool:
    return isinstance(event, Sampled) and event.sampler == "poisson"


def _opacus() -> Any:
    try:
        from opacus.optimizers import DPOptimizer
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"`opacus` must be installed for DP-SGD: pip install 'tutelage[baselines]'. Got no module {error.name!r} instead."
        ) from None
    return DPOptimizer
