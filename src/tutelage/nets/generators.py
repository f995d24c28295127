"""A network that draws images of a declared class from random numbers."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.nets.inputs import pick_device
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
KIND = "tutelage.generator/1"
_BATCH = 500  # images drawn at once


@final
@dataclass(frozen=True)
class Drawing:
    """Describe a generator: the shape of its images (channels, side, side), the names of its classes, and how large it is."""

    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    latent: int = 64
    width: int = 128

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "classes", tuple(str(name) for name in self.classes))
        channels, side, other = self.shape
        if channels not in (1, 3) or side != other or side % 4 or side < 8:
            raise DataError(
                f"`shape` must be (1 or 3, side, side), the side a multiple of 4 and at least 8. Got {self.shape} instead."
            )
        if not self.classes or len(set(self.classes)) < len(self.classes):
            raise DataError("`classes` must be different names, at least one. Got others instead.")

    def built(self) -> GeneratorNetwork:
        """Build the network with fresh weights."""
        return GeneratorNetwork(self)


@final
class GeneratorNetwork(nn.Module):
    """One linear layer to a coarse map, then convolutions and doublings. Batch norm sees generated images alone."""

    def __init__(self, drawing: Drawing) -> None:
        super().__init__()
        self.drawing, self.classes, self.latent = drawing, len(drawing.classes), drawing.latent
        channels, side, _ = drawing.shape
        turns = 1 if side < 16 else 2 if side < 48 else 3
        widths = [drawing.width * 2**turn for turn in range(turns, -1, -1)]  # 4w, 2w, w
        self.coarse = (widths[0], side // 2**turns, side // 2**turns)
        self.start = nn.Linear(self.latent + self.classes, int(np.prod(self.coarse)))
        layers: list[nn.Module] = [nn.BatchNorm2d(widths[0]), nn.ReLU()]
        for before, after in itertools.pairwise(widths):
            layers += [nn.Upsample(scale_factor=2), nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Conv2d(widths[-1], channels, 3, padding=1))

    def forward(self, labels: Tensor, latent: Tensor) -> Tensor:
        """Draw images (n, channels, side, side) in 0…1 of classes (n,) from latent numbers (n, latent)."""
        given = torch.cat([latent, F.one_hot(labels, self.classes).to(latent.dtype)], 1)
        return torch.sigmoid(self.body(self.start(given).unflatten(1, self.coarse)).float())

    def settle(self, rounds: int = 20, per: int = 50) -> None:
        """Fix the statistics of batch norm from generated images of all classes alike, and stop learning."""
        place = next(self.parameters()).device
        labels = torch.arange(self.classes, device=place).repeat(per)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.reset_running_stats()
                layer.momentum = None  # the plain mean over rounds
        self.train()
        with torch.no_grad():
            for _ in range(rounds):
                self(labels, torch.randn(len(labels), self.latent, device=place))
        self.eval()


@final
class Generator:
    """Hold a fitted generator: draw labelled images from it, save it, load it. Drawing costs no privacy, however many."""

    def __init__(self, drawing: Drawing, state: dict[str, Tensor], *, device: str = "auto") -> None:
        self.drawing, self.device = drawing, device
        self.state = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    @property
    def classes(self) -> tuple[str, ...]:
        """Give the names of the classes."""
        return self.drawing.classes

    def number(self, label: str | int) -> int:
        """Give the number of a class by its name or number."""
        if str(label) in self.classes:
            return self.classes.index(str(label))
        if isinstance(label, (int, np.integer)) and 0 <= label < len(self.classes):
            return int(label)
        raise DataError(f"`label` must be one of {', '.join(self.classes)}. Got {label!r} instead.")

    def sample(self, n: int, label: str | int | None = None, *, random_state: int = 0) -> tuple[Array, Array]:
        """Draw images (n, channels, side, side) in 0…1 and their labels (n,): of one class, or of all of them in turn.

        The same `random_state` gives the same images; an image does not depend on how many are drawn after it.
        """
        if n < 1:
            raise DataError(f"`n` must be at least 1. Got {n} instead.")
        labels = np.arange(n) % len(self.classes) if label is None else np.full(n, self.number(label))
        place = pick_device(self.device)
        network = self.drawing.built()
        network.load_state_dict(self.state)
        network.to(place).eval()
        rng = np.random.Generator(np.random.PCG64(random_state))
        images = np.empty((n, *self.drawing.shape), dtype=np.float32)
        with torch.inference_mode():
            for start in range(0, n, _BATCH):
                some = labels[start : start + _BATCH]
                latent = rng.standard_normal((len(some), self.drawing.latent), dtype=np.float32)
                drawn = network(torch.as_tensor(some, device=place), torch.as_tensor(latent, device=place))
                images[start : start + len(some)] = drawn.cpu().numpy()
        return images, labels

    def save(self, path: str | Path) -> Path:
        """Write weights and description to one safetensors file."""
        target = Path(path).with_suffix(".safetensors")
        write_tensors(
            target, self.state, {"kind": KIND, "drawing": json.dumps(asdict(self.drawing), sort_keys=True)}, private=False
        )
        return target

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Generator:
        """Read a generator back; nothing in the file is executed."""
        state, metadata = read_tensors(path, kind=KIND)
        found = json.loads(metadata["drawing"])
        drawing = Drawing(tuple(found["shape"]), tuple(found["classes"]), int(found["latent"]), int(found["width"]))
        expected = {name: tensor.shape for name, tensor in drawing.built().state_dict().items()}
        if {name: tensor.shape for name, tensor in state.items()} != expected:
            raise DataError("`path` must hold the weights that its description asks for. Got others instead.")
        return cls(drawing, state, device=device)
