"""Records that are read when a batch asks for them: whole, or through windows, from arrays that may be larger than memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tutelage.data.mapped import HELD, forget
from tutelage.nets.inputs import arranged, as_inputs

Array = npt.NDArray[Any]
Place = tuple[slice, ...]  # a window: one slice per side
ON_A_GPU = 0.5  # share of a GPU's free memory that records may fill; what is larger stays on the host
CPU = torch.device("cpu")


@final
@dataclass(frozen=True, eq=False, repr=False)
class Pieces:
    """Hold an array and the windows through which every record is seen; a row is one window of one record.

    It is asked for rows as a tensor is, and gives tensors on `device`. Of what is mapped nothing stays in memory.
    """

    array: Array  # (records, ..., *space)
    places: tuple[Place, ...]  # of all records alike, and of one size
    dtype: torch.dtype
    clip: bool = False  # to [0, 1]
    records: Array | None = None  # (some,) which of the array's; without any, all of them
    blank: bool = False  # one more row behind the others, of zeros
    device: torch.device = CPU

    @classmethod
    def inputs(cls, array: Any, places: Sequence[Place] | None = None, *, records: Array | None = None) -> Pieces:
        """Read images as `as_inputs` gives them, with their channels first: bytes, or floats."""
        given = arranged(np.asarray(array))
        kind = torch.uint8 if given.dtype == np.uint8 else torch.float32
        return cls(given, tuple(places or [_all(given.ndim - 2)]), kind, records=records)

    @classmethod
    def masks(cls, array: Any, places: Sequence[Place] | None = None, *, clip: bool = False) -> Pieces:
        """Read masks (records, *space) of zeros and ones, in bytes, or of shares."""
        given = np.asarray(array)
        kind = torch.float32 if np.issubdtype(given.dtype, np.floating) else torch.uint8
        return cls(given, tuple(places or [_all(given.ndim - 1)]), kind, clip)

    @property
    def shape(self) -> tuple[int, ...]:
        """Give the shape that all rows together would have."""
        count = len(self.array) if self.records is None else len(self.records)
        return (count * len(self.places) + self.blank, *self.array[(slice(0, 1), ..., *self.places[0])].shape[1:])

    @property
    def ndim(self) -> int:
        """Count the axes, that of the rows among them."""
        return self.array.ndim

    @property
    def nbytes(self) -> int:
        """Tell how much memory all rows together would take."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Pieces({len(self.places)} of every record)"

    def __getitem__(self, rows: Tensor | Array | slice) -> Tensor:
        """Read rows (...), by their numbers: (..., *piece). What is not finite becomes 0."""
        wanted = torch.arange(len(self))[rows] if isinstance(rows, slice) else torch.as_tensor(rows).cpu()
        found = torch.zeros(wanted.numel(), *self.shape[1:], dtype=self.dtype)
        last = len(self) - self.blank
        with np.errstate(all="ignore"):  # a number that is too large for a float32 warns, and then becomes 0
            for goal, row in zip(found.numpy(), wanted.flatten().tolist(), strict=True):
                if row < last:
                    record, place = divmod(row, len(self.places))
                    piece = self.array[(record if self.records is None else self.records[record], ..., *self.places[place])]
                    goal[...] = np.clip(piece, 0, 1) if self.clip else piece
        forget(self.array)
        return finite(found).view(*wanted.shape, *self.shape[1:]).to(self.device)

    def each(self) -> Iterator[Tensor]:
        """Go through all rows, and hold one at a time."""
        for row in range(len(self)):
            yield self[torch.tensor([row])][0]

    def on(self, device: torch.device) -> Pieces:
        """Give the same rows, read to another device."""
        return replace(self, device=device)

    def whole(self) -> Tensor:
        """Give all rows on the device, brought there one by one."""
        found = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for goal, row in zip(found, self.each(), strict=True):
            goal.copy_(row)
        return found


Source = Tensor | Pieces  # what a batch is taken from


def finite(tensor: Tensor) -> Tensor:
    """Put 0 in the place of what is no finite number; a tensor that has no such number is given back as it is."""
    if not tensor.is_floating_point() or bool(tensor.isfinite().all()):
        return tensor
    return tensor.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def with_blank(source: Source) -> Source:
    """Give the same rows and one more behind them, of zeros: what a teacher without records learns from."""
    if isinstance(source, Pieces):
        return replace(source, blank=True)
    return torch.cat([source, source.new_zeros(1, *source.shape[1:])])


def laid(inputs: Source, targets: Source, device: torch.device) -> tuple[Source, Source]:
    """Bring material to where it is trained on. Pieces are laid out on a GPU that has room for them, and else stay to be read."""
    if isinstance(inputs, Tensor) and isinstance(targets, Tensor):
        return inputs.to(device), targets.to(device)
    both = [one.to(device) if isinstance(one, Tensor) else one.on(device) for one in (inputs, targets)]
    if _fits(sum(one.nbytes for one in both), device):
        both = [one if isinstance(one, Tensor) else one.whole() for one in both]
    return both[0], both[1]


def images_of(inputs: Any, records: Array, device: torch.device, places: Sequence[Place] | None = None) -> Source:
    """Give some images of a pool, or windows of them: as one tensor, or as pieces where that would be too large for memory."""
    pieces = Pieces.inputs(inputs, places, records=np.asarray(records)).on(device)
    if pieces.nbytes <= HELD:
        return as_inputs(np.asarray(inputs)[records]).to(device) if places is None else pieces.whole()
    return pieces.whole() if _fits(pieces.nbytes, device) else pieces


def _fits(nbytes: int, device: torch.device) -> bool:
    """Tell whether a GPU has room for so much."""
    return device.type == "cuda" and nbytes <= ON_A_GPU * torch.cuda.mem_get_info(device)[0]


def _all(sides: int) -> Place:
    return (slice(None),) * sides
