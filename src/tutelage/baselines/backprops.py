"""One gradient per unit out of one backward pass: library kernels to the layers, samplers from there to the weights.

A stacked convolution of volumes is slow on a GPU, forwards and back. Here the whole batch goes through the network as one, and
only the last step, from what a layer saw and was blamed for to its weights, is taken unit by unit: by Opacus's samplers, and
for convolutions on a CPU by one of our own, which copies no patches.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tutelage.baselines.gradients import Weights, half
from tutelage.nets.layers import Halve, Standardise
from tutelage.nets.losses import measure
from tutelage.nets.networks import Block
from tutelage.nets.unet import Levels, Twice

WEIGHTED = (nn.Conv2d, nn.Conv3d, nn.Linear, nn.GroupNorm)
PLAIN = (nn.Sequential, nn.ModuleList, nn.ReLU, nn.Identity, nn.Flatten, nn.AdaptiveAvgPool2d)
OWN = (Levels, Twice, Block, Halve, Standardise)  # that leave a record where it stands; `Slices` puts slices in its place


def sampler(layer: nn.Module, device: torch.device) -> Any:
    """Give the function from a layer, its inputs and slopes to one gradient per record of each of its weights."""
    from opacus.grad_sample import GradSampleModule

    if device.type == "cpu" and isinstance(layer, (nn.Conv2d, nn.Conv3d)) and not isinstance(layer.padding, str):
        return convolved
    return GradSampleModule.GRAD_SAMPLERS[type(layer)]


def convolved(layer: nn.Conv2d | nn.Conv3d, inputs: list[Tensor], slopes: Tensor) -> Weights:
    """Take one gradient per record of a convolution's weights: all records side by side, each a group of its own.

    On a CPU a library's kernel for groups does that faster than Opacus, which writes down every patch of every record first:
    whole networks of volumes by a factor of five, of images by one to two and a half (benchmarks/gradients.py).
    """
    [given], records = inputs, len(slopes)
    weight = torch.nn.grad.conv2d_weight if isinstance(layer, nn.Conv2d) else torch.nn.grad.conv3d_weight
    found = weight(
        given.flatten(0, 1)[None],
        [records * layer.out_channels, *layer.weight.shape[1:]],
        slopes.flatten(0, 1)[None],
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=records * layer.groups,
    )
    rows = {layer.weight: found.unflatten(0, (records, layer.out_channels))}
    return rows if layer.bias is None else {**rows, layer.bias: slopes.flatten(2).sum(2)}


def sampled(network: nn.Module) -> bool:
    """Tell whether no layer mixes records, and the samplers are right for every weight.

    One at a time a stranger's layer cannot mix what it never sees together; in a batch it can. So strangers are not let in.
    """
    layers = list(network.modules())
    held = [id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)]
    return all(_known(layer) for layer in layers) and len(held) == len(set(held))


def _known(layer: nn.Module) -> bool:
    if isinstance(layer, (nn.Conv2d, nn.Conv3d)) and layer.padding_mode != "zeros":  # Opacus pads with zeros, whatever it says
        return False
    if getattr(layer, "inplace", False):  # it would overwrite what the layer before it gave
        return False
    if isinstance(layer, nn.Flatten) and layer.start_dim != 1:
        return False
    return type(layer) in (*WEIGHTED, *PLAIN, *OWN)


def backward_gradients(network: nn.Module, weights: Weights, images: Tensor, targets: Tensor) -> Weights:
    """Give what `unit_gradients` gives where all units hold the network's weights: name → (units, ...).

    images (units, views, ...), targets (units, views, ...). Nothing in the network mixes records, and a loss is a mean over
    them, so a record's slopes are its own, whatever the others hold; what is not a number counts as zero, as there.
    """
    units, views = images.shape[:2]
    names = {id(tensor): name for name, tensor in weights.items()}
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []
    handles = [
        layer.register_forward_hook(lambda layer, inputs, output: seen.append((layer, inputs[0].detach(), output)))
        for layer in network.modules()
        if any(id(parameter) in names for parameter in layer.parameters(recurse=False))
    ]
    try:
        with half(images.device):
            scores = network(_arranged(images.flatten(0, 1)))
    finally:
        for handle in handles:
            handle.remove()
    # The mean over all records, times the units: the sum over units of the mean over their views.
    loss = measure(scores.float(), targets.flatten(0, 1)) * units
    slopes = torch.autograd.grad(loss, [output for _, _, output in seen])  # to the layers' outputs, to no weight
    found: Weights = {}
    with torch.no_grad():
        for (layer, given, _), slope in zip(seen, slopes, strict=True):
            for parameter, rows in sampler(layer, slope.device)(layer, [given.to(slope.dtype)], slope).items():
                if id(parameter) not in names:
                    continue
                name, rows = names[id(parameter)], rows.float().unflatten(0, (units, views)).sum(1)
                found[name] = found[name] + rows if name in found else rows  # a layer that is passed twice
    return {name: found[name].nan_to_num(0.0, 0.0, 0.0) for name in weights}


def _arranged(images: Tensor) -> Tensor:
    """Lay images out in memory as a GPU's kernels like them."""
    if images.device.type != "cuda" or images.ndim not in (4, 5):
        return images
    return images.contiguous(memory_format=torch.channels_last if images.ndim == 4 else torch.channels_last_3d)
