"""Silhouettes of three animals, drawn by code: ellipses, limbs and triangles that vary from one to the next."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
KINDS = ("bird", "cat", "dog")
_EACH = 24  # silhouettes of a kind
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif")


def drawn(size: int) -> Mapping[str, Array]:
    """Draw the silhouettes of every kind, (silhouettes, size, size) of bools. They are the same every time."""
    places = (np.arange(size) + 0.5) / size * 2 - 1
    plane = np.stack(np.meshgrid(places, places, indexing="xy"))  # x to the right, y down, both in [-1, 1]
    rng = np.random.default_rng(20)  # fixed: silhouettes are part of the package, scenes are what a seed draws
    painters: Mapping[str, Callable[[Array, Any], Array]] = {"bird": _bird, "cat": _cat, "dog": _dog}
    return MappingProxyType({kind: np.stack([painters[kind](plane, rng) for _ in range(_EACH)]) for kind in KINDS})


def _vary(rng: Any, value: float, spread: float = 0.06) -> float:
    return float(value + rng.uniform(-spread, spread))


def _ellipse(plane: Array, x: float, y: float, wide: float, high: float, turn: float = 0.0) -> Array:
    across = (plane[0] - x) * np.cos(turn) + (plane[1] - y) * np.sin(turn)
    along = (plane[1] - y) * np.cos(turn) - (plane[0] - x) * np.sin(turn)
    return np.asarray((across / wide) ** 2 + (along / high) ** 2 <= 1)


def _limb(plane: Array, start: tuple[float, float], end: tuple[float, float], thick: float) -> Array:
    """Paint what is within `thick` of a line."""
    (x, y), (dx, dy) = start, (end[0] - start[0], end[1] - start[1])
    along = np.clip(((plane[0] - x) * dx + (plane[1] - y) * dy) / (dx * dx + dy * dy), 0, 1)
    return np.asarray((plane[0] - x - along * dx) ** 2 + (plane[1] - y - along * dy) ** 2 <= thick**2)


def _triangle(plane: Array, *corners: tuple[float, float]) -> Array:
    sides = []
    for (x, y), (u, v) in zip(corners, (*corners[1:], corners[0]), strict=True):
        sides.append((plane[0] - x) * (v - y) - (plane[1] - y) * (u - x))
    return np.asarray(np.all(np.array(sides) >= 0, axis=0) | np.all(np.array(sides) <= 0, axis=0))


def _bird(plane: Array, rng: Any) -> Array:
    turn, head = _vary(rng, -0.3, 0.25), (_vary(rng, 0.42), _vary(rng, -0.38))
    body = _ellipse(plane, 0, _vary(rng, 0.02), _vary(rng, 0.46), _vary(rng, 0.26), turn)
    skull = _ellipse(plane, *head, _vary(rng, 0.18, 0.03), _vary(rng, 0.17, 0.03)) | _limb(plane, (0.2, -0.1), head, 0.12)
    beak = _triangle(plane, (head[0] + 0.1, head[1] - 0.09), (head[0] + 0.1, head[1] + 0.09), (_vary(rng, 0.85), head[1] + 0.04))
    tail = _triangle(plane, (-0.3, -0.05), (-0.25, 0.25), (_vary(rng, -0.9), _vary(rng, 0.3, 0.2)))
    wing = _triangle(plane, (-0.3, 0.0), (0.2, -0.05), (_vary(rng, -0.3, 0.25), _vary(rng, -0.5, 0.35)))
    foot = _vary(rng, 0.78)
    legs = _limb(plane, (-0.05, 0.2), (_vary(rng, -0.08), foot), 0.04) | _limb(plane, (0.1, 0.2), (_vary(rng, 0.12), foot), 0.04)
    return body | skull | beak | tail | wing | legs


def _cat(plane: Array, rng: Any) -> Array:
    x, y, wide = _vary(rng, 0.0, 0.12), _vary(rng, -0.4), _vary(rng, 0.28, 0.04)
    body = _ellipse(plane, 0, _vary(rng, 0.35), _vary(rng, 0.34), _vary(rng, 0.5), _vary(rng, 0.0, 0.15))
    head = _ellipse(plane, x, y, wide, _vary(rng, 0.24, 0.03)) | _limb(plane, (x, y), (0, 0.1), 0.18)
    tip = y - _vary(rng, 0.42)
    ears = _triangle(plane, (x - wide, y - 0.05), (x - 0.04, y - 0.18), (x - 0.2, tip))
    ears |= _triangle(plane, (x + wide, y - 0.05), (x + 0.04, y - 0.18), (x + 0.2, tip))
    bend = (_vary(rng, 0.65, 0.12), _vary(rng, 0.6, 0.12))
    tail = _limb(plane, (0.15, 0.75), bend, 0.07) | _limb(plane, bend, (_vary(rng, 0.7, 0.15), _vary(rng, 0.0, 0.3)), 0.06)
    paws = _ellipse(plane, -0.15, 0.82, _vary(rng, 0.2), 0.1) | _ellipse(plane, 0.18, 0.82, 0.2, 0.1)
    return body | head | ears | tail | paws


def _dog(plane: Array, rng: Any) -> Array:
    head, back = (_vary(rng, 0.52), _vary(rng, -0.42, 0.12)), _vary(rng, -0.02)
    body = _ellipse(plane, -0.05, back, _vary(rng, 0.52), _vary(rng, 0.22, 0.04), _vary(rng, 0.0, 0.12))
    skull = _limb(plane, (0.3, back - 0.05), head, 0.15) | _ellipse(plane, *head, _vary(rng, 0.19, 0.03), 0.16)
    snout = _limb(plane, head, (head[0] + _vary(rng, 0.24), head[1] + 0.08), _vary(rng, 0.09, 0.02))
    ear = _triangle(plane, (head[0] - 0.14, head[1] - 0.1), (head[0] + 0.04, head[1] - 0.12), (head[0] - 0.08, _vary(rng, -0.8)))
    tail = _limb(plane, (-0.5, back - 0.05), (_vary(rng, -0.85), _vary(rng, -0.3, 0.3)), _vary(rng, 0.06, 0.02))
    legs, ground = np.zeros(plane.shape[1:], dtype=bool), _vary(rng, 0.8)
    for hip in (-0.45, -0.3, 0.22, 0.37):
        legs |= _limb(plane, (hip, back + 0.05), (_vary(rng, hip, 0.12), ground), _vary(rng, 0.08, 0.02))
    return body | skull | snout | ear | tail | legs


def read(directory: Path | str, size: int) -> Mapping[str, Array]:
    """Read silhouettes from DIR/<kind>/*: dark on white, (silhouettes, size, size) of bools per kind.

    A file .npz holds such arrays by kind, ready for one size: for a machine that cannot read pictures.
    """
    root = Path(directory)
    if root.suffix == ".npz":
        return _kept(root, size)
    root = root / "raw_images" if (root / "raw_images").is_dir() else root
    found = {}
    for kind in KINDS:
        folder = root / kind
        files = sorted(path for path in folder.glob("*") if path.suffix.lower() in _ENDINGS) if folder.is_dir() else []
        if not files:
            raise DataError(f"`templates` must hold images in {kind}/. Got none in {str(root)!r} instead.")
        found[kind] = np.stack([_silhouette(path, size) for path in files])
    return MappingProxyType(found)


def _kept(path: Path, size: int) -> Mapping[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {kind: np.asarray(file[kind]) for kind in KINDS}
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"`templates` must be an .npz of {', '.join(KINDS)}. Got {type(error).__name__} instead.") from None
    for kind, shapes in found.items():
        if shapes.dtype != bool or shapes.ndim != 3 or shapes.shape[1:] != (size, size) or not len(shapes):
            raise DataError(f"`templates` must hold bools of shape (silhouettes, {size}, {size}). Got others for {kind} instead.")
    return MappingProxyType(found)


def _silhouette(path: Path, size: int) -> Array:
    image: Any = importlib.import_module("PIL.Image")  # here, so that scenes drawn by code do not need it
    try:
        with image.open(path) as picture:
            coloured = picture.convert("RGBA")
            white = image.new("RGBA", coloured.size, "white")
            white.alpha_composite(coloured)  # what is see-through is paper
            grey = np.asarray(white.convert("L").resize((size, size), image.Resampling.BILINEAR), dtype=np.int64)
    except Exception as error:  # Pillow's plug-ins raise many types
        raise DataError(f"`{path}` must be a readable image. Got {type(error).__name__} instead.") from None
    return 255 - grey > 125
