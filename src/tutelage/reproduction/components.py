"""Principal components under noise (Fay et al. 2022, paper 000): Theorem 4, Eq. 13, Eq. 14 and Fig. 1, measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.codecs.blocks import Blocks, cut, grid
from tutelage.codecs.fitting import passes, public_norm
from tutelage.codecs.pca import PCA
from tutelage.codecs.spectrum import Spectrum
from tutelage.data.dataset import Public
from tutelage.reproduction import drawing
from tutelage.reproduction.findings import Check, Finding, Table
from tutelage.reproduction.pools import Bench
from tutelage.reproduction.prices import LATER

Array = npt.NDArray[Any]
WIDE = 1e9  # a clip that cuts nothing: the theorem knows none
WITHIN = 0.02
PAIRS = ((1, 0.5), (8, 0.3), (16, 1.0), (40, 0.1), (40, 1.0), (120, 0.05))  # components, deviation of the noise
BLOCK = (24, 24, 16)  # voxels of BraTS, in which the paper cuts volumes before PCA
FOLDS = 10  # where masks are few: variances are then measured on masks that were left out
FEW = (
    "Volumes are few: their components are fitted to as many masks as there are patients for it, variances are those of masks "
    f"left out ({FOLDS} folds), and no more components exist than masks. Blocks, as the paper cuts volumes, are more; its "
    "variances are those of the fit itself, ours those of masks left out. Errors are then of one block. So Eq. 13 and the "
    "criterion are told there and not checked; Theorem 4 must hold on any masks."
)
_ROWS = 2048


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """Hold components of one kind of records, whole masks or blocks of them, and other such records."""

    name: str
    many: bool  # masks, so that the variances of the fit are those of others, too
    spectrum: Spectrum
    rows: Array  # (records, pixels), none of which the fit saw
    norm: float  # to which whole masks are shortened, and in which their noise is priced

    @property
    def short(self) -> str:
        """Name its picture."""
        first, *more = self.name.split(", ")
        return "-".join([first, *(word.partition(" ")[0] for word in more)])


def fitted(bench: Bench, name: str) -> list[Fitted]:
    """Fit the papers' encoder, which keeps the mean inside the code, and take other masks; once for all figures."""
    return bench.once(f"components of {name}", lambda: list(_fitted(bench, name)))


def _fitted(bench: Bench, name: str) -> Iterator[Fitted]:
    public, fresh = bench.masks_of(name, (20_000, 65_536), (10_000, 8192))
    drawn, rows = name == "scenes", fresh.reshape(len(fresh), -1).astype(np.float64)
    norm, rank = public_norm(np.asarray(public.targets)), min(rows.shape[1], len(public))
    total = 2 if drawn else 3
    bench.say(f"{name}: fitting components", 1, total)
    whole = PCA.fit(public, components=1, norm=WIDE, centre=False, rank=rank, folds=0 if drawn else min(FOLDS, rank))
    bench.say(f"{name}: fitting components", 2, total)
    yield Fitted(name=name, many=drawn, spectrum=whole.spectrum, rows=rows, norm=norm)
    if not drawn:
        for folds in (0, min(FOLDS, len(public))):
            yield _blocked(public, rows, bench.named(name).block(BLOCK), name, norm, folds)
        bench.say(f"{name}: fitting components", 3, total)


def _blocked(public: Public, rows: Array, block: tuple[int, ...], name: str, norm: float, folds: int) -> Fitted:
    """Fit components of blocks, as the paper does; there are more of them than masks, and each is smaller."""
    shape, width = tuple(np.asarray(public.targets).shape[1:]), math.prod(block)
    rank = min(width, len(public) * math.prod(grid(shape, block)))
    found = Blocks.fit(public, block=block, components=1, norm=WIDE, centre=False, rank=rank, folds=folds)
    blocks = np.concatenate([cut(some, shape, block).reshape(-1, width) for some in passes(rows.reshape(-1, *shape))])
    told = f"{name}, blocks of {'×'.join(map(str, block))}{', left out' if folds else ''}"
    return Fitted(name=told, many=False, spectrum=found.spectrum, rows=blocks, norm=norm)


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
    tables, checks, numbers = [], [], {}
    for one in (one for name in bench.sets for one in fitted(bench, name)):
        name, rows, found = one.name, one.rows, compared(one.spectrum, one.rows)
        theorem_off, estimate_off = (max(abs(row[2] / row[place] - 1) for row in found) for place in (3, 4))
        tables.append(
            Table(
                f"{name}, {rows.shape[1]:,} pixels: mean squared error, measured over predicted",
                ("components", "σ", "measured", "Theorem 4", "ratio", "Eq. 13", "ratio"),
                tuple(
                    (f"{k}", f"{noise:g}", f"{at:.4f}", f"{exact:.4f}", f"{at / exact:.4f}", f"{guess:.4f}", f"{at / guess:.4f}")
                    for k, noise, at, exact, guess in found
                ),
            )
        )
        checks.append(Check(f"{name}: Theorem 4 within 2 %", f"largest deviation {theorem_off:.2%}", theorem_off <= WITHIN))
        if one.many:  # of volumes there are too few for it: the table says how far off it is
            claim = f"{name}: Eq. 13, with the fit's own variances, within 2 %"
            checks.append(Check(claim, f"{estimate_off:.2%}", estimate_off <= WITHIN))
        numbers[name] = {"rows": [list(row) for row in found], "pixels": rows.shape[1], "masks": len(rows)}
    return Finding(
        name="theorem-4",
        title="000 Theorem 4 and Eq. 13: the error of PCA under noise",
        settings="",
        tables=tuple(tables),
        checks=tuple(checks),
        remarks=() if bench.sets == ("scenes",) else (FEW,),
        numbers=numbers,
    )


def compared(spectrum: Spectrum, rows: Array) -> list[tuple[int, float, float, float, float]]:
    """Give components, noise, the measured error, that of Theorem 4 and that of Eq. 13."""
    rng, found = np.random.default_rng(3), []
    for components, noise in PAIRS:
        if components <= len(spectrum.vectors):
            error, left_out = measured(spectrum, rows, components, noise, rng)
            exact = components * noise**2 + left_out
            found.append((components, noise, error, exact, spectrum.predicted_error(components, noise)))
    return found


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
    tables, checks, pictures, numbers = [], [], [], {}
    for one in (one for name in bench.sets for one in fitted(bench, name)):
        name, width = one.name, one.rows.shape[1]
        found, equal = tried(bench, one)
        worst, picture = max(row[3] / row[4] - 1 for row in found), f"{one.short}.svg"
        shares = [row[0] / one.norm for row in found]
        costs = {share * one.norm: cost for share, cost in LATER.ticks(shares, most=4).items()}
        drawing.save(drawing.components(found, width, title=name, epsilons=costs), bench.out / "components" / picture)
        pictures.append(picture)
        tables.append(
            Table(
                f"{name}: components of {width:,} to keep",
                (
                    "σ",
                    LATER.heading,
                    "by the criterion",
                    "by search on fresh masks",
                    "error by the criterion",
                    "least error",
                    "ratio",
                ),
                tuple(
                    (f"{n:.3g}", cost, f"{k}", f"{b}", f"{e:.4f}", f"{m:.4f}", f"{e / m:.4f}")
                    for (n, k, b, e, m), cost in zip(found, LATER.column(shares), strict=True)
                ),
            )
        )
        told = "at every σ" if equal else "not everywhere"
        checks.append(Check(f"{name}: the criterion is the minimum of Eq. 13, up to ties", told, equal))
        if one.many:
            # Not exactly 0: variances of the masks that were fitted stand in for those of fresh ones, as in Eq. 13.
            claim = f"{name}: on fresh masks it costs at most 2 % over exhaustive search"
            checks.append(Check(claim, f"{worst:.2%}", worst <= WITHIN))
        numbers[name] = {"rows": [list(row) for row in found], "pixels": width, "norm": one.norm}
    priced = "Noise is priced on masks that are shortened to the 95 % quantile of the public norms. " + LATER.told
    return Finding(
        name="components",
        title="000 Fig. 1: how many components to keep under noise",
        settings="",
        tables=tuple(tables),
        checks=tuple(checks),
        pictures=tuple(pictures),
        remarks=(priced,) if bench.sets == ("scenes",) else (FEW, priced),
        numbers=numbers,
    )


Row = tuple[float, int, int, float, float]  # noise, components by the criterion and by search, and the error of each


def tried(bench: Bench, one: Fitted) -> tuple[list[Row], bool]:
    """Try every number of components at some levels of noise, an honest one among them, on up to 4,000 records.

    Tell whether the criterion is always the minimum of Eq. 13.
    """
    spectrum, rng = one.spectrum, np.random.default_rng(4)
    sigmas = sorted([*np.geomspace(0.02, 3.0, 10), LATER.point * one.norm])
    found: list[Row] = []
    equal = True
    for number, noise in enumerate(map(float, sigmas), start=1):
        errors = searched(spectrum, one.rows[:4000], noise, rng)
        kept, best = spectrum.above(noise), int(errors.argmin()) + 1
        predicted = [spectrum.predicted_error(k, noise) for k in range(1, len(errors) + 1)]
        equal &= predicted[kept - 1] <= min(predicted) * (1 + 1e-12)  # up to ties
        found.append((noise, kept, best, float(errors[kept - 1]), float(errors.min())))
        bench.say(f"{one.name}: searching", number, len(sigmas))
    return found, bool(equal)
