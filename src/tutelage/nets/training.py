"""Train one network, or a stack of them. A teacher's weights depend only on the seed, its number and its own shard."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from tutelage.nets.augmentation import DIGITS, Augmentation
from tutelage.nets.compiling import compile_or_not
from tutelage.nets.inputs import as_float, narrow
from tutelage.nets.losses import measure
from tutelage.nets.networks import Factory
from tutelage.nets.pieces import Source
from tutelage.nets.products import as_products
from tutelage.nets.warps import Warp
from tutelage.privacy.errors import RecipeError

State = dict[str, Tensor]
Tick = Callable[[int], None]

BLOCK = 16  # steps whose randomness is drawn in one call; fixed, because a GPU's stream depends on the sizes of its calls


class Bookmark(Protocol):
    """Keeps a stack that is still learning, so that hours of it are not lost with the process."""

    def due(self) -> bool:
        """Tell whether it is time to save."""

    def keep(self, teachers: Sequence[int], device: torch.device, learning: State) -> None:
        """Save."""

    def kept(self, teachers: Sequence[int], device: torch.device) -> State | None:
        """Give what was saved of this same stack, if anything was."""


@final
@dataclass(frozen=True, kw_only=True)
class Training:
    """Say how every teacher is trained. Chosen on public or synthetic data, never by looking at the private."""

    steps: int = 1500
    batch: int = 32
    rate: float = 2e-3
    decay: float = 1e-2
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = 0.9  # of sgd
    warmup: float = 0.05  # share of the steps in which the rate climbs, before the cosine takes it to zero
    smoothing: float = 0.0  # of labels
    augmentation: Augmentation | Warp | None = field(default=DIGITS)  # masks are bent with their images by a Warp alone
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 on CUDA; by name also on CPUs, see `half`

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 1):
                raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {value!r} instead.")
        if not self.rate > 0:
            raise RecipeError(f"`rate` must be > 0. Got {self.rate!r} instead.")
        for name, choices in (("optimizer", ("adam", "sgd")), ("precision", ("auto", "float32", "bfloat16"))):
            if getattr(self, name) not in choices:
                raise RecipeError(f"`{name}` must be one of {choices}. Got {getattr(self, name)!r} instead.")
        for name in ("decay", "momentum", "warmup", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"`{name}` must be in [0, 1). Got {getattr(self, name)!r} instead.")

    def rate_at(self, step: int) -> float:
        """Climb linearly, then follow half a cosine to zero."""
        climb = max(1, round(self.warmup * self.steps))
        return self.rate * min(1.0, (step + 1) / climb) * 0.5 * (1 + math.cos(math.pi * step / self.steps))

    def optimize(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        """Make the optimizer. Both are elementwise, so a stack of networks is updated exactly as each alone would be."""
        if self.optimizer == "sgd":
            return torch.optim.SGD(
                parameters, lr=self.rate, momentum=self.momentum, nesterov=self.momentum > 0, weight_decay=self.decay, fused=True
            )
        return torch.optim.AdamW(parameters, lr=self.rate, weight_decay=self.decay, fused=True)

    def half(self, device: torch.device) -> bool:
        """Tell whether products run in bfloat16; weights, their updates and the loss stay in float32, on a GPU norms, too.

        A CPU must be asked by name, so that one recipe gives the same networks on all of them, and must have the instructions:
        one without them would take fifty times as long as in float32, and stays with that.
        """
        if self.precision == "auto":
            return device.type == "cuda"
        return self.precision == "bfloat16" and narrow(device)


@final
class Stream:
    """Draw one teacher's initial weights and batches, from the seed and its number alone: the same in every engine and chunk."""

    def __init__(self, seed: int, teacher: int, device: torch.device) -> None:
        weights, batches = np.random.SeedSequence([seed, teacher]).generate_state(2)
        self.weights = int(weights)
        self.generator = torch.Generator(device=device).manual_seed(int(batches))

    def build(self, factory: Factory) -> nn.Module:
        """Build this teacher's network with its own initial weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.weights)
            return factory().train()

    def order(self, records: int, count: int) -> Tensor:
        """Draw `count` rows of a shard: every record once in a new order, then again: (count,)."""
        rounds = -(-count // records)
        keys = torch.rand(rounds, records, generator=self.generator, device=self.generator.device)
        return keys.argsort(dim=1, stable=True).flatten()[:count]

    def draws(self, augmentation: Augmentation | Warp, batch: int) -> Tensor:
        """Draw the distortions of the next block of steps: (BLOCK, batch, draws)."""
        return augmentation.draw(BLOCK * batch, generator=self.generator).unflatten(0, (BLOCK, batch))


def train_one(
    factory: Factory,
    inputs: Source,
    targets: Source,
    *,
    training: Training,
    seed: int,
    teacher: int,
    tick: Tick,
    rows: Tensor | None = None,
    start: State | None = None,
) -> State:
    """Train one teacher on its shard, all records or `rows` of them: the sequential loop, and the yardstick of every engine."""
    device, stream = inputs.device, Stream(seed, teacher, inputs.device)
    network = stream.build(factory)
    if start is not None:
        network.load_state_dict(start)
    network.to(device)
    optimizer = training.optimize(list(network.parameters()))
    order = stream.order(len(inputs) if rows is None else len(rows), training.steps * training.batch)
    order = (order if rows is None else rows[order]).unflatten(0, (training.steps, training.batch))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(stream.weights)  # dropout and its like
        for step in range(training.steps):
            images, wanted = as_float(inputs[order[step]]), targets[order[step]]  # (batch, ...)
            if training.augmentation:
                if step % BLOCK == 0:
                    draws = stream.draws(training.augmentation, training.batch)
                images, wanted = distorted(training.augmentation, images, wanted, draws[step % BLOCK])
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=training.half(device)):
                scores = network(images)
            loss = measure(scores.float(), wanted, smoothing=training.smoothing)
            optimizer.zero_grad()
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = training.rate_at(step)
            optimizer.step()
            if (step + 1) % BLOCK == 0 or step + 1 == training.steps:
                tick(step % BLOCK + 1)
    return {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}


def train_stack(
    factory: Factory,
    inputs: Source,
    targets: Source,
    shards: Sequence[Tensor],
    *,
    training: Training,
    seed: int,
    teachers: Sequence[int],
    tick: Tick,
    compiled: bool,
    products: bool,
    start: Sequence[State] | None = None,
    bookmark: Bookmark | None = None,
) -> State:
    """Train several teachers in lockstep on stacked weights: every operation runs once for all of them."""
    device, batch = inputs.device, training.batch
    streams = [Stream(seed, teacher, device) for teacher in teachers]
    networks = [stream.build(factory) for stream in streams]
    for network, state in zip(networks, start or (), strict=False):
        network.load_state_dict(state)
    template = (as_products(networks[0]) if products else networks[0]).to(device)
    parameters = {
        name: torch.stack([dict(network.named_parameters())[name].detach() for network in networks]).to(device)
        for name, _ in networks[0].named_parameters()
    }  # each (teachers, ...)
    buffers = {
        name: torch.stack([dict(network.named_buffers())[name] for network in networks]).to(device)
        for name, _ in networks[0].named_buffers()
    }
    optimizer = training.optimize(list(parameters.values()))
    rows = torch.stack(
        [shard[stream.order(len(shard), training.steps * batch)] for shard, stream in zip(shards, streams, strict=True)]
    ).unflatten(1, (training.steps, batch))  # (teachers, steps, batch)
    step_of = Step(template, training, device)
    prepare, differentiate = step_of.prepare, step_of.differentiate
    if compiled:
        prepare = compile_or_not(prepare, "augmentation")
        differentiate = compile_or_not(differentiate, "training step")
    draws: Tensor | None = None
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(streams[0].weights)  # dropout and its like
        learning = Learning(parameters, optimizer, streams, device)
        before = bookmark.kept(teachers, device) if bookmark else None
        begin = learning.restore(before) if before else 0
        if begin:
            tick(begin * len(teachers))
        for step in range(begin, training.steps):
            if bookmark and step % BLOCK == 0 and step > begin and bookmark.due():
                bookmark.keep(teachers, device, learning.state(step))
            if training.augmentation and step % BLOCK == 0:
                draws = torch.stack([stream.draws(training.augmentation, batch) for stream in streams], dim=1)
            now = None if draws is None else draws[step % BLOCK]  # (teachers, batch, draws)
            # Read before anything compiled begins: how many records there are must not shape a kernel.
            images, wanted = prepare(inputs[rows[:, step]], targets[rows[:, step]], now)
            gradients = differentiate(parameters, buffers, images, wanted)
            for name, parameter in parameters.items():
                parameter.grad = gradients[name]
            for group in optimizer.param_groups:
                group["lr"] = training.rate_at(step)
            optimizer.step()
            if (step + 1) % BLOCK == 0 or step + 1 == training.steps:
                tick((step % BLOCK + 1) * len(teachers))
    return {name: tensor.cpu() for name, tensor in (parameters | buffers).items()}


@final
class Learning:
    """Put all that a stack's next step depends on into one set of tensors, and take it back: nothing else moves meanwhile."""

    def __init__(
        self, parameters: State, optimizer: torch.optim.Optimizer, streams: Sequence[Stream], device: torch.device
    ) -> None:
        self.parameters, self.optimizer, self.streams, self.device = parameters, optimizer, streams, device

    def state(self, step: int) -> State:
        """Give it at the beginning of a block of steps, before the block's randomness is drawn."""
        given = {"step": torch.tensor(step), "random": torch.get_rng_state()}
        given["streams"] = torch.stack([stream.generator.get_state() for stream in self.streams])
        if self.device.type == "cuda":
            given["random.cuda"] = torch.cuda.get_rng_state(self.device)
        for name, parameter in self.parameters.items():
            given[f"weights.{name}"] = parameter
            given |= {f"moments.{key}.{name}": tensor for key, tensor in self.optimizer.state[parameter].items()}
        return given

    def restore(self, given: State) -> int:
        """Take it back, and give the step to go on with."""
        torch.set_rng_state(given["random"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(given["random.cuda"], self.device)
        for stream, state in zip(self.streams, given["streams"], strict=True):
            stream.generator.set_state(state.clone())  # it reads a whole storage, and a row is a part of one
        for name, parameter in self.parameters.items():
            parameter.copy_(given[f"weights.{name}"])
            self.optimizer.state[parameter] = {
                key.split(".")[1]: tensor.to(self.device)
                for key, tensor in given.items()
                if key.startswith("moments.") and key.split(".", 2)[2] == name
            }
        return int(given["step"])


@final
class Step:
    """Hold the two pure halves of a stacked step, each small enough to be compiled whole."""

    def __init__(self, template: nn.Module, training: Training, device: torch.device) -> None:
        self.template, self.training, self.device = template, training, device
        self.gradient = torch.func.vmap(grad_and_value(self.loss), in_dims=(0, 0, 0, 0), randomness="different")

    def loss(self, parameters: State, buffers: State, images: Tensor, wanted: Tensor) -> Tensor:
        """Measure one network on its own batch."""
        # No weight cache: a cast remembered inside a transform would outlive it.
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.training.half(self.device), cache_enabled=False):
            scores = functional_call(self.template, (parameters, buffers), (images,))
        return measure(scores.float(), wanted, smoothing=self.training.smoothing)

    def prepare(self, images: Tensor, wanted: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        """Distort every network's batch: (teachers, batch, ...) twice."""
        images = as_float(images)
        if self.training.augmentation and draws is not None:
            images, wanted = distorted(self.training.augmentation, images, wanted, draws)
        return images, wanted

    def differentiate(self, parameters: State, buffers: State, images: Tensor, wanted: Tensor) -> State:
        """Take every network's gradient at once."""
        gradients, _ = self.gradient(parameters, buffers, images, wanted)
        # The fused optimizers read memory in order and do not look at strides.
        return {name: gradient.contiguous() for name, gradient in gradients.items()}


def distorted(augmentation: Augmentation | Warp, images: Tensor, targets: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Distort images, and with them what lies on their pixels: masks move along, labels stay."""
    if isinstance(augmentation, Augmentation):
        return augmentation.apply(images, draws), targets
    if targets.dtype == torch.int64:
        return augmentation.images(images, draws), targets
    return augmentation.both(images, targets, draws)
