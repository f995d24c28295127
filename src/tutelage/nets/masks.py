"""One trained network for masks: what a student of masks becomes, and what may be published."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from tutelage.data.accepted import Accepted
from tutelage.data.dataset import Public
from tutelage.data.mapped import forget
from tutelage.metrics import best_threshold
from tutelage.nets.answering import answer
from tutelage.nets.inputs import arranged, as_float, as_inputs, pick_device
from tutelage.nets.networks import Factory, describe, restore
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.privacy.errors import DataError, RecipeError

KIND = "tutelage.masks/1"
PIXELS = 1 << 21  # per forward pass


@final
class MaskModel:
    """Hold a factory, the weights that its network learned, and from which share on a pixel belongs to the mask.

    Inputs larger than `window` are looked at through windows that overlap by half, and what they say is averaged.
    """

    def __init__(
        self,
        factory: Factory,
        state: dict[str, Tensor],
        *,
        threshold: float = 0.5,
        window: tuple[int, ...] | None = None,
        device: str = "auto",
        began: MaskModel | None = None,
        accepted: Accepted | None = None,
    ) -> None:
        if not 0 < threshold < 1:
            raise RecipeError(f"`threshold` must lie in (0, 1). Got {threshold!r} instead.")
        self.factory, self.threshold, self.device, self.began = factory, float(threshold), device, began
        self.window = None if window is None else tuple(window)
        self.accepted = accepted  # None: whatever the network takes
        self.state = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    @property
    def beginning(self) -> MaskModel:
        """Give the model that this one began as: a latent student's is the mean shape's."""
        return self if self.began is None else self.began.beginning

    def probabilities(self, inputs: Any) -> np.ndarray:
        """Give every pixel's share: (records, *space) float32. An input's do not depend on its company."""
        place, queries = pick_device(self.device), self._accept(np.asarray(inputs))
        space = arranged(queries).shape[2:]
        network = self.factory().eval()
        network.load_state_dict(self.state)
        network.to(place)
        step = max(1, PIXELS // max(1, int(np.prod(space))))
        shares = np.empty((len(queries), *space), dtype=np.float32)
        with torch.inference_mode():
            for start in range(0, len(queries), step):  # they may be mapped, and more than memory holds
                part = slice(start, start + step)
                shares[part] = self._judged(network, as_float(as_inputs(queries[part]).to(place))).cpu().numpy()
                forget(queries)
        return shares

    def _accept(self, inputs: np.ndarray) -> np.ndarray:
        return inputs if self.accepted is None else self.accepted(inputs, any_size=self.window is not None)

    def _judged(self, network: nn.Module, block: Tensor) -> Tensor:
        space = tuple(block.shape[2:])
        if self.window is None or all(have <= want for have, want in zip(space, self.window, strict=True)):
            return network(block).float().sigmoid()[:, 0]
        total, seen = torch.zeros_like(block[:, 0]), torch.zeros_like(block[0, 0])
        for place in windows(space, self.window):
            total[(slice(None), *place)] += network(block[(slice(None), slice(None), *place)]).float().sigmoid()[:, 0]
            seen[place] += 1
        return total / seen

    def settle(self, public: Public) -> MaskModel:
        """Choose the threshold, and that of the model this one began as, on public masks; give the same model."""
        self.threshold = best_threshold(self.probabilities(public.inputs), public)
        if self.began is not None:
            self.began.settle(public)
        return self

    def predict(self, inputs: Any) -> np.ndarray:
        """Give masks: (records, *space) uint8."""
        return (self.probabilities(inputs) > self.threshold).astype(np.uint8)

    def save(self, path: str | Path) -> Path:
        """Write weights, architecture, threshold, window and what it takes to one safetensors file."""
        target = Path(path).with_suffix(".safetensors")
        told = {"kind": KIND, "network": describe(self.factory), "threshold": repr(self.threshold)}
        if self.window is not None:
            told["window"] = ",".join(map(str, self.window))
        if self.accepted is not None:
            told["accepted"] = self.accepted.plain()
        write_tensors(target, self.state, told, private=False)
        return target

    @classmethod
    def load(cls, path: str | Path, *, factory: Factory | None = None, device: str = "auto") -> MaskModel:
        """Read a model back; a network that is not from `tutelage.nets` needs its factory again."""
        state, told = read_tensors(path, kind=KIND)
        try:
            threshold = float(told["threshold"])
            window = tuple(int(size) for size in told["window"].split(",")) if "window" in told else None
        except (KeyError, ValueError):
            raise DataError("`path` must name a model of masks as this package writes them. Got another file instead.") from None
        accepted = Accepted.read(told["accepted"]) if "accepted" in told else None
        given: dict[str, Any] = {"threshold": threshold, "window": window, "accepted": accepted}
        return cls(factory or restore(told["network"]), state, device=device, **given)

    def __repr__(self) -> str:
        return f"MaskModel({describe(self.factory)})"


def check_sight(factory: Factory, inputs: Any, through: Iterable[tuple[int, ...] | None]) -> None:
    """Refuse a network that has no share for each pixel of such images, or of what it sees of them through these windows."""
    channels, *space = arranged(np.asarray(inputs[:1])).shape[1:]
    for window in through:
        seen = looked_at(window, tuple(space))
        if answer(factory, (channels, *seen)) != (1, *seen):
            name, size = ("network", describe(factory)) if window is None else ("window", repr(window))
            raise RecipeError(
                f"`{name}` must let the network answer one number per pixel of {channels} channels of {seen}. Got {size} instead."
            )


def looked_at(window: tuple[int, ...] | None, space: tuple[int, ...]) -> tuple[int, ...]:
    """Give the size of what a network sees in one go: all of a space, or no more of it than a window."""
    if window is None:
        return space
    if not isinstance(window, (tuple, list)) or len(window) != len(space):
        raise RecipeError(f"`window` must have {len(space)} sizes, one per side. Got {window!r} instead.")
    return tuple(min(have, want) for have, want in zip(space, window, strict=True))


def windows(space: tuple[int, ...], window: tuple[int, ...] | None, *, overlap: bool = True) -> Iterator[tuple[slice, ...]]:
    """Cover a space by windows of one size that overlap by half, or lie side by side; the last ones end where the space ends."""
    starts = []
    for have, size in zip(space, looked_at(window, space), strict=True):
        steps = range(0, max(1, have - size + 1), max(1, size // 2 if overlap else size))
        starts.append([(start, start + size) for start in sorted({*steps, have - size})])
    for corner in itertools.product(*starts):
        yield tuple(slice(start, end) for start, end in corner)
