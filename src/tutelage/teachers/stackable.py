"""Any network as a stack wants it: every parameter learns, and every tensor has one name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import nn

from tutelage.nets.networks import Factory
from tutelage.nets.training import State


@final
@dataclass(frozen=True)
class Stackable:
    """Build networks whose frozen parameters are buffers: a stack lets all its parameters learn, as the loop does not."""

    factory: Factory

    def __call__(self) -> nn.Module:
        """Build one network; names and values are those of the factory's own."""
        network = self.factory()
        for module in network.modules():
            for name, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
                if not parameter.requires_grad:
                    delattr(module, name)
                    module.register_buffer(name, parameter)
        return network

    def completed(self, learned: State) -> State:
        """Give what a stack learned under the names of a network's file.

        A stack names a tensor that two layers share once, a file twice; a buffer that is not to be saved is in no file.
        """
        tensors, first = self().state_dict(keep_vars=True), dict[int, str]()
        for name, tensor in tensors.items():
            first.setdefault(id(tensor), name)
        return {name: learned[first[id(tensor)]] for name, tensor in tensors.items()}
