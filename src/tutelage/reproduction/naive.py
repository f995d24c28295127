"""Noise on the mask itself, on principal components and behind autoencoders (Fay et al. 2022, paper 000, Fig. 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tutelage.codecs.blocks import Blocks
from tutelage.codecs.fitting import public_norm
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.data.dataset import Public
from tutelage.metrics import cross_entropy
from tutelage.reproduction import drawing
from tutelage.reproduction.components import BLOCK, FOLDS
from tutelage.reproduction.compression import behind, packed, table
from tutelage.reproduction.findings import Finding
from tutelage.reproduction.pools import Array, Bench
from tutelage.reproduction.prices import LATER, written

MARGIN = 1e-3  # probabilities are kept this far from 0 and 1 before cross-entropy: naive noise leaves [0, 1]
SIGMAS = (0.01, 0.03, 0.1, LATER.point, 0.2, 0.3, 0.5, 1.0)  # the one in the midst is honest


def naive(bench: Bench) -> Finding:
    """Make 000 Fig. 2: cross-entropy over the noise, for noise on the mask itself, PCA by the criterion, and autoencoders."""
    every = {name: entropies(bench, name) for name in bench.sets}
    labels = {"xscale": "log", "yscale": "log", "xlabel": "σ, in the unit ball", "ylabel": "cross-entropy per pixel"}
    groups = [(found, {**labels, "title": name, "epsilons": LATER.ticks(SIGMAS)}) for name, found in every.items()]
    drawing.save(drawing.curves(groups), bench.out / "naive" / "naive.svg")
    return Finding(
        name="naive",
        title="000 Fig. 2: noise on the mask, on principal components, and behind an autoencoder",
        settings="",
        tables=tuple(
            table(f"{name}: cross-entropy per pixel over σ", "σ", found, digits=4, price=LATER) for name, found in every.items()
        ),
        pictures=("naive.svg",),
        numbers={"curves": every, "margin": MARGIN},
        remarks=(
            f"Decoded values are kept {MARGIN:g} away from 0 and 1 before the logarithm. {LATER.told}",
            "That is of codes in a ball. Masks are never negative, so that one record moves a naive answer by √2 of its norm in "
            f"place of 2: at σ = {LATER.point:g} that curve costs ε = {written(LATER.epsilon(math.sqrt(2) * LATER.point))}.",
        ),
    )


def entropies(bench: Bench, name: str) -> drawing.Curves:
    """Measure all curves of one set of masks."""
    public, fresh = bench.masks_of(name, (4000, 8000), (400, 400))
    pixels = Pixels.fit(public)
    assert pixels.norm is not None
    coders = {trained: packed(bench, public, 16, "clip", trained) for trained in (0.1, 0.5)}
    found: drawing.Curves = {"naive": (SIGMAS, [_entropy(pixels, fresh, sigma * pixels.norm) for sigma in SIGMAS])}
    few = name != "scenes"
    first = PCA.fit(public, components=min(64, len(public) // 2), centre=False, folds=min(FOLDS, len(public)) if few else 0)
    norm, spectrum = first.norm, first.spectrum  # the clip that the noise counts in, before the criterion knows it
    kept = [PCA(first.shape, spectrum, spectrum.above(sigma * norm), norm, sigma * norm) for sigma in SIGMAS]
    found["PCA, criterion and shrinking"] = (SIGMAS, _entropies(kept, fresh))
    if few:
        parts = blocked(public, bench.named(name).block(BLOCK), SIGMAS)
        found["PCA of blocks, likewise"] = (SIGMAS, _entropies(parts, fresh))
    for trained, coder in coders.items():
        found[f"Autoencoder, σ_train {trained:g}"] = (SIGMAS, [_entropy(coder, fresh, sigma) for sigma in SIGMAS])
    return found


def blocked(public: Public, block: tuple[int, ...], sigmas: Sequence[float]) -> list[Blocks]:
    """Fit the paper's components of blocks once; for every noise keep those whose variance exceeds it, and shrink them.

    Variances are those of the fit: where directions are shrunk, too many of them do no harm, and too few do.
    """
    norm = public_norm(np.asarray(public.targets))
    first = Blocks.fit(public, block=block, noise=min(sigmas) * norm, norm=norm, centre=False)

    def under(noise: float) -> Blocks:
        kept = first.spectrum.above(noise)
        return replace(first, variances=first.variances[:, :kept], noise=noise)

    return [under(sigma * norm) for sigma in sigmas]


def _entropies(codecs: Sequence[PCA | Blocks], fresh: Array) -> list[float]:
    """Measure codecs that each know their noise."""
    return [_entropy(codec, fresh, codec.noise) for codec in codecs]


def _entropy(codec: Any, fresh: Array, noise: float) -> float:
    return float(cross_entropy(behind(codec, fresh, noise, 13), fresh, margin=MARGIN).mean())
