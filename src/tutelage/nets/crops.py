"""Regions of images, each cut out and scaled to one size: what a network sees that looks at one region at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from tutelage.nets.augmentation import Augmentation
from tutelage.nets.inputs import pick_device
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
SIDE = 32
CHANNELS = 2  # the region, and what else there is
MARGIN, LEAST = 1.15, 4  # how much larger than its region a crop is, and the smallest region that fills one
SILHOUETTES = Augmentation(rotation=30, scale=0.2, shear=10, shift=2, flip=True)
_IMAGES = 4096  # cut into regions at a time
_PIXELS = 1 << 24  # of regions in flight


class Cut(Protocol):
    """What divides images into regions, by public criteria alone. `codecs.regionvotes.RegionVotes` is one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Give the shape of an image."""

    @property
    def regions(self) -> int:
        """Give how many regions an image has at most; this number itself means none of them."""

    @property
    def share(self) -> float:
        """Give from which share on a region is chosen and not none."""

    def seeing(self, inputs: Any) -> Any:
        """Give what has the `labels` (images, *shape) of these images, and can `encode` and `decode` masks of them."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Crops:
    """Hold the regions of some images but for each one's background, in the order of the images.

    The background is what most of an image's rim shows. An image that is all background has no crops.
    """

    pictures: Array  # (crops, 2, side, side) bytes
    owners: Array  # (crops,), whose region it is: the place of an image
    places: Array  # (crops,), which region of that image it is
    images: int
    regions: int  # of an image at most

    @classmethod
    def of(cls, labels: Array, regions: int, *, side: int = SIDE, device: str = "auto") -> Crops:
        """Cut out the regions of images given as labels (images, height, width), pass by pass."""
        given = np.asarray(labels)
        if given.ndim != 3 or given.dtype.kind not in "iu" or (given.size and not 0 <= given.min() <= given.max() < regions):
            raise DataError(
                f"`labels` must be whole numbers below {regions} of shape (images, height, width). "
                f"Got {given.dtype} of {given.shape} instead."
            )
        if isinstance(side, bool) or not isinstance(side, int) or side < LEAST:
            raise RecipeError(f"`side` must be a whole number ≥ {LEAST}. Got {side!r} instead.")
        place = pick_device(device)
        step = max(1, _PIXELS // max(1, 4 * given.shape[1] * given.shape[2]))
        parts = [(start, given[start : start + step]) for start in range(0, len(given), step)]
        found = [_cut(torch.from_numpy(part.astype(np.int64)).to(place), regions, side, start) for start, part in parts]
        if not found:
            found = [(torch.empty(0, CHANNELS, side, side, dtype=torch.uint8), torch.empty(0, 2, dtype=torch.int64))]
        pictures, where = (np.concatenate([part.cpu().numpy() for part in parts]) for parts in zip(*found, strict=True))
        return cls(pictures, where[:, 0], where[:, 1], len(given), regions)

    @classmethod
    def joined(cls, parts: Sequence[Crops]) -> Crops:
        """Put the crops of several sets of images behind each other."""
        starts = np.cumsum([0, *(part.images for part in parts)])
        return cls(
            np.concatenate([part.pictures for part in parts]),
            np.concatenate([part.owners + start for part, start in zip(parts, starts[:-1], strict=True)]),
            np.concatenate([part.places for part in parts]),
            int(starts[-1]),
            parts[0].regions,
        )

    def __len__(self) -> int:
        return len(self.pictures)

    def lessons(self, lessons: Iterable[tuple[Array, Array]]) -> tuple[Array, Array, list[Array]]:
        """Make training material of (images, the region that each of them was said to be) pairs, one for every network.

        Gives pictures, labels (1: this region is the one) and every network's rows of both. A network whose images have no
        region gets one blank picture that is nothing: how many networks there are must not hang on what they see.
        """
        begins = np.searchsorted(self.owners, np.arange(self.images + 1))
        rows, wanted, shards, at = [], [], [], 0
        for images, chosen in lessons:
            images = np.asarray(images, dtype=np.int64)
            counts = begins[images + 1] - begins[images]
            mine = np.repeat(begins[images] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            rows.append(mine if len(mine) else np.array([-1]))
            wanted.append(self.places[mine] == np.repeat(chosen, counts) if len(mine) else np.array([False]))
            shards.append(np.arange(at, at + len(rows[-1])))
            at += len(rows[-1])
        every = np.concatenate(rows)
        pictures = np.zeros_like(self.pictures, shape=(len(every), *self.pictures.shape[1:]))
        pictures[every >= 0] = self.pictures[every[every >= 0]]
        return pictures, np.concatenate(wanted).astype(np.int64), shards

    def chosen(self, sure: Array, share: float) -> Array:
        """Choose the surest region of every image, or none where even that is below `share`: (..., images) numbers of regions.

        `sure` (..., crops) says how likely each crop is the object's.
        """
        likely = np.zeros((*sure.shape[:-1], self.images, self.regions), dtype=np.float32)
        likely[..., self.owners, self.places] = sure
        best = np.where(likely.max(axis=-1) >= share, likely.argmax(axis=-1), self.regions)
        return best.astype(np.min_scalar_type(self.regions))


def crops_of(
    cut: Cut, images: Any, said: Sequence[tuple[Array, Any]] = (), *, side: int = SIDE, device: str = "auto"
) -> tuple[Crops, list[Array]]:
    """Cut images into crops, pass by pass, and tell which region is meant where something was said about some of them.

    `said` are pairs of rows (some,), all different, and masks (some, *shape) of these images. Each becomes one number per row:
    the region that the cut's own votes name.
    """
    found, named = [], [np.empty(len(rows), dtype=np.int64) for rows, _ in said]
    for start in range(0, max(1, len(images)), _IMAGES):
        seen = cut.seeing(np.asarray(images[start : start + _IMAGES]))
        found.append(Crops.of(seen.labels, cut.regions, side=side, device=device))
        for (rows, masks), names in zip(said, named, strict=True):
            here = np.flatnonzero((rows >= start) & (rows < start + len(seen.labels)))
            shown = np.zeros(seen.labels.shape, dtype=masks.dtype)
            shown[rows[here] - start] = masks[here]
            names[here] = seen.encode(shown[None])[0].argmax(axis=-1)[rows[here] - start]
    return Crops.joined(found), named


def _cut(labels: Tensor, regions: int, side: int, start: int) -> tuple[Tensor, Tensor]:
    """Give crops (crops, 2, side, side) in bytes, and (crops, 2) the image and region of each."""
    count, height, width = labels.shape
    images = torch.arange(count, device=labels.device)
    sizes = _counted(labels.reshape(count, -1), regions)
    rim = torch.cat([labels[:, 0], labels[:, -1], labels[:, 1:-1, 0], labels[:, 1:-1, -1]], dim=1)
    back = _counted(rim, regions).argmax(1)  # (images,)
    there = sizes > 0
    there[images, back] = False
    where = there.nonzero()
    step = max(1, _PIXELS // max(1, CHANNELS * height * width))
    pictures = [_scaled(labels, back, some, side) for some in where.split(step)]
    none = torch.empty(0, CHANNELS, side, side, dtype=torch.uint8, device=labels.device)
    where[:, 0] += start
    return torch.cat([none, *pictures]), where


def _counted(labels: Tensor, regions: int) -> Tensor:
    """Count the pixels of every region: (images, regions)."""
    return torch.zeros(len(labels), regions, device=labels.device, dtype=torch.int64).scatter_add_(
        1, labels, torch.ones_like(labels)
    )


def _scaled(labels: Tensor, back: Tensor, where: Tensor, side: int) -> Tensor:
    mine = labels[where[:, 0]]  # (crops, height, width)
    region = mine == where[:, 1, None, None]
    others = ~region & (mine != back[where[:, 0], None, None])
    both = torch.stack([region, others], dim=1).float()
    crops = F.grid_sample(both, _grid(region, side), mode="bilinear", padding_mode="zeros", align_corners=False)
    return (crops * 255).round().to(torch.uint8)


def _grid(region: Tensor, side: int) -> Tensor:
    """Put a square around each region: (crops, side, side, 2)."""
    lines = []
    for axis in (2, 1):  # rows, columns
        used = region.any(axis)
        places = torch.arange(used.shape[1], device=region.device, dtype=torch.float32)
        lines.append((torch.where(used, places, torch.inf).amin(1), torch.where(used, places, -torch.inf).amax(1), len(places)))
    half = torch.stack([high - low for low, high, _ in lines]).amax(0).clamp(min=LEAST) / 2 * MARGIN + 1
    steps = (torch.arange(side, device=region.device) + 0.5) / side * 2 - 1
    down, right = (
        (((low + high) / 2)[:, None] + half[:, None] * steps + 0.5) / size * 2 - 1 for low, high, size in lines
    )  # (crops, side)
    shape = (len(region), side, side)
    return torch.stack([right[:, None].expand(shape), down[:, :, None].expand(shape)], dim=-1)
