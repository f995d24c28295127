"""Images seen in patches: filters that k-means finds among the public pool's patches, rectified and pooled (Coates & Ng 2011)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]
_PATCHES = 200_000  # of the pool that the filters are learned from
_CONTRAST, _WHITE = 0.01, 0.1  # added to a patch's variance, and to the variances that whitening divides by
_THRESHOLD = 0.25  # below which a filter says nothing
ROUNDS = 20  # of k-means
_MARGIN = 2  # empty pixels around an image, so that its border is seen as a border
_VALUES = {"cpu": 1 << 20, "cuda": 1 << 26}  # answers of filters at once: what a cache holds, and what fills a GPU


@final
class Patches:
    """Hold filters that were learned from public images, and how their responses are pooled."""

    kind = "patches"

    def __init__(self, filters: Array, offset: Array, grid: Any, *, device: str = "auto") -> None:
        self.filters, self.offset, self.grid = filters.astype(np.float32), offset.astype(np.float32), int(grid)
        self.device = device

    @classmethod
    def fit(
        cls,
        images: Array,
        *,
        filters: int = 400,
        patch: int = 6,
        grid: int = 4,
        seed: int = 0,
        device: str = "auto",
        progress: Callable[[int, int], None] | None = None,
    ) -> Patches:
        """Learn filters: patches of the same brightness and contrast, whitened, and the directions that they crowd around.

        `progress` counts the rounds of that.
        """
        place, pool = pick_device(device), as_inputs(images)
        least = min(pool.shape[-2:]) if pool.ndim == 4 else 0
        if not 2 <= patch <= least:
            raise RecipeError(f"`patch` must be between 2 and the images' size, {least}. Got {patch!r} instead.")
        generator = torch.Generator().manual_seed(seed)
        found = _even(_drawn(pool, patch, generator).to(place))
        if len(found) <= filters:
            raise RecipeError(
                f"`filters` must be fewer than the {len(found)} patches that show something. Got {filters} instead."
            )
        mean = found.mean(dim=0)
        values, axes = torch.linalg.eigh(torch.cov(found.T))
        whiten = (axes / (values.clamp(min=0) + _WHITE).sqrt()) @ axes.T
        centres = _directions((found - mean) @ whiten, filters, generator, progress) @ whiten
        shape = (filters, pool.shape[1], patch, patch)
        return cls(centres.reshape(shape).cpu().numpy(), (centres @ mean).cpu().numpy(), grid, device=device)

    def __call__(self, images: Array) -> Array:
        """Give (records, 2·filters·grid²) float32: how strongly each part of an image answers each filter, either way."""
        place, inputs = pick_device(self.device), as_inputs(images)
        filters = torch.from_numpy(self.filters).to(place)
        step = max(1, _VALUES.get(place.type, 1 << 24) // (len(filters) * inputs.shape[-1] * inputs.shape[-2]))
        with torch.inference_mode():
            return torch.cat([self._seen(as_float(part.to(place)), filters).cpu() for part in inputs.split(step)]).numpy()

    def _seen(self, images: Tensor, filters: Tensor) -> Tensor:
        padded = F.pad(images, (_MARGIN,) * 4)
        area = torch.full_like(filters[:1], 1 / filters[0].numel())
        mean = F.conv2d(padded, area)
        spread = (F.conv2d(padded.square(), area) - mean.square()).clamp(min=0)
        answers = F.conv2d(padded, filters) - mean * filters.sum(dim=(1, 2, 3))[:, None, None]
        offset = torch.from_numpy(self.offset).to(images.device)
        answers = answers * (spread + _CONTRAST).rsqrt() - offset[:, None, None]
        down, right = (_pooling(size, self.grid).to(images.device) for size in answers.shape[-2:])
        both = [down @ F.relu(sign * answers - _THRESHOLD) @ right.T for sign in (1, -1)]
        return torch.cat([one.flatten(1) for one in both], dim=1).sqrt()  # pooled answers are skewed: a root makes them even

    def arrays(self) -> dict[str, Array]:
        """Give what `Patches(**arrays)` needs."""
        return {"filters": self.filters, "offset": self.offset, "grid": np.asarray(self.grid)}


def _pooling(size: int, grid: int) -> Tensor:
    """Average neighbours (grid, size), the same parts as torch's adaptive pooling: a product is faster on a CPU."""
    places, parts = torch.arange(size), torch.arange(grid)[:, None]
    inside = ((places >= parts * size // grid) & (places < -((parts + 1) * -size // grid))).float()
    return inside / inside.sum(dim=1, keepdim=True)


def _drawn(pool: Tensor, patch: int, generator: torch.Generator) -> Tensor:
    """Draw patches from everywhere: (patches, channels·patch²)."""
    count = min(_PATCHES, len(pool) * (pool.shape[-1] - patch + 1) * (pool.shape[-2] - patch + 1))
    windows = pool.unfold(2, patch, 1).unfold(3, patch, 1)  # a view: (records, channels, rows, columns, patch, patch)
    where = [torch.randint(0, windows.shape[axis], (count,), generator=generator) for axis in (0, 2, 3)]
    return as_float(windows[where[0], :, where[1], where[2]]).flatten(1)


def _even(patches: Tensor) -> Tensor:
    """Bring patches to one brightness and contrast; flat ones show nothing and are left out."""
    centred = patches - patches.mean(dim=1, keepdim=True)
    spread = centred.square().mean(dim=1, keepdim=True)
    return (centred / (spread + _CONTRAST).sqrt())[spread[:, 0] > _CONTRAST / 25]


def _directions(
    patches: Tensor, count: int, generator: torch.Generator, progress: Callable[[int, int], None] | None = None
) -> Tensor:
    """Find directions, either way alike, that patches crowd around: spherical k-means."""
    centres = F.normalize(patches[torch.randperm(len(patches), generator=generator)[:count].to(patches.device)], dim=1)
    for done in range(ROUNDS):
        sums = torch.zeros_like(centres)
        for some in patches.split(1 << 15):
            alike = some @ centres.T
            nearest = alike.abs().argmax(dim=1)
            sums.index_add_(0, nearest, some * alike.gather(1, nearest[:, None]).sign())
        centres = torch.where(sums.norm(dim=1, keepdim=True) > 0, F.normalize(sums, dim=1), centres)
        if progress is not None:
            progress(done + 1, ROUNDS)
    return centres
