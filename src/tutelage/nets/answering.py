"""What a network would answer, asked with shapes alone: before anybody has paid for what it is to learn."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from tutelage.nets.networks import Factory

LARGE = 1 << 18  # numbers of an input that are not worth computing an answer to, only to see its shape


def answer(factory: Factory, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Give the shape of a network's answer to one input of this shape, without the batch; none where it fails on it."""
    with torch.random.fork_rng(devices=[]):
        network = copy.deepcopy(factory())  # a factory may give the same one twice
    try:
        found = blank(network, shape)
    except Exception:  # a network may be somebody else's code: whatever it raises, it has no answer
        return None
    return tuple(found.shape[1:]) if isinstance(found, Tensor) else None


def blank(network: nn.Module, shape: tuple[int, ...]) -> Any:
    """Answer one blank input, a large one in outline alone: to compute it for a window of a brain takes a CPU seconds.

    A network that hangs on values, or on what has no outline, is asked for real.
    """
    with torch.no_grad():
        if math.prod(shape) > LARGE:
            try:
                with torch.device("meta"):
                    return copy.deepcopy(network).to("meta").eval()(torch.zeros(1, *shape))
            except Exception:  # whatever somebody else's code raises where there are no numbers
                pass
        return network.eval()(torch.zeros(1, *shape))
