"""Compute scattering features: wavelet moduli of two orders, smoothed. Nothing in them was learned from anybody's data.

Two scales, eight orientations (Bruna & Mallat, 2013; Oyallon & Mallat, 2015). Every image is treated on its own. The smoothing
is a separable Gaussian: two small matrix products. What a coarse wavelet has filtered is kept at half the resolution.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError

if TYPE_CHECKING:  # a description needs no torch
    import torch
    from torch import Tensor

Array = npt.NDArray[Any]

ORIENTATIONS = 8
PATHS = 1 + 2 * ORIENTATIONS + ORIENTATIONS**2
_BATCH = 25  # images at once: their transforms stay in a processor's cache
#: Luma and two chromas: most of what tells objects apart is in the first.
_LUMA = ((0.299, 0.587, 0.114), (-0.169, -0.331, 0.5), (0.5, -0.419, -0.081))


@final
@dataclass(frozen=True)
class Scattering:
    """Describe scattering features of images (n, 1 or 3, side, side) in 0…1. `mirror`: a mirror image counts as the same.

    Every path is divided by its own length over the image plus a public floor, and an image's features have length 1.
    """

    mirror: bool = False
    floor: float | None = None  # default: 0.1 for grey images, 0.05 for colour

    def plain(self) -> dict[str, Any]:
        """Give the description as plain data, to be hashed and released."""
        return {"features": "scattering/1", "mirror": self.mirror, "floor": self.floor}

    def width(self, shape: tuple[int, ...]) -> int:
        """Give how many features images of this shape (channels, height, width) have."""
        _check(shape)
        return shape[0] * PATHS * _places(shape) ** 2

    def __call__(self, images: Array, *, device: str = "cpu", progress: Callable[[int, int], None] | None = None) -> Array:
        """Give the features (n, width) of images (n, channels, height, width), half precision."""
        import torch

        images = np.asarray(images)
        _check(images.shape[1:])
        out = np.empty((len(images), self.width(images.shape[1:])), dtype=np.float16)
        size = _BATCH if device == "cpu" else 4000
        for start in range(0, len(images), size):
            part = torch.as_tensor(np.ascontiguousarray(images[start : start + size]), dtype=torch.float32, device=device)
            with torch.no_grad():
                out[start : start + len(part)] = self.tensors(part).half().cpu().numpy()
            if progress is not None:
                progress(start + len(part), len(images))
        return out

    def tensors(self, x: Tensor) -> Tensor:
        """Give the features (n, width) of a tensor of images; a generator's gradient goes through them."""
        _check(tuple(x.shape[1:]))
        features = self._one(x)
        if self.mirror:
            features = features + self._one(x.flip(3))
            features = features / features.norm(dim=1, keepdim=True).clamp_min(1e-6)
        return features

    def _one(self, x: Tensor) -> Tensor:
        import torch
        import torch.nn.functional as F

        count, channels = x.shape[:2]
        if channels == 3:
            x = torch.einsum("nchw,dc->ndhw", x, x.new_tensor(_LUMA))
        maps = _scatter(_fitted(x).flatten(0, 1))
        floor = self.floor if self.floor is not None else (0.1 if channels == 1 else 0.05)
        maps = maps / (maps.square().sum(dim=(2, 3), keepdim=True).add(1e-12).sqrt() + floor)
        places = _places(tuple(x.shape[1:]))
        if maps.shape[-1] > places:
            maps = F.avg_pool2d(maps, maps.shape[-1] // places)
        features = maps.reshape(count, -1)
        return features / features.norm(dim=1, keepdim=True).clamp_min(1e-6)


def _check(shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] not in (1, 3) or shape[1] != shape[2] or not 8 <= shape[1] <= 128:
        raise DataError(
            f"`images` must be square, 8 to 128 pixels a side, grey or colour (n, 1 or 3, side, side). Got {shape} instead."
        )


def _grid(side: int) -> int:
    """Give the side of the grid on which images are filtered: a multiple of 8, small images twice enlarged."""
    return 8 * math.ceil(side * (2 if side < 16 else 1) / 8)


def _places(shape: tuple[int, ...]) -> int:
    """Give the side of the smoothed maps: at most 8 for grey, 4 for colour."""
    coarse, most = _grid(shape[1]) // 4, 8 if shape[0] == 1 else 4
    while coarse > most and coarse % 2 == 0:
        coarse //= 2
    return coarse


def _fitted(x: Tensor) -> Tensor:
    import torch.nn.functional as F

    side = x.shape[-1]
    if side < 16:
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
    missing = _grid(side) - x.shape[-1]
    return F.pad(x, (missing // 2, missing - missing // 2, missing // 2, missing - missing // 2)) if missing else x


def _scatter(x: Tensor) -> Tensor:
    """Give (n, 81, N/4, N/4) of images (n, N, N)."""
    import torch

    bank = _bank(x.shape[-1], x.device)
    spectrum = torch.fft.fft2(x.to(torch.complex64))
    first = _modulus(torch.fft.ifft2(spectrum[:, None] * bank.fine))  # (n, 8, N, N)
    second = _modulus(torch.fft.ifft2(bank.coarse(spectrum)))  # (n, 8, N/2, N/2)
    third = _modulus(torch.fft.ifft2(bank.coarse(torch.fft.fft2(first.to(torch.complex64)))))  # (n, 8, 8, N/2, N/2)
    fine, half = bank.smooth
    return torch.cat(
        [
            (fine @ torch.cat([x[:, None], first], 1)) @ fine.T,
            (half @ torch.cat([second, third.flatten(1, 2)], 1)) @ half.T,
        ],
        1,
    )


def _modulus(x: Tensor) -> Tensor:
    """Give the modulus, with a gradient that is finite at 0."""
    return (x.real.square() + x.imag.square() + 1e-12).sqrt()


@final
class _Bank:
    """Hold wavelets in frequency for one size, and the smoothing matrices for full and half resolution.

    A coarse wavelet passes a quarter of all frequencies. Only these are multiplied and transformed back: that is a shift in
    frequency and every second pixel, and a modulus does not see a shift.
    """

    def __init__(self, side: int, device: torch.device) -> None:
        import torch

        waves = [np.stack([np.fft.fft2(_morlet(side, scale, turn)) for turn in range(ORIENTATIONS)]) for scale in range(2)]
        self.fine = torch.as_tensor(waves[0].astype(np.complex64), device=device)
        self._side, self._windows, self._parts = side, [], []
        for wave in waves[1]:
            peak = np.unravel_index(np.abs(wave).argmax(), wave.shape)
            top, left = ((int(place) - side // 4) % side for place in peak)
            rows, columns = ((start + np.arange(side // 2)) % side for start in (top, left))
            self._windows.append((top, left))
            self._parts.append(wave[np.ix_(rows, columns)] / 4)  # a quarter of the pixels
        self._parts = torch.as_tensor(np.stack(self._parts).astype(np.complex64), device=device)
        self.smooth = tuple(torch.as_tensor(_smoothing(side, step), device=device) for step in (1, 2))

    def coarse(self, spectrum: Tensor) -> Tensor:
        """Give (…, 8, N/2, N/2): what each coarse wavelet passes of a spectrum (…, N, N)."""
        import torch

        half = self._side // 2
        wide = torch.cat([spectrum, spectrum[..., :half]], -1)
        wide = torch.cat([wide, wide[..., :half, :]], -2)
        passed = [
            wide[..., top : top + half, left : left + half] * part
            for (top, left), part in zip(self._windows, self._parts, strict=True)
        ]
        return torch.stack(passed, -3)


@functools.lru_cache(maxsize=8)
def _bank(side: int, device: torch.device) -> _Bank:
    return _Bank(side, device)


def _smoothing(side: int, step: int) -> Array:
    """Build a Gaussian (side/4, side/step) that smooths a row of every `step`-th pixel and keeps every fourth."""
    away = np.arange(0, side, step)[None, :] - np.arange(0, side, 4)[:, None]
    weights = sum(np.exp(-((away + side * turn) ** 2) / (2 * 1.6**2)) for turn in range(-2, 3))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def _morlet(side: int, scale: int, turn: int) -> Array:
    """Build one Morlet wavelet (side, side) of mean 0 on a torus."""
    width, slant = 0.8 * 2**scale, 4.0 / ORIENTATIONS
    angle = (ORIENTATIONS // 2 - 1 - turn) * math.pi / ORIENTATIONS
    tone = 0.75 * math.pi / 2**scale
    turned = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    curve = turned @ np.diag([1.0, slant**2]) @ turned.T / (2 * width**2)
    envelope, wave = np.zeros((side, side)), np.zeros((side, side), dtype=complex)
    for down in range(-2, 3):
        for right in range(-2, 3):
            y, x = np.mgrid[down * side : (down + 1) * side, right * side : (right + 1) * side]
            bell = np.exp(-(curve[0, 0] * x * x + 2 * curve[0, 1] * x * y + curve[1, 1] * y * y))
            envelope += bell
            wave += bell * np.exp(1j * tone * (x * math.cos(angle) + y * math.sin(angle)))
    return (wave - wave.sum() / envelope.sum() * envelope) * slant / (2 * math.pi * width**2)
