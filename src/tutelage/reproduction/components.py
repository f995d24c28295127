"""Principal components under noise (Fay et al. 2022, paper 000): Theorem 4, Eq. 13, Eq. 14 and Fig. 1, measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.codecs.pca import PCA
from tutelage.codecs.spectrum import Spectrum
from tutelage.data.dataset import Public
from tutelage.reproduction import drawing
from tutelage.reproduction.findings import Check, Finding, Table
from tutelage.reproduction.pools import Bench

Array = npt.NDArray[Any]
WIDE = 1e9  # a clip that cuts nothing: the theorem knows none
WITHIN = 0.02
PAIRS = ((1, 0.5), (8, 0.3), (16, 1.0), (40, 0.1), (40, 1.0), (120, 0.05))  # components, deviation of the noise
_ROWS = 2048


def fitted(bench: Bench) -> tuple[PCA, Array]:
    """Fit the papers' encoder, which keeps the mean inside the code, and draw other masks; once for all figures."""
    return bench.once("components", lambda: _fitted(bench))


def _fitted(bench: Bench) -> tuple[PCA, Array]:
    train, test = bench.count(20_000, 65_536), bench.count(10_000, 8192)
    masks = bench.masks(train, seed=1)
    public = Public.of(np.zeros((len(masks), 1)), masks, source=f"{train} masks of seed 1")
    bench.say("fitting components", 1, 2)
    width = bench.size**2
    codec = PCA.fit(public, components=1, norm=WIDE, centre=False, rank=min(width, len(masks)))
    bench.say("fitting components", 2, 2)
    return codec, bench.masks(test, seed=2).reshape(test, -1).astype(np.float64)


def measured(spectrum: Spectrum, rows: Array, components: int, noise: float, rng: np.random.Generator) -> tuple[float, float]:
    """Encode, add noise and decode masks (rows, pixels): the mean squared error, and without the noise."""
    vectors = spectrum.vectors[:components]
    noisy = clean = 0.0
    for start in range(0, len(rows), _ROWS):
        some = rows[start : start + _ROWS]
        codes = some @ vectors.T
        clean += float(((codes @ vectors - some) ** 2).sum())
        noisy += float((((codes + rng.normal(0, noise, codes.shape)) @ vectors - some) ** 2).sum())
    return noisy / len(rows), clean / len(rows)


def theorem(bench: Bench) -> Finding:
    """Compare the measured error on masks that were never seen with Theorem 4, and with Eq. 13's variances of the fit."""
    codec, rows = fitted(bench)
    rng, found = np.random.default_rng(3), []
    pairs = [(components, noise) for components, noise in PAIRS if components <= len(codec.spectrum.vectors)]
    for components, noise in pairs:
        error, left_out = measured(codec.spectrum, rows, components, noise, rng)
        exact = components * noise**2 + left_out
        estimate = codec.spectrum.predicted_error(components, noise)
        found.append((components, noise, error, exact, estimate))
    theorem_off, estimate_off = (max(abs(row[2] / row[place] - 1) for row in found) for place in (3, 4))
    table = Table(
        "Mean squared error of a mask, measured over predicted",
        ("components", "σ", "measured", "Theorem 4", "ratio", "Eq. 13", "ratio"),
        tuple(
            (f"{k}", f"{noise:g}", f"{error:.4f}", f"{exact:.4f}", f"{error / exact:.4f}", f"{guess:.4f}", f"{error / guess:.4f}")
            for k, noise, error, exact, guess in found
        ),
    )
    return Finding(
        name="theorem-4",
        title="000 Theorem 4 and Eq. 13: the error of PCA under noise",
        settings="",
        tables=(table,),
        checks=(
            Check("Theorem 4 within 2 %", f"largest deviation {theorem_off:.2%}", theorem_off <= WITHIN),
            Check("Eq. 13, with the fit's own variances, within 2 %", f"{estimate_off:.2%}", estimate_off <= WITHIN),
        ),
        numbers={"rows": [list(row) for row in found], "pixels": rows.shape[1], "masks": len(rows)},
    )


def searched(spectrum: Spectrum, rows: Array, noise: float, rng: np.random.Generator) -> Array:
    """Give the measured error of 1, 2, … components (components,): directions are orthogonal, so errors add up."""
    signal = np.zeros(len(spectrum.vectors))
    drawn, whole = np.zeros(len(spectrum.vectors)), 0.0
    for start in range(0, len(rows), _ROWS):
        some = rows[start : start + _ROWS]
        codes = some @ spectrum.vectors.T
        signal += (codes**2).sum(axis=0)
        drawn += (rng.normal(0, noise, codes.shape) ** 2).sum(axis=0)
        whole += float((some**2).sum())
    return np.asarray((np.cumsum(drawn) + whole - np.cumsum(signal)) / len(rows))


def search(bench: Bench) -> Finding:
    """Find the best number of components by trying all, on fresh masks, and compare it with variance > σ² (Eq. 14)."""
    codec, rows = fitted(bench)
    spectrum, rng = codec.spectrum, np.random.default_rng(4)
    rows = rows[:4000]
    sigmas = np.geomspace(0.02, 3.0, 10)
    found, equal = [], True
    for number, noise in enumerate(sigmas):
        errors = searched(spectrum, rows, float(noise), rng)
        kept, best = spectrum.above(float(noise)), int(errors.argmin()) + 1
        predicted = [spectrum.predicted_error(k, float(noise)) for k in range(1, len(errors) + 1)]
        equal &= predicted[kept - 1] <= min(predicted) * (1 + 1e-12)  # up to ties
        found.append((float(noise), kept, best, float(errors[kept - 1]), float(errors.min())))
        bench.say("searching", number + 1, len(sigmas))
    worst = max(row[3] / row[4] - 1 for row in found)
    width = rows.shape[1]
    drawing.save(drawing.components(found, width), bench.out / "components" / "components.svg")
    table = Table(
        f"Components of {width} to keep",
        ("σ", "by the criterion", "by search on fresh masks", "error by the criterion", "least error", "ratio"),
        tuple((f"{n:.3g}", f"{k}", f"{b}", f"{e:.4f}", f"{m:.4f}", f"{e / m:.4f}") for n, k, b, e, m in found),
    )
    return Finding(
        name="components",
        title="000 Fig. 1: how many components to keep under noise",
        settings="",
        tables=(table,),
        checks=(
            Check("the criterion is the minimum of Eq. 13, up to ties", "at every σ" if equal else "not everywhere", equal),
            # Not exactly 0: variances of the masks that were fitted stand in for those of fresh ones, as in Eq. 13.
            Check("on fresh masks it costs at most 2 % over exhaustive search", f"{worst:.2%}", worst <= WITHIN),
        ),
        pictures=("components.svg",),
        numbers={"rows": [list(row) for row in found], "pixels": width},
    )
