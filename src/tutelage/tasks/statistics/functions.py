"""Public functions of single records, for teachers that train nothing. Each is fixed before the data is read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private
from tutelage.features.random_networks import RandomNetworks
from tutelage.privacy.errors import DataError
from tutelage.privacy.queries import Query
from tutelage.students.linear_rounds import Seen, missing
from tutelage.teachers.statistics import Rows

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]
_AT_ONCE = 250  # images in a network at once


@final
@dataclass(frozen=True)
class Pixels:
    """Bring records to images (n, channels, side, side) in 0…1, by their declared shape and range alone."""

    shape: tuple[int, int, int]
    low: float = 0.0
    high: float = 1.0

    def __call__(self, inputs: Array) -> Array:
        """Give images; channels may be missing or come last, and whatever lies outside the range is clipped."""
        images = np.asarray(inputs, dtype=np.float32)
        if images.ndim == 3:
            images = images[:, None]
        elif images.shape[1:] != self.shape and images.shape[1:] == (*self.shape[1:], self.shape[0]):
            images = np.moveaxis(images, 3, 1)
        images = images.reshape(len(images), *self.shape)
        return np.clip(np.nan_to_num((images - self.low) / (self.high - self.low)), 0.0, 1.0)

    def plain(self) -> dict[str, Any]:
        """Give the description as plain data."""
        return {"shape": list(self.shape), "low": self.low, "high": self.high}


@final
class NetworkSums:
    """Give random networks' features and one constant, together of length 1: by class, their sums are means and a count.

    The constant makes the count of a class one more coordinate of the same noisy sum. The true count is never used.
    """

    def __init__(self, networks: RandomNetworks, pixels: Pixels, *, counted: float = 0.2, device: str = "cpu") -> None:
        self.networks, self.pixels, self.counted, self.device = networks, pixels, counted, device
        self._built = networks.built(pixels.shape, device=device)

    @property
    def key(self) -> str:
        """Describe the function."""
        return json.dumps({**self.networks.plain(), **self.pixels.plain(), "counted": self.counted}, sort_keys=True)

    @property
    def width(self) -> int:
        """Count the coordinates of one class."""
        return self.networks.networks * self.networks.features_of_one(self.pixels.shape) + 1

    def prepare(self, inputs: Array) -> Array:
        """Keep the images, as bytes: features of all networks would fill the memory."""
        return np.rint(self.pixels(inputs) * 255).astype(np.uint8)

    def __call__(self, query: Query, prepared: Array, labels: Array) -> Rows:
        """Give features (n, width), none negative."""
        import torch

        scale = math.sqrt((1 - self.counted**2) / len(self._built))
        parts = []
        for start in range(0, len(prepared), _AT_ONCE):
            x = torch.as_tensor(prepared[start : start + _AT_ONCE], device=self.device).float() / 255
            with torch.no_grad():
                found = torch.cat([network(x) for network in self._built], 1) * scale
            parts.append(torch.nn.functional.pad(found, (0, 1), value=self.counted).cpu().numpy())
        return Rows(np.concatenate(parts))

    def means(self, sums: Array) -> tuple[list[Array], Array]:
        """Turn noisy sums (classes, width) into one mean (classes, features) a network, and noisy counts (classes,).

        A class of which nothing stands out of the noise counts as a twentieth of an even share: it goes on like any other.
        """
        counts = sums[:, -1] / self.counted
        counts = np.maximum(counts, max(1.0, np.maximum(counts, 0).sum() / len(counts) / 20))
        scale = math.sqrt((1 - self.counted**2) / self.networks.networks)
        whole = sums[:, :-1] / scale / counts[:, None]
        return [part.astype(np.float32) for part in np.split(whole, self.networks.networks, axis=1)], counts


@final
class Missing:
    """Give what weights are missing about records: features on the left, label minus guess on the right."""

    def __init__(self, seen: Seen, pixels: Pixels) -> None:
        self.seen, self.pixels = seen, pixels

    @property
    def key(self) -> str:
        """Describe the function, axes and all."""
        how, digest = self.seen.whitening, hashlib.sha256()
        for array in (how.centre, how.axes, how.spread):
            digest.update(np.ascontiguousarray(array).tobytes())
        return json.dumps({**self.seen.features.plain(), **self.pixels.plain(), "whitening": digest.hexdigest()}, sort_keys=True)

    def prepare(self, inputs: Array) -> Array:
        """See records once: features (n, axes) of length 1."""
        return self.seen(self.pixels(inputs))

    def __call__(self, query: Query, prepared: Array, labels: Array) -> Rows:
        """Give both sides of the corrections."""
        return Rows(prepared, missing(prepared, labels, query.arrays["weights"]))


@final
class ClassMoments:
    """Give features and one constant: by class, their second moments are covariances, means and a count."""

    def __init__(
        self, function: Callable[[Tensor], Tensor], width: int, pixels: Pixels, described: str, *, counted: float = 0.7,
        device: str = "cpu",
    ) -> None:  # fmt: skip
        self.function, self.pixels, self.counted, self.device = function, pixels, counted, device
        self.width, self.key = width + 1, json.dumps({"moments of": described, **pixels.plain(), "counted": counted})

    @property
    def norm(self) -> float:
        """Give the length of a row: features of length at most 1, and the constant."""
        return math.sqrt(1 + self.counted**2)

    def prepare(self, inputs: Array) -> Array:
        """See records once."""
        import torch

        images, parts = self.pixels(inputs), []
        for start in range(0, len(images), _AT_ONCE):
            with torch.no_grad():
                x = torch.as_tensor(images[start : start + _AT_ONCE], device=self.device)
                found = self.function(x).float()
            parts.append((found / found.norm(dim=1, keepdim=True).clamp_min(1.0)).cpu().numpy())
        return np.concatenate(parts)

    def __call__(self, query: Query, prepared: Array, labels: Array) -> Rows:
        """Give features (n, width)."""
        return Rows(np.concatenate([prepared, np.full((len(prepared), 1), self.counted, dtype=prepared.dtype)], axis=1))

    def moments(self, grams: Array) -> tuple[Array, Array, Array]:
        """Turn noisy Gram matrices (classes, width, width) into second moments, sums and counts, by class."""
        counts = grams[:, -1, -1] / self.counted**2
        counts = np.maximum(counts, max(1.0, np.maximum(counts, 0).sum() / len(counts) / 20))
        return grams[:, :-1, :-1], grams[:, :-1, -1] / self.counted, counts


def image_shape(private: Private) -> tuple[int, int, int]:
    """Read the shape of an image off the array, which is public."""
    shape = np.shape(private.inputs)[1:]
    if len(shape) == 2:
        shape = (1, *shape)
    elif len(shape) == 3 and shape[0] not in (1, 3) and shape[2] in (1, 3):
        shape = (shape[2], *shape[:2])
    if len(shape) != 3 or shape[0] not in (1, 3) or shape[1] != shape[2]:
        raise DataError(f"`private` must hold square images, grey or colour. Got records of shape {shape} instead.")
    return int(shape[0]), int(shape[1]), int(shape[2])
