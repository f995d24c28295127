"""Several small networks that judge one region at a time: what a student of regions becomes, and what may be published."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from tutelage.data.accepted import Accepted
from tutelage.nets.crops import SIDE, Crops, Cut
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.networks import Factory, describe, restore
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.nets.training import State
from tutelage.privacy.errors import DataError, RecipeError

KIND = "tutelage.regions/1"
_BLOCK = 2048  # crops per forward pass


@final
class RegionModel:
    """Hold how images are cut, and the stacked weights of networks that judge every region together, by their mean.

    A mask is the region that they are surest of, or empty where they are less sure than `threshold`.
    """

    def __init__(
        self,
        cut: Cut,
        factory: Factory,
        state: State,
        *,
        side: int = SIDE,
        threshold: float | None = None,
        device: str = "auto",
        accepted: Accepted | None = None,
    ) -> None:
        self.threshold = cut.share if threshold is None else float(threshold)
        if not 0 < self.threshold < 1:
            raise RecipeError(f"`threshold` must lie in (0, 1). Got {threshold!r} instead.")
        self.cut, self.factory, self.side, self.device = cut, factory, side, device
        self.accepted = accepted  # None: whatever can be cut
        self.state = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}  # each (members, ...)
        if len({len(tensor) for tensor in self.state.values()}) != 1:
            raise DataError("`state` must hold stacked tensors of equally many networks. Got others instead.")

    def __len__(self) -> int:
        return len(next(iter(self.state.values())))

    def judge(self, pictures: Any) -> np.ndarray:
        """Say how likely each crop (crops, 2, side, side) is the object's: (crops,) float32, whatever its company."""
        place, total = pick_device(self.device), np.zeros(len(pictures), dtype=np.float32)
        if not len(total):
            return total
        queries = as_inputs(pictures)
        for member in range(len(self)):
            network = self.factory().eval()
            network.load_state_dict({name: tensor[member] for name, tensor in self.state.items()})
            network.to(place)
            with torch.inference_mode():
                blocks = [network(as_float(block.to(place))).float().softmax(1)[:, 1].cpu() for block in queries.split(_BLOCK)]
            total += torch.cat(blocks).numpy()
        return total / len(self)

    def choose(self, crops: Crops) -> np.ndarray:
        """Choose a region of every image, or none: (images,)."""
        return crops.chosen(self.judge(crops.pictures), self.threshold)

    def predict(self, inputs: Any) -> np.ndarray:
        """Give masks: (records, *space) uint8."""
        given = np.asarray(inputs) if self.accepted is None else self.accepted(inputs)
        seen = self.cut.seeing(given)
        return np.asarray(
            seen.decode(self.choose(Crops.of(seen.labels, self.cut.regions, side=self.side, device=self.device)), given)
        )

    def save(self, path: str | Path) -> Path:
        """Write weights, architecture, and how images are cut and judged, to one safetensors file."""
        target = Path(path).with_suffix(".safetensors")
        told = {"kind": KIND, "network": describe(self.factory), "side": str(self.side), "threshold": repr(self.threshold)}
        told["cut"] = json.dumps({"kind": type(self.cut).__name__, **asdict(self.cut)}, sort_keys=True)
        if self.accepted is not None:
            told["accepted"] = self.accepted.plain()
        write_tensors(target, self.state, told, private=False)
        return target

    @classmethod
    def load(
        cls, path: str | Path, cut: Callable[..., Cut], *, factory: Factory | None = None, device: str = "auto"
    ) -> RegionModel:
        """Read a model back. `cut` is the class that cuts images (`RegionVotes`); its settings are in the file.

        A network that is not from `tutelage.nets` needs its factory again.
        """
        state, told = read_tensors(path, kind=KIND)
        try:
            settings = json.loads(told["cut"])
            kind, side, threshold = settings.pop("kind"), int(told["side"]), float(told["threshold"])
        except (KeyError, ValueError):
            raise DataError(
                "`path` must name a model of regions as this package writes them. Got another file instead."
            ) from None
        if getattr(cut, "__name__", None) != kind:
            raise RecipeError(f"`cut` must be {kind}, which this model was trained with. Got {cut!r} instead.")
        settings["shape"] = tuple(settings["shape"])
        network = factory or restore(told["network"])
        accepted = Accepted.read(told["accepted"]) if "accepted" in told else None
        return cls(cut(**settings), network, state, side=side, threshold=threshold, device=device, accepted=accepted)

    def __repr__(self) -> str:
        return f"RegionModel({len(self)} of {describe(self.factory)})"
