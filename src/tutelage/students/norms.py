"""Layers that learn the direction of their weights, and whose lengths are set by what comes in (Salimans and Kingma 2016)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import is_parametrized


def one_norm(layer: nn.Module, deviation: float, *, free: bool) -> nn.Module:
    """Give a layer weights whose direction is learned, from numbers of this deviation; their length only where it is free."""
    weight_norm(layer, dim=1 if isinstance(layer, nn.ConvTranspose2d) else 0)
    weight = layer.parametrizations.weight  # original0: lengths, original1: directions
    with torch.no_grad():
        weight.original1.normal_(std=deviation)
        weight.original0.fill_(1.0)
        layer.bias.zero_()
    weight.original0.requires_grad_(free)
    return layer


@torch.no_grad()
def begin(chain: Iterable[nn.Module], x: Tensor, *, last: float) -> None:
    """Let every layer of one norm give mean 0 and deviation 1 on these inputs, and the last of them a deviation of its own."""
    layers = list(chain)
    normed = [layer for layer in layers if is_parametrized(layer)]
    for layer in layers:
        if is_parametrized(layer):
            lengths, given = layer.parametrizations.weight.original0, layer(x).transpose(0, 1).flatten(1)  # (channels, ...)
            # What says the same of every input stays small in place of growing without bound.
            scale = (last if layer is normed[-1] else 1.0) / given.std(dim=1, correction=0).clamp_min(1e-3)
            lengths.mul_(scale.view_as(lengths))
            layer.bias.copy_(-given.mean(dim=1) * scale)
        x = layer(x)


def levelled(norm: nn.Module) -> nn.Module:
    """Let batches be normalised to a free mean and to the deviation 1."""
    norm.weight.requires_grad_(False)
    return norm
