"""What a network would answer, asked with shapes alone: before anybody has paid for what it is to learn."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from tutelage.nets.networks import Factory


def answer(factory: Factory, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Give the shape of a network's answer to one input of this shape, without the batch; none where it fails on it.

    Nothing is computed. A network that does not work without numbers is given some, blank ones, before it counts as failing.
    """
    with torch.random.fork_rng(devices=[]):
        network = copy.deepcopy(factory()).eval()  # it is emptied, and a factory may give the same one twice
    for device, some in (("meta", copy.deepcopy(network).to("meta")), ("cpu", network)):
        try:
            with torch.device(device), torch.no_grad():
                found = some(torch.zeros(1, *shape))
        except Exception:  # a network may be somebody else's code: whatever it raises, it has no answer
            continue
        return tuple(found.shape[1:]) if isinstance(found, Tensor) else None
    return None
