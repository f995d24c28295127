"""Improve a generator by class-wise second moments in scattering features and in features learned on generated images.

First moments of random features lose diversity: many images look alike. Covariances in features that tell classes apart bring it
back. The features follow from released sums alone, and are kept on disk so that a run that goes on asks the same question.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tutelage.features.scattering import Scattering
from tutelage.features.whitening import leading
from tutelage.nets import judges
from tutelage.nets.generators import Generator
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.privacy.queries import Form, Query
from tutelage.students.moments import Moments
from tutelage.tasks.statistics.functions import ClassMoments, Pixels
from tutelage.tasks.statistics.walk import Sum, Walk

Array = npt.NDArray[Any]
KIND = "tutelage.middle-features/1"


@final
class MiddleFeatures:
    """Give scattering and learned features on their principal axes, together of length 1 at most. No record touches another's."""

    def __init__(self, network: nn.Module, axes: tuple[Tensor, Tensor], place: str) -> None:
        self.network, self.axes = network.to(place).eval().requires_grad_(False), tuple(part.to(place) for part in axes)
        self.width = sum(part.shape[1] for part in self.axes)

    @classmethod
    def learned(cls, generator: Generator, axes: int, steps: int, place: str, random_state: int) -> MiddleFeatures:
        """Train a network on generated images and their classes, and find the axes on these images."""
        images, classes = generator.sample(8 * 500, random_state=random_state + 3)
        x, shape = torch.as_tensor(images, device=place), generator.drawing.shape
        network = judges.small_cnn(shape, len(generator.classes))
        network = judges.train_judge(
            network, x, torch.as_tensor(classes, device=place), steps=steps, batch=128, warp=0.5, random_state=random_state
        )
        found = []
        for function in (Scattering().tensors, lambda some: _body(network, some)):
            with torch.no_grad():
                rows = torch.cat([function(part) for part in x.split(250)])
            found.append(leading(rows.T @ rows, min(axes, rows.shape[1]))[1])
        return cls(network, (found[0], found[1]), place)

    def __call__(self, x: Tensor) -> Tensor:
        """Give features (n, width)."""
        return torch.cat([Scattering().tensors(x) @ self.axes[0], _body(self.network, x) @ self.axes[1]], 1) / math.sqrt(2)

    @property
    def key(self) -> str:
        """Hash everything that decides a value."""
        digest = hashlib.sha256()
        for name, tensor in sorted({**self.network.state_dict(), "a": self.axes[0], "b": self.axes[1]}.items()):
            digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def save(self, path: Path) -> None:
        """Write network and axes."""
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        write_tensors(path, {**tensors, "scattering": self.axes[0], "learned": self.axes[1]}, {"kind": KIND}, private=False)

    @classmethod
    def load(cls, path: Path, generator: Generator, place: str) -> MiddleFeatures:
        """Read them back."""
        tensors, _ = read_tensors(path, kind=KIND)
        network = judges.small_cnn(generator.drawing.shape, len(generator.classes))
        network.load_state_dict(
            {name.removeprefix("network."): one for name, one in tensors.items() if name.startswith("network.")}
        )
        return cls(network, (tensors["scattering"], tensors["learned"]), place)


def _body(network: nn.Module, x: Tensor) -> Tensor:
    """Give what a network's last layer sees, of length 1 at most."""
    for layer in list(network.children())[:-1]:
        x = layer(x)
    return x / (x.norm(dim=1, keepdim=True) + 1e-3)


def released_moments(
    walk: Walk, share: float, features: MiddleFeatures, pixels: Pixels, classes: int, place: str, say: Callable[..., None]
) -> Moments:
    """Release second moments by class, and give them as targets, with directions that drown in noise left out."""
    function = ClassMoments(features, features.width, pixels, features.key, device=place)
    what = Sum(share, Form.GRAM, function.width, norm=function.norm, groups=classes)
    query = Query.statistic(Form.GRAM, {"asks": "second moments by class", "features": features.key})
    grams = walk.once(function, what, query, progress=say)
    np.savez_compressed(walk.folder.private / "moments.npz", grams=grams.astype(np.float32))
    second, sums, counts = function.moments(grams)
    sigma = what.mechanism(walk.budget, len(walk.parts)).sigma
    values, turn = np.linalg.eigh(second)
    edge = sigma * math.sqrt(second.shape[1])
    kept = np.maximum(values - edge * (values < 1.5 * edge), 0)
    shrunk = (turn * kept[:, None]) @ turn.swapaxes(1, 2) / counts[:, None, None]
    mean, covariance = (torch.as_tensor(array.astype(np.float32), device=place) for array in (sums / counts[:, None], shrunk))
    return Moments(features, mean, covariance)
