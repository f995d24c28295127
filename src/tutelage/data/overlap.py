"""Find records that private and public data share, by what they hold: names, files and forms of storage do not matter.

Two images are one record if they are equal, up to 1/255 of an image's own range, in any orientation: axes exchanged or reversed,
channels first or last, as bytes or as floats, scaled or shifted. Rows of a table are one record if they are equal in single
precision. An image of one value holds nothing of anybody, and is no copy of another. Two people may have equal rows in a table of
few values: rows are compared where the public table's own columns tell its rows apart, by 64 bits or more.

Everything is read a few records at a time: both sides may be mapped from files that are larger than memory.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from tutelage.data.dataset import Private, Public
from tutelage.data.mapped import forget
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
_CLOSE = 1 / 255  # of an image's range: what rounding to bytes can move a value by, twice over
_ALIKE = 0.02  # of an image's deviation, on average: a dark image with one bright pixel is not every other such image
_SHELLS = 8  # about an image's middle, whose means do not depend on how the image is turned
_BITS, _COLUMN = 64.0, 32.0  # that a table's columns together must tell rows apart by, and that one column may count for
_BYTES = 1 << 24  # read at a time


def refuse(private: Private, public: Public | None, test: Public | None) -> None:
    """Refuse a pool or a test part that holds a private record: both are shown to everybody.

    The message gives no place. `copies` does.
    """
    for name, data in (("public", public), ("test", test)):
        if data is not None and len(copies(data.inputs, private.inputs)):
            raise DataError(
                f"`{name}` must hold no record of `private`, in whatever form. Got a copy instead: take it out of `{name}`; "
                f"`tutelage.data.overlap.copies({name}.inputs, private.inputs)` gives its place."
            )


def copies(public: Any, private: Any) -> Array:
    """Give the places in `public` (records, ...) of what `private` (records, ...) holds too, in order."""
    public, private = np.asarray(public), np.asarray(private)
    one, other = _sides(public), _sides(private)
    if not len(public) or not len(private) or sorted(one) != sorted(other):
        return np.zeros(0, np.int64)
    return _same_rows(public, private) if len(one) < 2 else _same_images(public, private)


def _sides(inputs: Array) -> tuple[int, ...]:
    """Give a record's shape without its sides of one: a grey image may come with its channel or without."""
    return tuple(side for side in inputs.shape[1:] if side > 1)


def _blocks(inputs: Array) -> Iterator[tuple[int, Array]]:
    step = max(1, _BYTES * len(inputs) // max(1, inputs.nbytes))
    for start in range(0, len(inputs), step):
        yield start, inputs[start : start + step]
        forget(inputs)


# ── images ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _same_images(public: Array, private: Array) -> Array:
    """Compare what does not depend on orientation first, and then those that agree in it, value by value."""
    shells = _shells(_sides(public))
    theirs, kept = _traits(private, _shells(_sides(private)))
    ours, spread = _traits(public, shells)
    inside, outside = np.flatnonzero(kept), np.flatnonzero(spread)
    if not len(inside) or not len(outside):
        return np.zeros(0, np.int64)
    # Alike images are this close in every shell's mean: the smallest shell may have all of the difference.
    reach = np.minimum(_CLOSE, _ALIKE * spread * math.sqrt(len(shells) * shells.max()) + 1e-6)
    tree, found = cKDTree(theirs[inside]), []
    for place in outside:
        near = tree.query_ball_point(ours[place], reach[place], p=np.inf)
        mine = _canonical(public[place][None])[0] if near else None
        if mine is not None and any(_turned(mine, _canonical(private[inside[one]][None])[0]) for one in near):
            found.append(place)
    return np.asarray(found, dtype=np.int64)


def _canonical(images: Array) -> Array:
    """Bring images to their own range, [0, 1], without sides of one; what is no finite number counts as 0."""
    values = np.nan_to_num(np.asarray(images, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    flat = values.reshape(len(values), -1)
    low, high = flat.min(axis=1, keepdims=True), flat.max(axis=1, keepdims=True)
    spread = np.where(high > low, high - low, 1.0)
    return ((flat - low) / spread).astype(np.float32).reshape(len(values), *_sides(images))


def _traits(inputs: Array, shells: Array) -> tuple[Array, Array]:
    """Give numbers (records, traits) that turning an image leaves alone, and each image's deviation: 0 where it has one value.

    Each is a mean over a shell of values, or of half their squares: no further apart than the images themselves are.
    """
    traits, spread = np.zeros((len(inputs), 2 * shells.shape[1])), np.zeros(len(inputs))
    for start, block in _blocks(inputs):
        flat, part = _canonical(block).reshape(len(block), -1), slice(start, start + len(block))
        traits[part] = np.hstack([flat @ shells, (flat**2 / 2) @ shells])
        spread[part] = flat.std(axis=1)
    return traits, spread


def _shells(sides: tuple[int, ...]) -> Array:
    """Give weights (values, shells) that average over values about equally far from the middle."""
    axes = np.meshgrid(*(np.arange(side) * 2 - side + 1 for side in sides), indexing="ij")
    far = sum(axis.astype(np.int64) ** 2 for axis in axes).reshape(-1)  # whole numbers: equal ones stay together
    limits = np.unique(np.quantile(far, np.linspace(0, 1, _SHELLS + 1)[1:-1], method="nearest"))
    weights = np.eye(len(limits) + 1, dtype=np.float32)[np.searchsorted(limits, far)]
    return np.asarray(weights / np.maximum(1, weights.sum(axis=0)))


def _turned(image: Array, other: Array) -> bool:
    """Tell whether two canonical images are one, in any orientation."""
    if np.abs(np.sort(image, axis=None) - np.sort(other, axis=None)).max() > _CLOSE:  # cheap, beside all orientations
        return False
    away = _ALIKE * float(image.std())
    for axes in itertools.permutations(range(other.ndim)):
        if tuple(other.shape[axis] for axis in axes) != image.shape:
            continue
        for flips in itertools.product((1, -1), repeat=other.ndim):
            apart = np.abs(other.transpose(axes)[tuple(slice(None, None, step) for step in flips)] - image)
            if apart.max() <= _CLOSE and math.sqrt(float(np.mean(apart**2))) <= away:
                return True
    return False


# ── rows of tables ────────────────────────────────────────────────────────────────────────────────────────────────────


def _same_rows(public: Array, private: Array) -> Array:
    ours = public.reshape(len(public), -1)
    if not _tells_apart(ours):
        return np.zeros(0, np.int64)
    known = {row for _, block in _blocks(private.reshape(len(private), -1)) for row in _hashes(block)}
    hashes = (row for _, block in _blocks(ours) for row in _hashes(block))
    return np.flatnonzero(np.fromiter((row in known for row in hashes), dtype=bool, count=len(ours)))


def _hashes(rows: Array) -> Iterator[bytes]:
    if rows.dtype.kind in "biuf":
        rows = rows.astype(np.float32) + np.float32(0)  # -0 is 0
        rows[np.isnan(rows)] = np.nan  # there are many
        return (hashlib.sha256(row.tobytes()).digest() for row in rows)
    return (hashlib.sha256("\0".join(map(str, row)).encode()).digest() for row in rows)


def _tells_apart(rows: Array) -> bool:
    """Add up how surely the columns of a public table tell two of its rows apart: the bits of a chance agreement."""
    bits, pairs = 0.0, len(rows) * (len(rows) - 1) / 2
    for column in rows.T:
        _, counts = np.unique(column.astype(str) if column.dtype.kind == "O" else column, return_counts=True)
        equal = float((counts * (counts - 1.0)).sum() / 2)
        bits += min(_COLUMN, math.log2(pairs / equal)) if equal and pairs else _COLUMN
        if bits >= _BITS:
            return True
    return False
