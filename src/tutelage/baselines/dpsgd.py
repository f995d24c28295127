"""DP-SGD (Abadi et al. 2016) on whole units, with Opacus: the baseline that trains on private data directly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

import torch
from torch import Tensor, nn

from tutelage.baselines.backprops import backward_gradients, sampled
from tutelage.baselines.checks import check_share, check_unit, check_whole
from tutelage.baselines.cohort import Cohort, Distortion, check_distortion, checked, places, taking_part
from tutelage.baselines.gradients import built, stacked, trainable, unit_gradients
from tutelage.baselines.price import Step, batch, calibrated, step
from tutelage.baselines.released import released
from tutelage.data.dataset import Private
from tutelage.nets.inputs import pick_device
from tutelage.nets.masks import MaskModel
from tutelage.nets.networks import Factory
from tutelage.privacy import accounting
from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import Error, RecipeError
from tutelage.privacy.events import Gaussian, Sampled
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.sealed import quietly

if TYPE_CHECKING:
    from tutelage.nets.model import Model

Progress = Callable[[int, int], None]
_ROUNDING = 1 + 2.0**-10  # Opacus takes norms in 32 bits: over millions of coordinates they can fall short, by less than this


@final
@dataclass(frozen=True, kw_only=True)
class DPSGD:
    """Clip every unit's mean gradient, sum, add Gaussian noise, step; with augmentation multiplicity (De et al. 2022).

    Formal guarantee: all weights that training goes through are together (epsilon, delta)-DP for the book's unit, replace-one,
    where the noise is taken as Gaussian. Opacus draws it in floats from torch's generator (of 32 bits on a CPU), not from the
    hardened sampler in privacy/mechanisms.py: a baseline to compare with, not a release path.

    One unit that is replaced moves the clipped sum by the ball's diameter, 2·clip. With `rate` 1, the default, every unit is in
    every step, and T steps are one exact Gaussian with μ = 2·clip·√T/σ. Below 1 the operating system draws a fixed number of
    units without replacement, as in docs/theory/sampled.md; that saves time, never noise. Add-remove books are refused.
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
    seed: int = 0  # of weights and distortions; noise and samples have none

    def __post_init__(self) -> None:
        accounting.positive(epsilon=self.epsilon, clip=self.clip, learning_rate=self.learning_rate)
        accounting.probability(delta=self.delta)
        check_whole(steps=self.steps, multiplicity=self.multiplicity, chunk=self.chunk)
        check_share(averaging=self.averaging, momentum=self.momentum)
        batch(self.rate, 1)
        if self.optimizer not in ("adam", "sgd"):
            raise RecipeError(f"`optimizer` must be 'adam' or 'sgd'. Got {self.optimizer!r} instead.")

    def sensitivity(self) -> float:
        """Bound how far one unit that is replaced moves the clipped sum."""
        return _ROUNDING * Ball(1, self.clip).diameter()  # the same in any number of dimensions

    def event(self, units: int) -> Step:
        """Say what one of the `steps` steps is: the smallest noise that keeps all of them inside (epsilon, delta)."""
        check_whole(units=units)
        sensitivity, price = self.sensitivity(), {"epsilon": self.epsilon, "delta": self.delta}
        sigma = calibrated(sensitivity, steps=self.steps, rate=self.rate, population=units, **price)
        return step(Gaussian(sensitivity, sigma), rate=self.rate, population=units)

    def fit(self, private: Private, *, ledger: Ledger, progress: Progress | None = None) -> Model | MaskModel:
        """Charge for all steps, then train. No loss and no norm is told: they are private."""
        _opacus()  # a missing library must not cost anything
        check_unit(private, ledger.budget)
        masks, place = private.targets.ndim > 1, pick_device(self.device)
        check_distortion(self.augmentation, masks=masks)
        network = built(self.network, seed=self.seed, device=place)
        network = network if sampled(network) else stacked(network)
        event = self.event(places(private))
        private = checked(private, network)
        ledger.charge(event, count=self.steps)
        state = quietly("fit", lambda: self._trained(network, Cohort.of(private, device=place), event, progress), ours=Error)
        return released(self.network, state, masks=masks, device=self.device)

    def _trained(self, network: nn.Module, cohort: Cohort, event: Step, progress: Progress | None) -> dict[str, Tensor]:
        place = next(network.parameters()).device
        descent = Descent(self, network, sigma=(event.event if isinstance(event, Sampled) else event).sigma)
        views = torch.Generator().manual_seed(self.seed)  # the distortions of a place do not depend on who is there
        size = batch(self.rate, len(cohort))
        mean = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        for done in range(1, self.steps + 1):
            for part in taking_part(len(cohort), size).split(self.chunk):
                seen = cohort.views(part, self.multiplicity, augmentation=self.augmentation, generator=views)
                descent.gather(*(tensor.to(place) for tensor in seen), present=cohort.present(part).to(place))
            descent.step(size)
            decay = min(self.averaging, done / (10 + done))  # the first weights are soon forgotten
            for name, tensor in network.state_dict().items():
                mean[name] = decay * mean[name] + (1 - decay) * tensor if tensor.is_floating_point() else tensor.clone()
            if progress:
                progress(done, self.steps)
        return mean


@final
class Descent:
    """Let Opacus clip and sum the units' gradients, add the noise, and step."""

    def __init__(self, plan: DPSGD, network: nn.Module, *, sigma: float) -> None:
        self.network, self.weights, self.sampled = network, trainable(network), sampled(network)
        parameters = list(self.weights.values())
        inner: torch.optim.Optimizer
        if plan.optimizer == "sgd":
            inner = torch.optim.SGD(parameters, lr=plan.learning_rate, momentum=plan.momentum)
        else:
            inner = torch.optim.Adam(parameters, lr=plan.learning_rate, betas=(plan.momentum, 0.999))
        secret = torch.Generator(parameters[0].device)
        secret.seed()  # from the operating system
        self.optimizer = _opacus()(
            inner,
            noise_multiplier=sigma / plan.clip,  # Opacus draws N(0, (noise_multiplier·max_grad_norm)²) on the sum
            max_grad_norm=plan.clip,
            expected_batch_size=None,
            loss_reduction="sum",
            generator=secret,
        )
        self.optimizer.zero_grad()

    def gather(self, images: Tensor, targets: Tensor, *, present: Tensor) -> None:
        """Clip these units' gradients and add them to the sum; an empty place adds zero."""
        if self.sampled:
            slopes = backward_gradients(self.network, self.weights, images, targets)
        else:
            slopes = unit_gradients(self.network, self.weights, images, targets, shared=True)
        for name, parameter in self.weights.items():
            here = present.view(-1, *(1,) * (slopes[name].ndim - 1))
            parameter.grad_sample = torch.where(here, slopes[name], 0.0)  # where Opacus looks for them
        self.optimizer.clip_and_accumulate()
        for parameter in self.weights.values():
            parameter.grad_sample = None

    def step(self, units: int) -> None:
        """Noise the sum, divide it by the number of units, follow it, and forget it."""
        self.optimizer.add_noise()
        for parameter in self.weights.values():
            assert parameter.grad is not None
            parameter.grad /= units
        self.optimizer.original_optimizer.step()
        self.optimizer.zero_grad()


def _opacus() -> Any:
    try:
        from opacus.optimizers import DPOptimizer
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"`opacus` must be installed for DP-SGD: pip install 'tutelage[baselines]'. Got no module {error.name!r} instead."
        ) from None
    return DPOptimizer
