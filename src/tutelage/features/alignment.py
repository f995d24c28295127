"""Public images laid over each other, by what they show alone: no mask is looked at, and nobody is asked.

All N answers together say only so much about how masks deviate from their mean. Where organs lie on the same place in every
image there is less to say: the mean shape, which noise hardly touches, says most of it. Everything here is public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.data.dataset import Public
from tutelage.nets.inputs import as_float, as_inputs, pick_device
from tutelage.nets.warps import bent, mapped, sampling
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
_FLAT = 1e-2  # added to the variance within a window: flat parts of an image have nothing to be compared by
_PIXELS = {"cpu": 1 << 21, "cuda": 1 << 24}  # of images that are bent at once
_RATES = (4e-3, 0.2, 0.1)  # per step: of a matrix, of a shift and of a knot, the last two in pixels


@final
@dataclass(frozen=True, kw_only=True)
class Aligning:
    """Say how images are laid over each other: first by affine maps, then by these and a smooth field."""

    steps: int = 60  # of each
    knots: int = 5  # of the field per side that fall on the image
    window: int = 9  # pixels per side, within which images are compared: brightness and contrast may differ between windows
    stiffness: float = 0.03  # what a bend costs

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("knots", 3), ("window", 3)):
            value = getattr(self, name)
            if not (isinstance(value, int) and not isinstance(value, bool) and value >= least):
                raise RecipeError(f"`{name}` must be a whole number ≥ {least}. Got {value!r} instead.")
        if self.window % 2 == 0:
            raise RecipeError(f"`window` must be odd: it has a middle. Got {self.window!r} instead.")
        if not 0 <= self.stiffness < np.inf:
            raise RecipeError(f"`stiffness` must be ≥ 0. Got {self.stiffness!r} instead.")


@final
class Alignment:
    """Hold where every pixel of an aligned image comes from: an affine map and a field for each image of one pool, in pixels.

    Images are moved on the CPU, whatever device found out where to: the same bytes are the same questions when a run is resumed.
    """

    def __init__(self, matrices: Array, shifts: Array, knots: Array) -> None:
        self.matrices = np.asarray(matrices, dtype=np.float32)  # (images, axes, axes)
        self.shifts, self.knots = (np.asarray(one, dtype=np.float32) for one in (shifts, knots))  # (images, axes, ...)
        count, axes = len(self.matrices), self.matrices.shape[-1]
        side = self.knots.shape[-1] if self.knots.ndim else 0
        shapes = ((count, axes, axes), (count, axes), (count, axes, *(side,) * axes))
        found = (self.matrices, self.shifts, self.knots)
        if axes not in (2, 3) or side < 5 or any(one.shape != shape for one, shape in zip(found, shapes, strict=True)):
            raise DataError(f"`knots` must be a lattice for each image. Got {[one.shape for one in found]} instead.")
        if not all(np.isfinite(one).all() for one in found):
            raise DataError("`images` must be such that they can be laid over each other. Got places without a number instead.")

    @classmethod
    def fit(
        cls,
        images: Array,
        *,
        settings: Aligning | None = None,
        device: str = "auto",
        progress: Callable[[int, int], None] | None = None,
    ) -> Alignment:
        """Move every image towards the mean of all, and the mean towards nowhere; repeat.

        How alike two images are is their correlation within windows, averaged over all windows (after Avants et al. 2008).
        """
        how, place = settings or Aligning(), pick_device(device)
        count, axes = len(images), as_inputs(images[:1]).ndim - 2
        if count < 2 or axes not in (2, 3):
            raise DataError(f"`images` must be two images or volumes, or more. Got shape {tuple(np.shape(images))} instead.")
        matrices = torch.eye(axes, device=place).repeat(count, 1, 1).requires_grad_()
        shifts = torch.zeros(count, axes, device=place, requires_grad=True)
        knots = torch.zeros(count, axes, *(how.knots + 2,) * axes, device=place, requires_grad=True)
        groups = [{"params": [one], "lr": rate} for one, rate in zip((matrices, shifts, knots), _RATES, strict=True)]
        parts = _parts(images, place)
        mean = torch.stack([_even(images[part], place).sum(0) for part in parts]).sum(0) / count
        for number, stage in enumerate((groups[:2], groups)):
            optimizer = torch.optim.Adam(stage)
            field = knots if number else knots.detach()
            for step in range(how.steps):
                optimizer.zero_grad()
                total = torch.zeros_like(mean)
                for part in parts:
                    moved = _moved(_even(images[part], place), matrices[part], shifts[part], field[part])
                    total += moved.detach().sum(0)
                    (_alike(moved, mean.expand_as(moved), how.window) * (-len(moved) / count)).backward()
                if number:
                    (how.stiffness * _bend(knots)).backward()
                optimizer.step()
                _centre(matrices, shifts, knots)
                mean = total / count
                if progress:
                    progress(number * how.steps + step + 1, 2 * how.steps)
        return cls(*(one.detach().cpu().numpy() for one in (matrices, shifts, knots)))

    def images(self, images: Array) -> Array:
        """Lay the images of the pool over each other: float32, their channels where they were."""
        moved = self._all(images)
        if moved.shape == np.shape(images):
            return moved
        return moved[:, 0] if np.ndim(images) < moved.ndim else np.moveaxis(moved, 1, -1)

    def masks(self, masks: Array) -> Array:
        """Move masks (images, *space) as their images, and give them as masks again."""
        given = np.asarray(masks)
        if given.ndim != 1 + self.matrices.shape[-1]:
            raise DataError(f"`masks` must be one mask per image. Got shape {given.shape} instead.")
        inside = self._all(given[:, None] != 0)[:, 0] > 0.5
        return np.where(inside, given.max(initial=0), 0).astype(given.dtype)

    def pool(self, public: Public) -> Public:
        """Give the aligned pool, with its masks where it has any. Private images would come out as public ones: refused."""
        if not isinstance(public, Public):
            raise DataError(f"`public` must be Public: a moved image is still an image. Got {type(public).__name__} instead.")
        targets = None if public.targets is None else self.masks(public.targets)
        return Public.of(self.images(public.inputs), targets, source=f"{public.source}, aligned")

    def arrays(self) -> dict[str, Array]:
        """Give what `Alignment(**arrays)` needs."""
        return {"matrices": self.matrices, "shifts": self.shifts, "knots": self.knots}

    def _all(self, images: Array) -> Array:
        if len(images) != len(self.matrices):
            raise DataError(f"`images` must be the {len(self.matrices)} that were aligned. Got {len(images)} instead.")
        free, cpu = [torch.from_numpy(one) for one in (self.matrices, self.shifts, self.knots)], torch.device("cpu")
        moved: Array = np.empty(0)
        with torch.inference_mode():
            for part in _parts(images, cpu):
                some = _moved(as_float(as_inputs(images[part])).float(), *(one[part] for one in free)).numpy()
                if not moved.size:
                    moved = np.empty((len(images), *some.shape[1:]), dtype=np.float32)
                moved[part] = some
        return moved


def aligned(public: Public, *, settings: Aligning | None = None, device: str = "auto") -> Public:
    """Lay a public pool's images over each other. Ask about these, and let the student learn from them."""
    if not isinstance(public, Public):
        raise DataError(f"`public` must be Public: what is learned of it is released. Got {type(public).__name__} instead.")
    return Alignment.fit(public.inputs, settings=settings, device=device).pool(public)


def _parts(images: Array, place: torch.device) -> list[slice]:
    """Divide a pool into parts that are read and bent at once."""
    step = max(1, _PIXELS.get(place.type, 1 << 21) // max(1, int(np.prod(np.shape(images)[1:]))))
    return [slice(start, min(start + step, len(images))) for start in range(0, len(images), step)]


def _even(images: Array, place: torch.device) -> Tensor:
    """Bring every channel of every image to mean 0 and deviation 1: of other units a window's variance is mostly rounding."""
    some = as_float(as_inputs(images)).to(place, torch.float32)
    if not bool(torch.isfinite(some).all()):
        raise DataError("`images` must hold numbers alone. Got one without any (NaN or infinity) instead.")
    space = tuple(range(2, some.ndim))
    some = some - some.mean(space, keepdim=True)
    return some / some.std(space, keepdim=True, unbiased=False).clamp(min=1e-6)


@torch.no_grad()
def _centre(matrices: Tensor, shifts: Tensor, knots: Tensor) -> None:
    """Take off what all images do alike: it would move or shrink the mean, and bring nothing nearer to it."""
    matrices.add_(torch.eye(matrices.shape[-1], device=matrices.device) - matrices.mean(0))
    shifts.sub_(shifts.mean(0))
    knots.sub_(knots.mean(0))


def _moved(images: Tensor, matrices: Tensor, shifts: Tensor, knots: Tensor) -> Tensor:
    """Read every pixel where it came from: (n, channels, *space)."""
    space = images.shape[2:]
    grid = sampling(mapped(matrices, shifts, space) + bent(knots, space))
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _alike(images: Tensor, others: Tensor, window: int) -> Tensor:
    """Give the mean correlation within windows."""
    mine, yours = _local(images, window), _local(others, window)
    ours = _local(images * others, window) - mine * yours
    pairs = ((images, mine), (others, yours))
    spreads = [(_local(one.square(), window) - mean.square()).clamp(min=0) for one, mean in pairs]  # rounding may go below
    return (ours * ((spreads[0] + _FLAT) * (spreads[1] + _FLAT)).rsqrt()).mean()


def _local(images: Tensor, window: int) -> Tensor:
    """Average over windows, one axis after the other; at the border over what there is of them."""
    axes = images.ndim - 2
    pool = F.avg_pool2d if axes == 2 else F.avg_pool3d
    for axis in range(axes):
        sides = [window if axis == one else 1 for one in range(axes)]
        images = pool(images, sides, 1, [side // 2 for side in sides], count_include_pad=False)
    return images


def _bend(knots: Tensor) -> Tensor:
    """Give the mean square of second differences along every axis, summed over the axes."""
    return torch.stack([knots.diff(n=2, dim=axis).square().mean() for axis in range(2, knots.ndim)]).sum()
