"""Masks on their way: every shown image at every stage, as small pictures that stand inside the page."""

from __future__ import annotations

import base64
import io
import itertools
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from matplotlib.image import imsave

from tutelage.metrics import dice
from tutelage.runs import RunFolder

Array = npt.NDArray[Any]
AMBER, BLUE, GREEN = (217, 119, 6), (37, 99, 235), (5, 150, 105)  # private, released, the truth
_EMPTY = 0.02  # of full share: what is fainter is not seen anyway


@final
@dataclass(frozen=True)
class Stage:
    """Hold one column: masks (images, *space), and on which side of the door they lie."""

    title: str
    side: str  # "public", "private" or "released"
    masks: Array
    colour: tuple[int, int, int]


@final
@dataclass(frozen=True)
class Cell:
    """Hold one picture, what it is in words, and Dice against the truth where there is one."""

    picture: str  # a data address
    alt: str
    score: float | None = None


@final
@dataclass(frozen=True)
class Strip:
    """Hold the whole sheet."""

    headings: list[tuple[str, str]]  # title, side
    rows: list[list[Cell]]
    mean: str  # the mean shape's picture
    peak: float  # its highest point
    volume: bool
    spaced: bool  # questions evenly spaced; older runs chose the largest answers

    @property
    def scored(self) -> bool:
        """Tell whether there is a truth to score masks against."""
        return any(title == "truth" for title, _ in self.headings)

    @property
    def behind(self) -> bool:
        """Tell whether anything is shown that was computed without noise."""
        return any(side == "private" for _, side in self.headings)

    @property
    def sides(self) -> list[tuple[str, int]]:
        """Give the side of neighbouring columns, and how many they are."""
        return [(side, len(list(some))) for side, some in itertools.groupby(side for _, side in self.headings)]


def strip(folder: RunFolder, *, inside: bool) -> Strip | None:
    """Draw the sheet; private stages are on it where this page may show them."""
    with np.load(folder.samples, allow_pickle=False) as found:
        samples = dict(found)
    if "answers" not in samples:
        return None
    path = folder.pictures if inside else folder.shown_stages
    behind = np.load(path, allow_pickle=False) if path.exists() else None
    truth, columns = samples.get("truth"), _columns(samples, behind)
    rows = []
    for row, image in enumerate(samples["inputs"]):
        place = _slice(samples, row)
        image = _grey(image[0] if image.ndim > samples["answers"].ndim - 1 else image)[place]  # the first channel
        name = f"question {samples['shown'][row] + 1}" if "shown" in samples else f"row {row + 1}"
        cells = [Cell(_png(_painted(image, None, BLUE)), name)]
        for stage in columns:
            score = None
            if truth is not None and stage.side != "public":
                score = float(dice(stage.masks[row : row + 1], truth[row : row + 1])[0])
            mask = np.asarray(stage.masks[row], dtype=float)[place]
            cells.append(Cell(_png(_painted(image, mask, stage.colour)), f"{name}: {stage.title}", score))
        rows.append(cells)
    headings = [("public image", "public"), *((stage.title, stage.side) for stage in columns)]
    peak, volume = float(np.max(samples["mean"])), samples["answers"].ndim > 3
    return Strip(headings, rows, _png(_heat(samples["mean"])), peak, volume, "shown" in samples)


def _columns(samples: dict[str, Array], behind: Array | None) -> list[Stage]:
    found = []
    if "truth" in samples:
        found.append(Stage("truth", "public", samples["truth"], GREEN))
    if behind is not None:
        for title, masks in zip(("one teacher", "encoded teacher", "ensemble"), behind, strict=True):
            found.append(Stage(title, "private", masks, AMBER))
    found.append(Stage("released answer", "released", samples["answers"], BLUE))
    found.append(Stage("student", "released", samples["student"], BLUE))
    return found


def _slice(samples: dict[str, Array], row: int) -> Any:
    """Cut a volume through the middle of its mask, across the last axis; an image is shown whole."""
    mask = np.asarray(samples["truth"][row] if "truth" in samples else np.clip(samples["answers"][row], 0, 1), dtype=float)
    if mask.ndim == 2:
        return ...
    areas = mask.sum(axis=tuple(range(mask.ndim - 1)))
    middle = round(float((areas * np.arange(len(areas))).sum() / areas.sum())) if areas.sum() > 0 else len(areas) // 2
    return (..., middle)


def _grey(image: Array) -> Array:
    """Bring an image to [0, 1]: as it is if it lies there, else by its own range."""
    values = np.asarray(image, dtype=float)
    low, high = values.min(), values.max()
    if low >= 0 and high <= 1:
        return values
    return (values - low) / (high - low) if high > low else np.full(values.shape, 0.5)


def _painted(image: Array, mask: Array | None, colour: tuple[int, int, int]) -> Array:
    """Lay a mask over its image, which fades: (height, width, 3) bytes."""
    if mask is None:
        return np.repeat((image * 255).astype(np.uint8)[..., None], 3, axis=2)
    faint = (235 + 20 * image)[..., None] * np.ones(3)  # the image as a shadow on paper
    share = np.clip(mask, 0, 1)[..., None]
    share = np.where(share < _EMPTY, 0, share)
    return np.rint(faint * (1 - share) + np.asarray(colour) * share).astype(np.uint8)


def _heat(mean: Array) -> Array:
    """Show the mean shape, stretched to its own highest point: (height, width, 3) bytes."""
    shape = np.clip(np.asarray(mean, dtype=float), 0, 1)
    if shape.ndim == 3:
        shape = shape[..., int(shape.sum(axis=(0, 1)).argmax())]
    return _painted(np.ones(shape.shape), shape / max(shape.max(), 1e-9), BLUE)


def _png(pixels: Array) -> str:
    """Give a picture as an address that holds all of it."""
    tall = pixels if pixels.shape[1] <= 96 else pixels[:: pixels.shape[1] // 96 + 1, :: pixels.shape[1] // 96 + 1]
    buffer = io.BytesIO()
    imsave(buffer, np.ascontiguousarray(tall), format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
