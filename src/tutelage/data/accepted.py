"""Which inputs a model takes: what the public pool that it learned from looks like. It is stored with the model."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.mapped import forget
from tutelage.data.pixels import scale
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
_BYTES = 1 << 24  # looked at at a time


def numbers(dtype: Any) -> str:
    """Name a kind of numbers: floats of any width are one kind, and every other type is its own."""
    kind = np.dtype(dtype)
    return "float" if kind.kind == "f" else kind.name


@final
@dataclass(frozen=True)
class Accepted:
    """Say which inputs a model takes, and bring them to the form that it learned from.

    Inputs are of the declared shape and kind of numbers; grey images may come without their channel, colour ones with their
    channels last, and records as flat rows. Bytes are taken for images that were scaled to [0, 1], and scaled alike. Values of
    images must lie no further outside the pool's range than that range is wide.
    """

    shape: tuple[int, ...]  # of one record
    numbers: str  # "float", or the type's own name: "uint8"
    low: float  # least and largest value of the pool
    high: float

    @classmethod
    def of(cls, inputs: Any) -> Accepted:
        """Describe a pool; it may be mapped from a file."""
        array = np.asarray(inputs)
        kind = numbers(array.dtype)
        low, high = _range(array) if array.dtype.kind in "biuf" else (-math.inf, math.inf)
        return cls(tuple(array.shape[1:]), kind, low, high)

    @property
    def scaled(self) -> bool:
        """Tell whether these are images in [0, 1]: bytes are divided by 255 for them."""
        return self.numbers == "float" and len(self.shape) > 1 and self.low >= 0 and self.high <= 1

    def __call__(self, inputs: Any, *, any_size: bool = False) -> Array:
        """Give inputs as the model learned them, or refuse them. With `any_size` the sides of an image may be others."""
        array = self._shaped(np.asarray(inputs), any_size)
        kind = numbers(array.dtype)
        if kind == "uint8" and self.scaled:
            return scale(array)
        # Tables are learned from as floats. Where a pool lies in [0, 1] larger whole numbers may be pixels, not scaled yet.
        alike = array.dtype.kind in "biu" and (self.low < 0 or self.high > 1 or _range(array)[1] <= 1)
        if len(self.shape) < 2 and self.numbers == "float" and alike:
            return array.astype(np.float64)
        if kind != self.numbers:
            hint = " (or bytes, which are divided by 255)" if self.scaled else ""
            raise DataError(f"`inputs` must be {self.numbers}{hint}, as the model learned from. Got {kind} instead.")
        if len(self.shape) > 1 and kind == "float" and 0 < self.high - self.low < math.inf:
            low, high, wide = *_range(array), self.high - self.low
            if math.isfinite(high) and (low < self.low - wide or high > self.high + wide):
                raise DataError(
                    f"`inputs` must be scaled as the pool was, whose values lie in [{self.low:g}, {self.high:g}]. "
                    f"Got values in [{low:g}, {high:g}] instead."
                )
        return array

    def _shaped(self, array: Array, any_size: bool) -> Array:
        record, whole = tuple(array.shape[1:]), math.prod(self.shape)
        if record == self.shape:
            return array
        last = len(self.shape) == 3 and self.shape[0] in (1, 3) and record == (*self.shape[1:], self.shape[0])
        if last:
            return np.moveaxis(array, -1, 1)
        if record == (whole,) or (_bare(record) == _bare(self.shape) and array.ndim > 1):
            return array.reshape(len(array), *self.shape)
        if any_size and len(record) == len(self.shape) and record[:-2] == self.shape[:-2]:
            return array
        if any_size and len(record) == len(self.shape) and len(record) > 2 and record[0] == self.shape[0]:
            return array
        raise DataError(f"`inputs` must be records of shape {self.shape}, as the model learned from. Got {record} instead.")

    def plain(self) -> str:
        """Write this as one line, for the file of a model."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def read(cls, line: str) -> Accepted:
        """Read that line back."""
        try:
            found = json.loads(line)
            shape = tuple(int(side) for side in found["shape"])
            return cls(shape, str(found["numbers"]), float(found["low"]), float(found["high"]))
        except (KeyError, TypeError, ValueError, RecursionError):
            raise DataError("`path` must be a model that says what it takes. Got a damaged line instead.") from None


def taken(public: Any) -> Accepted:
    """Say what a student takes that learns from public data, or from an array."""
    own = getattr(public, "takes", None)
    return Accepted.of(getattr(public, "inputs", public)) if own is None else own()


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Leave out the one channel of grey images."""
    return shape[1:] if len(shape) > 2 and shape[0] == 1 else shape


def _range(array: Array) -> tuple[float, float]:
    """Find the least and the largest finite value, some records at a time."""
    low, high = math.inf, -math.inf
    step = max(1, _BYTES * len(array) // max(1, array.nbytes)) if len(array) else 1
    for start in range(0, len(array), step):
        part = array[start : start + step]
        whole = part if part.dtype.kind != "f" else part[np.isfinite(part)]
        if whole.size:
            low, high = min(low, float(whole.min())), max(high, float(whole.max()))
        forget(array)
    return (low, high) if low <= high else (-math.inf, math.inf)
