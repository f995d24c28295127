"""One gradient per unit, all units of a batch at once: for any network, and where every unit holds weights of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tutelage.nets.losses import measure
from tutelage.nets.networks import Factory, refuse_batch_mixing
from tutelage.nets.products import as_products

Weights = dict[str, Tensor]


def built(factory: Factory, *, seed: int, device: torch.device) -> nn.Module:
    """Build the network on the device, with weights that the seed decides."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU's alone, and put back afterwards
        network = factory()
    refuse_batch_mixing(network)
    return network.to(device).train()


def stacked(network: nn.Module) -> nn.Module:
    """Write convolutions as products where a GPU likes that: many networks side by side."""
    return as_products(network) if next(network.parameters()).device.type == "cuda" else network


def half(device: torch.device) -> torch.autocast:
    """Multiply in bfloat16 on a GPU, as every training here does; gradients are clipped, summed and noised in 32 bits."""
    # No weight cache: a cast remembered inside a transform would outlive it.
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False)


def trainable(network: nn.Module) -> Weights:
    """Name the parameters that training may move."""
    return {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}


def unit_gradients(network: nn.Module, weights: Weights, images: Tensor, targets: Tensor, *, shared: bool) -> Weights:
    """Give the gradient of each unit's mean loss over its views: name → (units, ...).

    images (units, views, ...), targets (units, views, ...). `shared`: all units hold the same weights; else each its own,
    stacked. Averaging inside the loss is averaging the views' gradients, before anything is clipped. What is not a number
    counts as zero: one record that breaks a loss must not reach the others' sum.
    """
    frozen = {name: tensor for name, tensor in network.state_dict(keep_vars=True).items() if name not in weights}

    def wrong(own: Weights, seen: Tensor, wanted: Tensor) -> Tensor:
        with half(seen.device):
            scores = functional_call(network, {**frozen, **own}, (seen,))
        return measure(scores.float(), wanted)

    each = vmap(grad(wrong), in_dims=(None if shared else 0, 0, 0), randomness="different")
    held = {name: tensor.detach() for name, tensor in weights.items()}
    return {name: slope.detach().nan_to_num(0.0, 0.0, 0.0) for name, slope in each(held, images, targets).items()}
