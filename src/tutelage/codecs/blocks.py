"""Principal components of blocks: for volumes with far more voxels than there are public masks (Fay et al. 2020, Section 2.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import checked_folds, not_negative, positive, settle, sizes, whole
from tutelage.codecs.fitting import QUANTILE, Provenance, named, passes, provenance, public_masks, public_norm
from tutelage.codecs.linear import Measurement, measurement
from tutelage.codecs.passes import decoded, encoded
from tutelage.codecs.spectrum import Spectrum, gathering, held_out, principal
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Blocks:
    """Cut a mask into blocks and keep the first components of each; all blocks share one set of components.

    The mask is padded with zeros to whole blocks. `clip='volume'` shortens the code of a whole mask to `norm`.
    `clip='block'` shortens the code of each block to norm/√blocks: the diameter is the same, and masks that fill few blocks
    lose most (docs/theory/codecs.md). `noise` shrinks deviations, by the variance that each place had on public masks.
    """

    shape: tuple[int, ...]
    block: tuple[int, ...]
    spectrum: Spectrum  # of blocks, without a mean
    mean: Array  # (pixels,): the mean public mask, or zero
    variances: Array  # (blocks, components), of the public codes at each place
    norm: float
    noise: float = 0.0
    clip: Literal["volume", "block"] = "volume"
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        for name in ("shape", "block"):
            object.__setattr__(self, name, sizes(name, getattr(self, name)))
        for name in ("mean", "variances"):
            array = np.array(getattr(self, name), dtype=np.float64)  # a copy: the repr names these numbers
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        positive(norm=self.norm)
        not_negative(noise=self.noise)
        settle(self, norm=float(self.norm), noise=float(self.noise))
        if self.clip not in ("volume", "block"):
            raise RecipeError(f"`clip` must be 'volume' or 'block'. Got {self.clip!r} instead.")

    @classmethod
    def fit(
        cls,
        public: Public,
        *,
        block: tuple[int, ...],
        components: int | None = None,
        noise: float = 0.0,
        norm: float | None = None,
        centre: bool = True,
        clip: Literal["volume", "block"] = "volume",
        rank: int = 512,
        folds: int = 0,
        quantile: float = QUANTILE,
    ) -> Blocks:
        """Find components of the blocks of public masks; without a number keep those whose variance exceeds the noise's.

        Masks are read five times, a volume at a time, and about twice more for each fold. `centre=False` is the paper's encoder.
        With `folds` ≥ 2 the variances that decide how many are kept are those of masks left out of the fit: better where masks
        are few and nothing is shrunk, for blocks of one mask are alike, and many blocks are no help. Where deviations are shrunk
        (`noise`), directions too many do no harm: leave it out.
        """
        targets = public_masks(public)
        shape, block = tuple(targets.shape[1:]), sizes("block", block)
        if len(block) != len(shape):
            raise RecipeError(f"`block` must have {len(shape)} sizes, one per axis of a mask. Got {block!r} instead.")
        if components is None and not noise:
            raise RecipeError("`noise` must be given where `components` is not: it decides how many are kept. Got 0 instead.")
        not_negative(noise=noise)
        whole(rank=rank)
        checked_folds(folds, len(targets))

        def find(chosen: Array) -> tuple[Array, Spectrum]:
            return _components(targets, chosen, block, centre=centre, rank=rank)

        def deviating(chosen: Array, mean: Array) -> Iterator[Array]:
            return _deviating(targets, chosen, mean, block)

        mean, spectrum = find(np.arange(len(targets)))
        if folds:
            spectrum = held_out(spectrum, len(targets), folds, find=find, deviating=deviating)
        kept = spectrum.above(noise) if components is None else components
        whole(components=kept)
        if kept > len(spectrum.vectors):
            raise RecipeError(f"`components` must be at most the {len(spectrum.vectors)} found. Got {components!r} instead.")
        places = math.prod(grid(shape, block))
        draft = cls(shape, block, spectrum, mean, np.zeros((places, kept)), 1.0, noise, clip)
        # Those of the fit, also with folds: the k-th direction of a fold is not quite the k-th of all, so gains by it are worse.
        squares = sum((draft.forward(rows) ** 2).sum(axis=0) for rows in passes(targets)).reshape(places, kept)
        if norm is None:
            norm = public_norm(targets, draft.forward, quantile=quantile)
        told = f"folds={folds}, " * bool(folds) + gathering(math.prod(block), len(targets) * places, rank)
        how = f"centre={bool(centre)}, rank={int(rank)}, {told}along={spectrum.outline(kept)}"
        return cls(shape, block, spectrum, mean, squares / len(targets), norm, noise, clip, provenance(public, how))

    @property
    def bound(self) -> Ball:
        """Short vectors."""
        return Ball(self.variances.size, self.norm)

    def forward(self, rows: Array) -> Array:
        """Project the blocks of masks (rows, pixels) onto the components: (rows, blocks · components)."""
        blocks = cut(rows - self.mean, self.shape, self.block)  # (rows, blocks, voxels)
        codes = blocks @ self.spectrum.vectors[: self.variances.shape[1]].T
        return np.asarray(codes.reshape(len(rows), -1))

    def backward(self, codes: Array) -> Array:
        """Shrink deviations (rows, blocks · components) and put them on the mean: (rows, pixels)."""
        gains = np.ones_like(self.variances)
        if self.noise:
            gains = self.variances / (self.variances + self.noise**2)
        deviations = codes.reshape(-1, *self.variances.shape) * gains
        blocks = deviations @ self.spectrum.vectors[: self.variances.shape[1]]
        return self.mean + _join(blocks, self.shape, self.block)

    def measured(self, codes: Array) -> Measurement:
        """Say which linear measurements of a mask released codes (questions, dimension) are."""
        return measurement(replace(self, noise=0.0), codes)

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into ballots (teachers, queries, blocks · components)."""
        bound = self.bound
        return encoded(predictions, self.shape, bound.dimension, lambda rows: bound.clip(self._shortened(self.forward(rows))))

    def _shortened(self, codes: Array) -> Array:
        """Shorten each block on its own where asked to."""
        if self.clip == "volume":
            return codes
        places, components = self.variances.shape
        return Ball(components, self.norm / math.sqrt(places)).clip(codes.reshape(-1, places, components)).reshape(codes.shape)

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Give masks (queries, *shape) whose blocks lie in the span of the components."""
        return decoded(codes, self.bound.dimension, self.shape, self.backward)

    @cached_property
    def _name(self) -> str:
        return named(self.provenance, self.spectrum.vectors, self.mean, self.variances)

    def __repr__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """Name the codec by all that decides what it encodes and decodes."""
        return (
            f"Blocks(shape={self.shape}, block={self.block}, components={self.variances.shape[1]}, norm={self.norm!r}, "
            f"noise={self.noise!r}, clip={self.clip!r}, fitted={self._name!r})"
        )


def grid(shape: tuple[int, ...], block: tuple[int, ...]) -> tuple[int, ...]:
    """Count blocks along each axis."""
    return tuple(-(-size // part) for size, part in zip(shape, block, strict=True))


def cut(rows: Array, shape: tuple[int, ...], block: tuple[int, ...]) -> Array:
    """Pad masks (rows, pixels) with zeros and cut them: (rows, blocks, voxels of a block)."""
    places = grid(shape, block)
    padded = np.zeros((len(rows), *(count * part for count, part in zip(places, block, strict=True))))
    padded[(slice(None), *(slice(size) for size in shape))] = rows.reshape(-1, *shape)
    split = padded.reshape(len(rows), *(size for pair in zip(places, block, strict=True) for size in pair))
    axes = (0, *range(1, 2 * len(shape), 2), *range(2, 2 * len(shape) + 1, 2))
    return split.transpose(axes).reshape(len(rows), math.prod(places), math.prod(block))


def _join(blocks: Array, shape: tuple[int, ...], block: tuple[int, ...]) -> Array:
    """Put blocks (rows, blocks, voxels of a block) together and drop the padding: (rows, pixels)."""
    places, axes = grid(shape, block), len(shape)
    order = (0, *(axis for pair in range(1, axes + 1) for axis in (pair, pair + axes)))
    whole_masks = blocks.reshape(len(blocks), *places, *block).transpose(order)
    padded = whole_masks.reshape(len(blocks), *(count * part for count, part in zip(places, block, strict=True)))
    return padded[(slice(None), *(slice(size) for size in shape))].reshape(len(blocks), -1)


def _components(targets: Array, chosen: Array, block: tuple[int, ...], *, centre: bool, rank: int) -> tuple[Array, Spectrum]:
    """Find the mean of the chosen masks, or zero, and the components of their blocks about it."""
    shape = tuple(targets.shape[1:])
    mean = np.zeros(math.prod(shape))
    if centre:
        mean = sum((rows.sum(axis=0) for rows in passes(targets, chosen)), mean) / len(chosen)
    # Blocks that do not differ from the mean would add nothing to a second moment.
    stream = (blocks[blocks.any(axis=1)] for blocks in _deviating(targets, chosen, mean, block))
    records = len(chosen) * math.prod(grid(shape, block))
    return mean, principal(stream, math.prod(block), records=records, centre=False, rank=rank)


def _deviating(targets: Array, chosen: Array, mean: Array, block: tuple[int, ...]) -> Iterator[Array]:
    """Read the blocks (rows, voxels) of the chosen masks about a mean."""
    for rows in passes(targets, chosen):
        yield cut(rows - mean, tuple(targets.shape[1:]), block).reshape(-1, math.prod(block))
