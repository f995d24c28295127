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
    """Say what a codec was fitted on, where it came from, how many records, the sha256 of their bytes; and how."""

    source: str
    sha256: str
    records: int
    how: str = ""  # the fit's arguments, as far as nothing else in the codec's repr shows them

    @property
    def name(self) -> str:
        """Name the fit by what went in. What comes out differs in its last bits from one number of threads to another.

        So whoever changes what a fit computes changes `how`: codes kept under the old name are decoded under the new one.
        """
        return f"{self.sha256[:16]}{self.how and ', '}{self.how}"


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


def provenance(public: Public, how: str = "") -> Provenance:
    """Hash the masks that a codec is fitted on."""
    targets = public_masks(public)
    return Provenance(public.source, hashed(targets), len(targets), how)


def named(found: Provenance | None, *arrays: Array) -> str:
    """Name a codec by its fit, or by its numbers where nobody says what they were fitted on."""
    return hashed(*arrays)[:16] if found is None else found.name


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
    norm = rounded(np.quantile(np.concatenate(norms), quantile))
    if norm <= 0:
        raise DataError("`public` must hold masks that are not all alike or empty. Got only such instead.")
    return norm


def rounded(norm: float | np.floating[Any]) -> float:
    """Drop the digits of a norm that depend on the number of threads: it names the codec and its mechanism.

    Eight digits are left. Components whose variances are close differ in the twelfth already.
    """
    return float(f"{norm:.7e}")
