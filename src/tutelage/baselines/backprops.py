"""One gradient per unit out of one backward pass: library kernels to the layers, Opacus's samplers from there to the weights.

A stacked convolution of volumes is slow on a GPU, forwards and back. Here the whole batch goes through the network as one, and
only the last step, from what a layer saw and was blamed for to its weights, is taken unit by unit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tutelage.baselines.gradients import Weights, half
from tutelage.nets.losses import measure
from tutelage.nets.slices import Slices

WEIGHTED = (nn.Conv2d, nn.Conv3d, nn.Linear, nn.GroupNorm)
PLAIN = (nn.Sequential, nn.ModuleList, nn.ReLU, nn.Identity, nn.Flatten, nn.AdaptiveAvgPool2d)


def samplers() -> dict[type[nn.Module], Any]:
    """Give Opacus's functions from a layer's inputs and slopes to one gradient per record, by the kind of layer."""
    from opacus.grad_sample import GradSampleModule

    return dict(GradSampleModule.GRAD_SAMPLERS)


def sampled(network: nn.Module) -> bool:
    """Tell whether no layer mixes records, and Opacus's samplers are right for every weight.

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
    if isinstance(layer, Slices):  # its layers see slices in place of records
        return False
    own = type(layer).__module__.startswith("tutelage.nets.") and not list(layer.parameters(recurse=False))
    return own or type(layer) in (*WEIGHTED, *PLAIN)


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
    known = samplers()
    with torch.no_grad():
        for (layer, given, _), slope in zip(seen, slopes, strict=True):
            for parameter, rows in known[type(layer)](layer, [given.to(slope.dtype)], slope).items():
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
