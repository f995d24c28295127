"""Embed images by networks with random weights and instance norms: a public function whose class means distilled images match.

Every network is drawn from a public seed and every image is treated on its own. What a network gives is shifted by what it gives
on procedural images, so that the length that is left is spent on what tells images apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutelage.features.procedural import procedural
from tutelage.nets.classics import NormedConvNet, stages_for
from tutelage.privacy.errors import DataError, RecipeError

KIND = "normed-networks/1"
_DRAWN = 400  # procedural images that say where the middle is
_LONG = 0.9  # share of them that is not clipped


@final
@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Say which networks: how many, how wide, and the public seed of their weights. `mirror`: a mirror image counts as the same.

    With `bent`, every second network sees images turned, stretched and shifted in one way of its own: what distilled images have
    to match does not hang on single pixels.
    """

    networks: int = 20
    width: int = 32
    depth: int | None = None  # None: 3, or fewer where images are small
    seed: int = 0
    mirror: bool = False
    bent: bool = True

    def __post_init__(self) -> None:
        for name, least in (("networks", 1), ("width", 1), ("depth", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is None and name == "depth":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise RecipeError(f"`{name}` must be a whole number ≥ {least}. Got {value!r} instead.")

    def plain(self) -> dict[str, Any]:
        """Give the description as plain data, to be hashed and released."""
        return {"features": KIND, **asdict(self)}

    def one(self, shape: tuple[int, ...]) -> int:
        """Count the features of one network for images (channels, height, width)."""
        return NormedConvNet(shape=(shape[0], shape[1], shape[2]), width=self.width, depth=self.stages(shape)).features

    def stages(self, shape: tuple[int, ...]) -> int:
        """Say how often networks halve images of this shape."""
        return self.depth or stages_for(shape)

    def built(self, shape: tuple[int, ...], *, device: torch.device | str = "cpu") -> list[Part]:
        """Draw the networks. The same seed gives the same weights on every machine."""
        if len(shape) != 3:
            raise DataError(f"`shape` must be (channels, height, width). Got {shape} instead.")
        public = torch.as_tensor(middle_images(shape), device=device)
        return [Part(self, shape, number, public) for number in range(self.networks)]

    def __call__(self, images: Any, *, device: torch.device | str = "cpu") -> np.ndarray:
        """Give all networks' features (n, networks·features), together of length at most 1."""
        shown = torch.as_tensor(np.asarray(images, np.float32), device=device)
        return joined(self.built(tuple(shown.shape[1:]), device=device), shown).cpu().numpy()


def middle_images(shape: tuple[int, ...]) -> np.ndarray:
    """Draw images that are nobody's, of any shape: procedural ones, cut or stretched where they are not square."""
    side, channels = max(8, *shape[1:]), 3 if shape[0] == 3 else 1
    drawn = torch.as_tensor(procedural(_DRAWN, (channels, side, side)))
    if (side, side) != tuple(shape[1:]):
        drawn = F.interpolate(drawn, tuple(shape[1:]), mode="bilinear", align_corners=False)
    return drawn.expand(-1, shape[0], -1, -1).numpy() if channels != shape[0] else drawn.numpy()


def joined(parts: list[Part], images: Tensor, *, size: int = 250) -> Tensor:
    """Give all networks' features side by side (n, networks·features), each divided by √networks."""
    with torch.no_grad():
        rows = [torch.cat([part(some) for part in parts], dim=1) / math.sqrt(len(parts)) for some in images.split(size)]
    return torch.cat(rows)


def in_blocks(part: Callable[[Tensor], Tensor], images: Tensor, size: int) -> Iterator[Tensor]:
    """Give one network's features of many images, some at a time, without a gradient."""
    with torch.no_grad():
        for some in images.split(size):
            yield part(some)


@final
class Part(nn.Module):
    """Compute one random network's features: (n, channels, height, width) in [0, 1] → (n, features) of length at most 1."""

    def __init__(self, embedding: Embedding, shape: tuple[int, ...], number: int, public: Tensor) -> None:
        super().__init__()
        rng = np.random.Generator(np.random.PCG64([embedding.seed, number]))
        self.width, self.mirror = embedding.width, embedding.mirror
        self.dtype = torch.bfloat16 if public.is_cuda else torch.float32
        layers, channels = [], shape[0]
        for _ in range(embedding.stages(shape)):
            layer = nn.Conv2d(channels, self.width, 3, padding=1, bias=False)  # an instance norm takes any constant away
            with torch.no_grad():
                layer.weight.copy_(torch.as_tensor(rng.standard_normal(tuple(layer.weight.shape)) / math.sqrt(9 * channels)))
            layers.append(layer)
            channels = self.width
        self.layers = nn.ModuleList(layers).to(public.device, self.dtype).requires_grad_(False)
        view = _view(rng) if embedding.bent and number % 2 else None
        self.view = None if view is None else torch.as_tensor(view, device=public.device)
        self.centre, self.reach = torch.zeros(1, device=public.device), 1.0
        found = torch.cat(list(in_blocks(self, public, 200)))
        self.centre = found.mean(dim=0)
        self.reach = float((found - self.centre).norm(dim=1).quantile(_LONG))

    def forward(self, images: Tensor) -> Tensor:
        """Compute the features."""
        found = self.sided(images)
        if self.mirror:
            found = (found + self.sided(images.flip(3))) / 2
        return self.shifted(found)

    def shifted(self, found: Tensor) -> Tensor:
        """Shift by the public middle, and clip to length 1."""
        found = (found - self.centre) / self.reach
        return found / found.norm(dim=1, keepdim=True).clamp_min(1.0)

    def sided(self, images: Tensor) -> Tensor:
        """Compute one side's features, of length 1 around no middle."""
        if self.view is not None:
            grid = F.affine_grid(self.view.expand(len(images), -1, -1), list(images.shape), align_corners=False)
            images = F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
        x = (4 * images - 2).to(self.dtype)
        for layer in self.layers:
            x = F.avg_pool2d(F.relu(F.group_norm(layer(x), self.width)), 2)
        x = x.flatten(1).float()
        return x / (x.norm(dim=1, keepdim=True) + 1e-6)


def _view(rng: np.random.Generator) -> np.ndarray:
    """Draw one way to turn (15°), stretch (1.2) and shift (an eighth)."""
    angle, (stretch_x, stretch_y) = rng.uniform(-1, 1) * math.pi / 12, np.exp(rng.uniform(-1, 1, 2) * math.log(1.2))
    shift = rng.uniform(-0.25, 0.25, 2)
    rows = [[math.cos(angle) * stretch_x, -math.sin(angle) * stretch_y, shift[0]]]
    rows.append([math.sin(angle) * stretch_x, math.cos(angle) * stretch_y, shift[1]])
    return np.asarray(rows, np.float32)
