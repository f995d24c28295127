"""What a codec may be fitted on, and the record that is kept of it.

A codec fitted on private data is a release of it. `fit` takes `Public` and nothing else, and remembers what it saw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import share
from tutelage.codecs.passes import masks, slices
from tutelage.data.dataset import Public
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]

QUANTILE = 0.95  # of the public norms: longer masks are shortened, so that one odd mask does not set everybody's noise


@final
@dataclass(frozen=True)
class Provenance:
    """Say what a codec was fitted on: where it came from, how many records, and the sha256 of their bytes."""

    source: str
    sha256: str
    records: int


def public_masks(public: Public, shape: tuple[int, ...] | None = None) -> Array:
    """Give the masks (records, *shape) of public data, unread where they are memory-mapped."""
    if not isinstance(public, Public):
        raise DataError(
            f"`public` must be Public: a codec fitted on anything else is a release. Got {type(public).__name__} instead."
        )
    if public.targets is None or public.targets.ndim < 2 or not len(public.targets):
        raise DataError("`public` must hold masks as its targets, (records, *shape). Got none instead.")
    if shape is not None and public.targets.shape[1:] != shape:
        raise DataError(f"`public` must hold masks of shape {shape}. Got {public.targets.shape[1:]} instead.")
    if public.targets.dtype.kind not in "biuf":
        raise DataError(f"`public` must hold masks of real numbers. Got {public.targets.dtype} instead.")
    return public.targets


def passes(targets: Array, chosen: Array | None = None) -> Iterator[Array]:
    """Read masks, or the chosen ones, a few at a time: (rows, pixels) in [0, 1]."""
    for part in slices(len(targets) if chosen is None else len(chosen), int(np.prod(targets.shape[1:]))):
        yield masks(targets[part if chosen is None else chosen[part]])


def provenance(public: Public) -> Provenance:
    """Hash the masks that a codec is fitted on."""
    targets = public_masks(public)
    return Provenance(public.source, hashed(targets), len(targets))


def hashed(*arrays: Array) -> str:
    """Hash arrays with their types and shapes, a few rows at a time."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(f"{array.dtype.str}{array.shape}".encode())
        rows = array if array.ndim else array[None]
        for part in slices(len(rows), int(np.prod(rows.shape[1:]))):
            state.update(np.ascontiguousarray(rows[part]).tobytes())
    return state.hexdigest()


def public_norm(targets: Array, step: Callable[[Array], Array] | None = None, *, quantile: float = QUANTILE) -> float:
    """Give a quantile of the norms of public codes: a clip that was chosen without looking at private ones."""
    share(quantile=quantile)
    norms = [np.linalg.norm(rows if step is None else step(rows), axis=1) for rows in passes(targets)]
    norm = float(np.quantile(np.concatenate(norms), quantile))
    if norm <= 0:
        raise DataError("`public` must hold masks that are not all alike or empty. Got only such instead.")
    return norm
