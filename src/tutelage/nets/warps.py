"""Label-preserving distortion of images or volumes together with their masks, on whatever device they lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.data.scenes import GREYS
from tutelage.nets.augmentation import LATTICE, splines
from tutelage.privacy.errors import RecipeError

AXES = 3  # randomness is drawn for as many axes as a volume has; an image uses two of them
TURN, SCALE, SHIFT, MIRROR, CONTRAST, BRIGHTNESS, GAMMA, KEEP, NOISE = (
    0,
    3,
    6,
    9,
    12,
    13,
    14,
    15,
    16,
)  # where a setting's draws begin
SINGLE = 19  # uniform numbers that steer single settings; one per grey and the elastic knots follow
KNOTS = AXES * (LATTICE + 2) ** AXES


@final
@dataclass(frozen=True, kw_only=True)
class Warp:
    """Say how far an image or a volume may be bent before its mask, bent alike, would be wrong. All zeros change nothing.

    Randomness is drawn first (`draw`) and used later (`images`, `masks`, `both`), so that K networks can each keep a stream
    of their own while one call distorts all their batches. Distances are pixels along every axis, whatever its length.
    """

    rotation: float = 0.0  # degrees, either way, about every axis
    scale: float = 0.0  # relative, either way, per axis
    shift: float = 0.0  # pixels, either way, per axis
    elastic: float = 0.0  # pixels, root mean square of the smooth displacement
    flips: tuple[int, ...] = ()  # axes that may be mirrored, counted within the space: -1 is left and right
    contrast: float = 0.0  # relative, either way, about the image's mean
    brightness: float = 0.0  # added, either way
    gamma: float = 0.0  # the exponent lies between 1 / (1 + gamma) and 1 + gamma, on the image's own range
    noise: float = 0.0  # standard deviation, at most
    greys: tuple[int, ...] = ()  # levels of 255 that are dealt out anew, where brightness says nothing about what is seen
    keep: float = 0.0  # share of images left alone
    nearest: bool = False  # take the nearest pixel: levels stay levels and masks crisp. Otherwise blend neighbours
    padding: Literal["zeros", "border"] = "zeros"  # what lies outside the image

    def __post_init__(self) -> None:
        object.__setattr__(self, "flips", tuple(self.flips))
        object.__setattr__(self, "greys", tuple(self.greys))
        for name in ("rotation", "scale", "shift", "elastic", "contrast", "brightness", "gamma", "noise", "keep"):
            value = getattr(self, name)
            if not value >= 0:
                raise RecipeError(f"`{name}` must be ≥ 0. Got {value!r} instead.")
        for name in ("scale", "keep"):
            if getattr(self, name) >= 1:
                raise RecipeError(f"`{name}` must be below 1. Got {getattr(self, name)!r} instead.")
        if any(axis not in range(-AXES, AXES) for axis in self.flips):
            raise RecipeError(f"`flips` must name axes of the space from -{AXES} to {AXES - 1}. Got {self.flips!r} instead.")
        if len(self.greys) == 1 or any(not 0 <= grey <= 255 for grey in self.greys):
            raise RecipeError(f"`greys` must be no levels or at least two, from 0 to 255. Got {self.greys!r} instead.")
        if self.padding not in ("zeros", "border"):
            raise RecipeError(f"`padding` must be 'zeros' or 'border'. Got {self.padding!r} instead.")

    @property
    def draws(self) -> int:
        """Count the uniform numbers one image takes."""
        return SINGLE + len(self.greys) + (KNOTS if self.elastic else 0)

    def draw(self, count: int, *, generator: torch.Generator) -> Tensor:
        """Draw the randomness of `count` images on the generator's device."""
        return torch.rand(count, self.draws, generator=generator, device=generator.device)  # (count, draws)

    def images(self, x: Tensor, draws: Tensor) -> Tensor:
        """Distort images (..., channels, *space) by randomness drawn before (..., draws); pure."""
        flat, drawn = together(x, draws, 1)
        moved = self._moved(flat, drawn)
        return self._kept(flat, self._shaded(moved, drawn), drawn).reshape(x.shape)

    def masks(self, m: Tensor, draws: Tensor) -> Tensor:
        """Distort masks (..., *space) the same way: shares in [0, 1] as floats; pure."""
        flat, drawn = together(m, draws, 0)
        flat = flat[:, None].to(drawn.dtype)  # (n, 1, *space)
        return self._kept(flat, self._moved(flat, drawn), drawn).clamp(0, 1).reshape(m.shape)  # blending rounds

    def both(self, x: Tensor, m: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Distort images and their masks together: `images` and `masks` in one go."""
        flat, drawn = together(x, draws, 1)
        flat = torch.cat([flat, m.reshape(len(flat), 1, *flat.shape[2:]).to(flat.dtype)], dim=1)  # the mask is one more channel
        moved = self._moved(flat, drawn)
        moved = torch.cat([self._shaded(moved[:, :-1], drawn), moved[:, -1:]], dim=1)
        moved = self._kept(flat, moved, drawn)
        return moved[:, :-1].reshape(x.shape), moved[:, -1].clamp(0, 1).reshape(m.shape)

    def _moved(self, flat: Tensor, drawn: Tensor) -> Tensor:
        """Read every pixel where it came from: (n, channels, *space)."""
        if not (self.rotation or self.scale or self.shift or self.elastic or self.flips):
            return flat
        grid = self._grid(2 * drawn - 1, flat.shape[2:]).to(flat.dtype)
        mode = "nearest" if self.nearest else "bilinear"
        return F.grid_sample(flat, grid, mode=mode, padding_mode=self.padding, align_corners=False)

    def _grid(self, signed: Tensor, space: torch.Size) -> Tensor:
        """Compose mirroring, scale, rotation, shift and the elastic field as sampling positions: (n, *space, axes)."""
        axes = len(space)
        stretch = 1 / (1 + self.scale * signed[:, SCALE : SCALE + axes])  # (n, axes)
        may = [1.0 if {axis, axis - axes} & {*self.flips} else 0.0 for axis in range(axes)]
        may = torch.tensor(may, device=signed.device, dtype=signed.dtype)
        mirrored = torch.where(signed[:, MIRROR : MIRROR + axes] < 0, 1 - 2 * may, 1.0)
        matrix = (stretch * mirrored)[:, :, None] * turns(math.pi / 180 * self.rotation * signed[:, TURN : TURN + AXES], axes)
        shift = self.shift * signed[:, SHIFT : SHIFT + axes]
        places = mapped(matrix, shift, space)
        if self.elastic:
            places = places + self._field(signed[:, SINGLE + len(self.greys) :], space)
        return sampling(places)

    def _field(self, knots: Tensor, space: torch.Size) -> Tensor:
        """Spread random knots by cubic B-splines: a smooth field in pixels for the price of an axis's small product each."""
        axes, side = len(space), LATTICE + 2
        field = bent(knots[:, : axes * side**axes].reshape(-1, axes, *(side,) * axes), space)  # of knots uniform on [-1, 1)
        spread = torch.ones((), device=knots.device) / 3  # a uniform knot's variance
        for size in space:
            spread = spread * splines(size, device=knots.device).square().sum(1).mean()
        return field * (self.elastic / spread.sqrt())

    def _shaded(self, x: Tensor, drawn: Tensor) -> Tensor:
        """Change what pixels show and not where they are: (n, channels, *space)."""
        spatial = tuple(range(2, x.ndim))

        def per_image(values: Tensor) -> Tensor:
            return values.reshape(-1, *(1,) * (x.ndim - 1)).to(x.dtype)

        if self.greys:
            x = self._dealt(x, drawn[:, SINGLE : SINGLE + len(self.greys)])
        if self.gamma:
            low, high = x.amin(spatial, keepdim=True), x.amax(spatial, keepdim=True)
            span = (high - low).clamp(min=1e-6)
            exponent = per_image((1 + self.gamma) ** (2 * drawn[:, GAMMA] - 1))
            x = ((x - low) / span).clamp(0, 1) ** exponent * span + low
        if self.contrast:
            middle = x.mean(spatial, keepdim=True)
            x = (x - middle) * per_image(1 + self.contrast * (2 * drawn[:, CONTRAST] - 1)) + middle
        if self.brightness:
            x = x + per_image(self.brightness * (2 * drawn[:, BRIGHTNESS] - 1))
        if self.noise:
            grain = grains(drawn[:, NOISE + 1 : NOISE + 3], math.prod(x.shape[1:])).reshape(x.shape)
            x = x + per_image(self.noise * drawn[:, NOISE]) * grain.to(x.dtype)
        return x

    def _dealt(self, x: Tensor, keys: Tensor) -> Tensor:
        """Put another level in the place of every level: what was one grey is one grey again."""
        levels = torch.tensor(self.greys, device=x.device, dtype=x.dtype).sort().values / 255
        between = (levels[1:] + levels[:-1]) / 2
        nearest = torch.bucketize(x.contiguous(), between).flatten(1)  # (n, channels·pixels)
        dealt = levels[keys.argsort(dim=1)]  # (n, levels)
        return dealt.gather(1, nearest).reshape(x.shape)

    def _kept(self, before: Tensor, after: Tensor, drawn: Tensor) -> Tensor:
        """Leave a share of the images as they were."""
        if not self.keep:
            return after
        alone = (drawn[:, KEEP] < self.keep).reshape(-1, *(1,) * (before.ndim - 1))
        return torch.where(alone, before, after)


def mapped(matrix: Tensor, shift: Tensor, space: torch.Size) -> Tensor:
    """Say where affine maps (n, axes, axes), (n, axes) find every pixel: (n, *space, axes), in pixels from the middle."""
    lines = [torch.arange(size, device=matrix.device, dtype=matrix.dtype) - (size - 1) / 2 for size in space]
    base = torch.stack(torch.meshgrid(*lines, indexing="ij"), dim=-1).reshape(-1, len(space))
    return (base @ matrix.transpose(1, 2) + shift[:, None]).unflatten(1, tuple(space))


def bent(knots: Tensor, space: torch.Size) -> Tensor:
    """Spread knots (n, axes, *lattice) over all pixels by cubic B-splines: (n, *space, axes)."""
    field = knots
    for size in space:
        weights = splines(size, device=knots.device, knots=knots.shape[-1] - 2)
        field = torch.tensordot(field, weights, dims=([2], [1]))  # the axis done goes to the end, and the next comes up
    return field.movedim(1, -1)


def sampling(places: Tensor) -> Tensor:
    """Turn pixels from the middle into what torch's sampler counts in: axes from the last, and halves of the image's length."""
    halves = [2 / size for size in reversed(places.shape[1:-1])]
    return places.flip(-1) * torch.tensor(halves, device=places.device, dtype=places.dtype)


def together(x: Tensor, draws: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """Bring any leading batch to one axis: images or masks (n, ...) and their draws (n, draws)."""
    batch = draws.ndim - 1
    if x.shape[:batch] != draws.shape[:-1] or x.ndim - batch - channels not in (2, 3):
        raise RecipeError(
            f"`draws` must have the leading axes of images or volumes. Got {tuple(draws.shape)} for {tuple(x.shape)} instead."
        )
    return x.reshape(-1, *x.shape[batch:]), draws.reshape(-1, draws.shape[-1])


def turns(angles: Tensor, axes: int) -> Tensor:
    """Turn an image by the first angle, or a volume about each of its axes in turn: (n, 3) → (n, axes, axes)."""
    planes = ((0, 1),) if axes == 2 else ((1, 2), (0, 2), (0, 1))
    matrix = torch.eye(axes, device=angles.device, dtype=angles.dtype)
    cos, sin = torch.cos(angles), torch.sin(angles)
    for turn, (i, j) in enumerate(planes):
        along, across = torch.zeros(2, axes, axes, device=angles.device, dtype=angles.dtype)
        along[i, i] = along[j, j] = across[j, i] = 1.0
        across[i, j] = -1.0
        rest = torch.eye(axes, device=angles.device, dtype=angles.dtype) - along
        matrix = matrix @ (rest + cos[:, turn, None, None] * along + sin[:, turn, None, None] * across)
    return matrix


def grains(seeds: Tensor, count: int) -> Tensor:
    """Make `count` standard normal numbers per image out of two uniform ones by hashing (seed, position): (n, 2) → (n, count).

    A number per pixel is too much to draw ahead for every step. A hash keeps the noise a function of the draws, the same on
    every device. Multiplications stay below 2^63: both factors have at most 32 and 31 bits.
    """
    seed = (seeds * 2**24).to(torch.int64)  # what a uniform float32 holds
    start = (seed[:, :1] << 8) ^ (seed[:, 1:] >> 16)  # (n, 1) of 32 bits
    state = mixed(start ^ 0x9E3779B9) ^ (seed[:, 1:] & 0xFFFF)
    state = mixed(state ^ mixed(torch.arange(count, device=seeds.device)))  # (n, count)
    radius, angle = ((state >> 16) + 0.5) / 2**16, ((state & 0xFFFF) + 0.5) / 2**16  # 16 bits each
    return torch.sqrt(-2 * torch.log(radius)) * torch.cos(2 * math.pi * angle)  # Box and Muller 1958


def mixed(state: Tensor) -> Tensor:
    """Scatter the 32 low bits so that neighbours have nothing in common (after the lowbias32 of Wellons 2018)."""
    state = ((state ^ (state >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    state = ((state ^ (state >> 15)) * 0x735A2D97) & 0xFFFFFFFF
    return state ^ (state >> 15)


VOLUMES = Warp(
    rotation=15, scale=0.15, shift=3, elastic=1.5, contrast=0.2, brightness=0.2, gamma=0.3, noise=0.1, keep=0.1
)  # normalised MR volumes: 0 outside, mean 0 and deviation 1 inside
SCENES = Warp(rotation=30, scale=0.25, shift=8, flips=(-1,), greys=GREYS, nearest=True, padding="border")
