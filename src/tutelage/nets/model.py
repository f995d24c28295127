"""One trained network: what a student becomes, and what may be published."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.networks import Factory, describe, restore
from tutelage.nets.storage import read_tensors, write_tensors

KIND = "tutelage.model/1"
BLOCK = 512  # inputs per forward pass


@final
class Model:
    """Hold a factory and the weights that its network learned."""

    def __init__(self, factory: Factory, state: dict[str, Tensor], *, device: str = "auto") -> None:
        self.factory, self.device = factory, device
        self.state = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def probabilities(self, inputs: Any) -> np.ndarray:
        """Give class probabilities: (records, classes) float32."""
        place, queries = pick_device(self.device), as_inputs(inputs)
        network = self.factory().eval()
        network.load_state_dict(self.state)
        network.to(place)
        with torch.inference_mode():
            blocks = [network(as_float(block.to(place))).float().softmax(dim=1).cpu() for block in queries.split(BLOCK)]
        return torch.cat(blocks).numpy()

    def predict(self, inputs: Any) -> np.ndarray:
        """Give labels: (records,) int64."""
        return self.probabilities(inputs).argmax(axis=1)

    def save(self, path: str | Path) -> Path:
        """Write weights and architecture to one safetensors file."""
        target = Path(path).with_suffix(".safetensors")
        write_tensors(target, self.state, {"kind": KIND, "network": describe(self.factory)}, private=False)
        return target

    @classmethod
    def load(cls, path: str | Path, *, factory: Factory | None = None, device: str = "auto") -> Model:
        """Read a model back; a network that is not from `tutelage.nets` needs its factory again."""
        state, metadata = read_tensors(path, kind=KIND)
        return cls(factory or restore(metadata["network"]), state, device=device)

    def __repr__(self) -> str:
        return f"Model({describe(self.factory)})"
