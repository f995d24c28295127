"""Several networks of one kind as one: stacked weights, and the gradient of all of them in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tutelage.nets.networks import Factory
from tutelage.nets.products import as_products
from tutelage.nets.training import State

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Measure scores (batch, classes) against soft labels (batch, classes)."""
    return -(targets * scores.log_softmax(dim=1)).sum(dim=1).mean()


@final
class Stack:
    """Hold one network as a template, and call it with the weights of any number of its kind.

    Weights are a dictionary of tensors (networks, ...). On a GPU convolutions are written as matrix products, so that those of
    all networks are one batched product; a CPU runs them as convolutions, network by network, which is faster there.
    """

    def __init__(self, factory: Factory, *, device: torch.device, half: bool = False) -> None:
        self.factory, self.device, self.half = factory, device, half
        network = factory()
        template = as_products(network) if device.type == "cuda" else network
        self.template: nn.Module = template.to(device).requires_grad_(False)
        self.names = [name for name, _ in network.named_parameters()]
        if list(network.named_buffers()):
            raise ValueError("a stack takes networks without buffers")

    def start(self, seeds: Sequence[int]) -> State:
        """Draw initial weights, one network a seed: the same on every device."""
        networks = []
        for seed in seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                networks.append(dict(self.factory().named_parameters()))
        return {name: torch.stack([network[name].detach() for network in networks]).to(self.device) for name in self.names}

    def scores(self, weights: State, images: Tensor) -> Tensor:
        """Give one network's scores; weights without a leading axis: (batch, classes)."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half, cache_enabled=False):
            given: Tensor = functional_call(self.template, weights, (images,))
        return given.float() if given.dtype == torch.bfloat16 else given

    def all_scores(self, weights: State, images: Tensor) -> Tensor:
        """Give every network's scores of its own images: (networks, batch, classes)."""
        return vmap(self.scores)(weights, images)

    def gradients(self, weights: State, images: Tensor, targets: Tensor, *, loss: Loss = cross_entropy) -> State:
        """Take every network's gradient on its own batch (networks, batch, ...)."""

        def measured(own: State, seen: Tensor, wanted: Tensor) -> Tensor:
            return loss(self.scores(own, seen), wanted)

        if self.device.type == "cuda":
            return vmap(grad(measured), randomness="different")(weights, images, targets)
        rows = [
            grad(measured)({name: value[i] for name, value in weights.items()}, images[i], targets[i]) for i in range(len(images))
        ]
        return {name: torch.stack([row[name] for row in rows]) for name in weights}


def one_of(weights: State, index: int) -> State:
    """Take one network out of a stack, on the CPU."""
    return {name: value[index].detach().cpu().clone() for name, value in weights.items()}
