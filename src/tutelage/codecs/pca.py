"""Principal components of public masks (Fay et al. 2022, Section 2.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.checks import checked_folds, not_negative, positive, settle, share, sizes, whole
from tutelage.codecs.fitting import QUANTILE, Provenance, named, passes, provenance, public_masks, public_norm, rounded
from tutelage.codecs.linear import Measurement, measurement
from tutelage.codecs.passes import decoded, encoded
from tutelage.codecs.spectrum import Spectrum, gathering, held_out, principal
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import RecipeError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True, eq=False, repr=False)
class PCA:
    """Keep the first components of public masks; shrink each released deviation by how much of it is noise.

    `noise` is the standard deviation of the noise on one coordinate of the released *mean* (`NoisyMean.sigma / teachers`);
    with 0 nothing is shrunk.
    """

    shape: tuple[int, ...]
    spectrum: Spectrum
    components: int
    norm: float
    noise: float = 0.0
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", sizes("shape", self.shape))
        positive(norm=self.norm)
        not_negative(noise=self.noise)
        whole(components=self.components)
        settle(self, norm=float(self.norm), noise=float(self.noise), components=int(self.components))
        if self.components > len(self.spectrum.vectors):
            found = len(self.spectrum.vectors)
            raise RecipeError(f"`components` must be at most the {found} that were found. Got {self.components!r} instead.")

    @classmethod
    def fit(
        cls,
        public: Public,
        *,
        components: int | None = None,
        noise: float = 0.0,
        norm: float | None = None,
        centre: bool = True,
        rank: int = 512,
        folds: int = 0,
        quantile: float = QUANTILE,
    ) -> PCA:
        """Find components of public masks or shapes; without a number keep those whose variance exceeds the noise's.

        `centre=False` is the papers' encoder, which keeps the mean inside the code. Without `norm` the clip is a quantile
        of the public codes' norms. With `folds` ≥ 2 variances are measured on masks left out of the fit: do so when there are
        fewer masks than some ten per component.
        """
        targets = public_masks(public)
        shape = tuple(targets.shape[1:])
        not_negative(noise=noise)
        whole(rank=rank)
        if components is None and not noise:
            raise RecipeError("`noise` must be given where `components` is not: it decides how many are kept. Got 0 instead.")
        checked_folds(folds, len(targets))

        def find(chosen: Array) -> tuple[Array, Spectrum]:
            rows = passes(targets, chosen)
            found = principal(rows, math.prod(shape), records=len(chosen), centre=centre, rank=rank)
            return found.mean, found

        def deviating(chosen: Array, mean: Array) -> Iterator[Array]:
            return (rows - mean for rows in passes(targets, chosen))

        _, spectrum = find(np.arange(len(targets)))
        if folds:
            spectrum = held_out(spectrum, len(targets), folds, find=find, deviating=deviating)
        kept = spectrum.above(noise) if components is None else components
        draft = cls(shape, spectrum, kept, 1.0, noise)
        if norm is None:
            norm = public_norm(targets, draft.forward, quantile=quantile)
        how = _how(spectrum, kept, len(targets), centre=centre, rank=rank, folds=folds)
        return cls(shape, spectrum, kept, norm, noise, provenance(public, how))

    @classmethod
    def priced(
        cls,
        public: Public,
        *,
        noise_per_norm: float,
        centre: bool = True,
        rank: int = 512,
        folds: int = 0,
        quantile: float = QUANTILE,
    ) -> PCA:
        """Keep as many components as the noise that they will meet allows, where the clip and so the noise hang on how many.

        A clip of 1 would put noise of the deviation `noise_per_norm` on every coordinate of the mean. For every number the clip
        is a quantile of the norms of public codes; the number with the least predicted error is taken (Fay et al. 2022,
        Eq. 13). With one clip for all numbers it keeps those whose variance exceeds the noise's.
        """
        positive(noise_per_norm=noise_per_norm)
        share(quantile=quantile)
        whole(rank=rank)
        first = cls.fit(public, components=1, norm=1.0, centre=centre, rank=rank, folds=folds)
        widest = replace(first, components=len(first.spectrum.vectors))
        squares = np.concatenate([np.cumsum(widest.forward(rows) ** 2, axis=1) for rows in passes(public_masks(public))])
        clips = np.sqrt(np.quantile(squares, quantile, axis=0))  # (rank,), for the first 1, 2, ... components
        errors = [widest.spectrum.predicted_error(count + 1, noise_per_norm * clip) for count, clip in enumerate(clips)]
        kept = int(np.argmin(errors)) + 1
        found = provenance(public, _how(first.spectrum, kept, len(public), centre=centre, rank=rank, folds=folds))
        return cls(first.shape, first.spectrum, kept, rounded(clips[kept - 1]), 0.0, found)

    @property
    def bound(self) -> Ball:
        """Short vectors."""
        return Ball(self.components, self.norm)

    def forward(self, rows: Array) -> Array:
        """Project masks (rows, pixels) onto the components: (rows, components)."""
        return np.asarray((rows - self.spectrum.mean) @ self.spectrum.vectors[: self.components].T)

    def backward(self, codes: Array) -> Array:
        """Shrink deviations (rows, components) and put them on the mean: (rows, pixels)."""
        variances = self.spectrum.variances[: self.components]
        # Wiener's: the best linear guess of a deviation under noise. A direction without any held-out variance is not used.
        gains = variances / np.maximum(variances + self.noise**2, 1e-300) if self.noise else 1.0
        shrunk = codes * gains
        return np.asarray(self.spectrum.mean + shrunk @ self.spectrum.vectors[: self.components])

    def measured(self, codes: Array) -> Measurement:
        """Say which linear measurements of a mask released codes (questions, dimension) are."""
        return measurement(replace(self, noise=0.0), codes)

    def encode(self, predictions: Array) -> Array:
        """Turn masks (teachers, queries, *shape) into ballots (teachers, queries, components)."""
        bound = self.bound
        return encoded(predictions, self.shape, bound.dimension, lambda rows: bound.clip(self.forward(rows)))

    def decode(self, codes: Array, inputs: Array) -> Array:
        """Give masks (queries, *shape) in the span of the components."""
        return decoded(codes, self.bound.dimension, self.shape, self.backward)

    @cached_property
    def _name(self) -> str:
        return named(self.provenance, self.spectrum.mean, self.spectrum.vectors, self.spectrum.variances)

    def __repr__(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        """Name the codec by all that decides what it encodes and decodes."""
        return (
            f"PCA(shape={self.shape}, components={self.components}, norm={self.norm!r}, noise={self.noise!r}, "
            f"fitted={self._name!r})"
        )


def _how(spectrum: Spectrum, components: int, records: int, *, centre: bool, rank: int, folds: int) -> str:
    merged = gathering(spectrum.vectors.shape[1], records, rank)
    return f"centre={bool(centre)}, rank={int(rank)}, folds={folds}, {merged}along={spectrum.outline(components)}"
