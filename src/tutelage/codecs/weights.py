"""The weights of a codec that is a network: checked once, never written again, and put into a network where one is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tutelage.nets.inputs import pick_device
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
Network = TypeVar("Network", bound=nn.Module)


def settled(weights: Mapping[str, Array], hollow: nn.Module) -> dict[str, Array]:
    """Copy the weights of this network, in its order, so that nobody can change them; refuse those of another."""
    wanted = {name: tuple(tensor.shape) for name, tensor in hollow.state_dict().items()}
    if {name: np.shape(array) for name, array in weights.items()} != wanted:
        raise DataError("`weights` must be those of the network that the other fields describe. Got others instead.")
    kept = {name: np.array(weights[name], dtype=np.float32) for name in wanted}
    if not all(np.isfinite(array).all() for array in kept.values()):
        raise DataError("`weights` must be finite: a training that diverged wants a smaller `rate`. Got others instead.")
    for array in kept.values():
        array.flags.writeable = False  # the codec's repr names these numbers
    return kept


def filled(hollow: Network, weights: Mapping[str, Array], device: str) -> tuple[Network, torch.device]:
    """Put weights into a network that was built without numbers."""
    network, place = hollow.eval().requires_grad_(False), pick_device(device)
    state = {name: torch.from_numpy(array.copy()).to(place) for name, array in weights.items()}
    network.load_state_dict(state, assign=True)
    return network, place
