"""One trained network: what a student becomes, and what may be published."""

from __future__ import annotations

import json
from abc import ABC
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from tutelage.data.accepted import Accepted
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.networks import Factory, describe, restore
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.privacy.errors import DataError, RecipeError

KIND = "tutelage.model/1"
BLOCK = 512  # inputs per forward pass


@final
class Model:
    """Hold a factory, the weights that its network learned, and from how many slightly distorted views it judges an input."""

    def __init__(
        self,
        factory: Factory,
        state: dict[str, Tensor],
        *,
        device: str = "auto",
        views: int = 1,
        distortion: Augmentation | None = None,
        accepted: Accepted | None = None,
    ) -> None:
        if not (isinstance(views, int) and views >= 1 and (views == 1 or distortion is not None)):
            raise RecipeError(f"`views` must be a whole number ≥ 1, and above 1 come with a distortion. Got {views!r} instead.")
        self.factory, self.device, self.views, self.distortion = factory, device, views, distortion
        self.accepted = accepted  # None: whatever the network takes
        self.state = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def probabilities(self, inputs: Any) -> np.ndarray:
        """Give class probabilities: (records, classes) float32. An input's do not depend on its company."""
        given = inputs if self.accepted is None else self.accepted(inputs)
        place, queries = pick_device(self.device), as_inputs(given)
        network = self.factory().eval()
        network.load_state_dict(self.state)
        network.to(place)
        with torch.inference_mode():
            blocks = [self._judged(network, as_float(block.to(place))).cpu() for block in queries.split(BLOCK)]
        return torch.cat(blocks).numpy()

    def _judged(self, network: torch.nn.Module, block: Tensor) -> Tensor:
        """Average over the input as it is and its views, each distorted in one fixed way."""
        shares = network(block).float().softmax(dim=1)
        if self.distortion is None or self.views == 1:
            return shares
        draws = self.distortion.draw(self.views - 1, generator=torch.Generator().manual_seed(0)).to(block.device)
        for draw in draws:
            shares = shares + network(self.distortion.apply(block, draw.expand(len(block), -1))).float().softmax(dim=1)
        return shares / self.views

    def predict(self, inputs: Any) -> np.ndarray:
        """Give labels: (records,) int64."""
        return self.probabilities(inputs).argmax(axis=1)

    def save(self, path: str | Path) -> Path:
        """Write weights, architecture, views and what it takes to one safetensors file."""
        target = Path(path).with_suffix(".safetensors")
        told = {"kind": KIND, "network": describe(self.factory), "views": str(self.views)}
        if self.distortion is not None:
            told["distortion"] = json.dumps(asdict(self.distortion), sort_keys=True)
        if self.accepted is not None:
            told["accepted"] = self.accepted.plain()
        write_tensors(target, self.state, told, private=False)
        return target

    @classmethod
    def load(cls, path: str | Path, *, factory: Factory | None = None, device: str = "auto") -> Model:
        """Read a model back; a network that is not from `tutelage.nets` needs its factory again."""
        state, told = read_tensors(path, kind=KIND)
        distortion = Augmentation(**json.loads(told["distortion"])) if "distortion" in told else None
        views = int(told.get("views", 1))
        accepted = Accepted.read(told["accepted"]) if "accepted" in told else None
        given: dict[str, Any] = {"views": views, "distortion": distortion, "accepted": accepted}
        return cls(factory or restore(told["network"]), state, device=device, **given)

    def __repr__(self) -> str:
        return f"Model({describe(self.factory)})"


class Taught(ABC):  # noqa: B024
    """Hold what a student's training gave: a base for students that become a `Model`."""

    def __init__(self) -> None:
        self._model: Model | None = None

    @property
    def model(self) -> Model:
        """Give the trained model."""
        if self._model is None:
            raise DataError("`student` must be fitted before it predicts. Got none instead.")
        return self._model

    def predict(self, inputs: Any) -> np.ndarray:
        """Give labels (records,)."""
        return self.model.predict(inputs)

    def save(self, path: str | Path) -> Path:
        """Store the model without pickle; the ending says how to read it."""
        return self.model.save(path)
