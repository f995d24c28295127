"""What is left of a mask behind a codec, over variables and over noise (003 Fig. 3, 002 Figs 4.1 and 4.2, 000 Fig. 2)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tutelage.codecs.autoencoder import Autoencoder
from tutelage.codecs.dct import DCT
from tutelage.codecs.fitting import QUANTILE, passes, rounded
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.spectrum import Spectrum
from tutelage.data.dataset import Public
from tutelage.metrics import best_threshold, cross_entropy, dice
from tutelage.reproduction import drawing, sparse
from tutelage.reproduction.findings import Finding, Table
from tutelage.reproduction.pools import Array, Bench

MARGIN = 1e-3  # probabilities are kept this far from 0 and 1 before cross-entropy: naive noise leaves [0, 1]
SIGMAS, KEPT = (0.0, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3), 16  # of 003 Fig. 3, right
OWN, SPARSE = "Wavelet, each mask's largest", "Wavelet, sparse vectors"
LINEAR = ("PCA", "DCT", "Wavelet")
PCA_STAYS_LOW = (
    "Why PCA stays low in Fig. 4.1: its noise, σ = ½√(d/l) on each of l numbers, has the energy l·σ² = d/4 whatever l is. "
    "Components are orthonormal, so decoding spreads it as it is: a deviation of 0.5 on the average pixel of a mask of zeros and "
    "ones, with 4 variables as with 256. More variables bring more of the mask and no less noise. The printed curve, which "
    "climbs past the autoencoder, cannot have had this noise: at 16 variables it is σ = 8 (64×64 pixels), where the thesis' own "
    "Fig. 4.2 has already dropped."
)
_VALID = {2: 200, 3: 50}  # public masks on which a threshold is chosen, by their axes


def linears(name: str, public: Public, counts: Sequence[int]) -> dict[int, Any]:
    """Fit one of the linear codecs with each number of variables; what is common to all is computed once."""
    masks = np.asarray(public.targets)
    if name == "DCT":
        return {kept: DCT.fit(public, kept=kept) for kept in counts}
    if name == "PCA":
        found = PCA.fit(public, components=1, norm=1.0, centre=False, rank=max(counts)).spectrum
        codes = np.concatenate([rows @ found.vectors.T for rows in passes(masks)])
        return {kept: _components(masks, found, kept, codes) for kept in counts}
    everything = sparse.whole(public, levels=levels(masks))
    codes = np.concatenate([everything.forward(rows).astype(np.float32) for rows in passes(masks)])
    order = np.argsort(-(codes**2).sum(axis=0, dtype=np.float64), kind="stable")
    return {
        kept: replace(everything, kept=order[:kept], norm=_clip(codes[:, order[:kept]]))
        for kept in counts
    }  # fmt: skip


def _components(masks: Array, found: Spectrum, kept: int, codes: Array) -> PCA:
    """Keep the first components of those that were found; there may be fewer than asked for, where masks are few."""
    kept = min(kept, len(found.vectors))
    return PCA(tuple(masks.shape[1:]), found, kept, _clip(codes[:, :kept]))


def _clip(codes: Array) -> float:
    return rounded(np.quantile(np.linalg.norm(codes.astype(np.float64), axis=1), QUANTILE))


def levels(masks: Array) -> int:
    """Say how often a wavelet transform may halve these masks, three times at most."""
    return min(3, int(math.log2(min(masks.shape[1:]))))


def packed(bench: Bench, public: Public, dim: int, activation: Any, noise: float) -> Autoencoder:
    """Train an autoencoder under its noise."""
    assert public.targets is not None
    flat = public.targets.ndim == 3
    steps, batch = bench.count(350 if flat else 200, 4000 if flat else 1000), 64 if flat else 16
    told = f"autoencoder {dim}, σ {noise:g}"
    return Autoencoder.fit(
        public, dim=dim, activation=activation, noise=noise, steps=steps, batch=batch, device=bench.device,
        progress=lambda done, total: bench.say(told, done, total),
    )  # fmt: skip


def behind(codec: Any, masks: Array, noise: float, seed: int) -> Array:
    """Encode masks, add noise of this deviation to every number, decode. The masks are public: its seed protects nobody."""
    if isinstance(codec, sparse.Chosen):
        return codec.released(masks, noise / codec.norm)
    codes = codec.encode(masks[None])[0]
    if noise:
        codes = codes + np.random.default_rng(seed).normal(0, noise, codes.shape)
    return np.asarray(codec.decode(codes, masks))


def divided(public: Public) -> tuple[Public, Public]:
    """Set public masks aside for the threshold: behind components of the very same masks every threshold seems right."""
    assert public.targets is not None
    aside = min(_VALID[public.targets.ndim - 1], len(public) // 4)
    return public[aside:], public[:aside]


def quality(codec: Any, valid: Public, fresh: Array, noise: float, draws: int = 1) -> float:
    """Give the mean Dice on fresh masks, at the threshold that is best on public ones under the same noise."""
    threshold = best_threshold(behind(codec, np.asarray(valid.targets), noise, 7), valid)
    return float(np.mean([dice(behind(codec, fresh, noise, 11 + n), fresh, threshold=threshold).mean() for n in range(draws)]))


def variables(pixels: int, *, most: int) -> list[int]:
    """List numbers of variables, up to half the pixels."""
    return [kept for kept in (4, 8, 16, 32, 64, 128, 256, 512, 1024) if kept <= min(most, pixels // 2)]


def compression(bench: Bench) -> Finding:
    """003 Fig. 3: Dice over the number of variables without noise (left) and over the noise in the unit ball (right)."""
    tables, pictures, numbers = [], [], {}
    for name in bench.sets:  # all masks of a folder are measured, without noise
        found = measured(bench, name)
        left, right, pixels = found["variables"], found["noise"], found["pixels"]
        counts = left["PCA"][0]
        axis = {"xscale": "log", "xticks": counts, "xlabel": "variables per mask", "ylabel": "Dice"}
        groups: list[tuple[drawing.Curves, dict[str, Any]]] = [
            (left, {**axis, "title": f"{name}: no noise"}),
            (right, {"xlabel": "σ, in the unit ball", "title": f"{name}: {KEPT} variables"}),
        ]
        drawing.save(drawing.curves(groups), bench.out / "compression" / f"{name}.svg")
        pictures.append(f"{name}.svg")
        tables += [
            _table(f"{name}, {pixels:,} pixels: Dice over the number of variables, no noise", "variables", left),
            _table(f"{name}: Dice over σ, {KEPT} variables, codes in the unit ball", "σ", right),
        ]
        numbers[name] = {"variables": left, "noise": right}
    return Finding(
        name="compression",
        title="003 Fig. 3: Dice behind a codec",
        settings="",
        tables=tuple(tables),
        pictures=tuple(pictures),
        numbers=numbers,
        remarks=(
            "Codes are shortened to the 95 % quantile of the public norms, C, and σ counts in C. "
            f"«{OWN}» is the published curve: its choice is made by private masks and is not paid for. "
            f"«{SPARSE}» pays: the sparse vector technique chooses, half of ε for the choice and half for the values, together "
            f"the ε that σ costs one answer of {sparse.TEACHERS} teachers at δ = {sparse.DELTA:g} "
            f"({sparse.price(0.075):.0f} at σ = 0.075). The other wavelet curve has one set for all, fixed on public masks. "
            "Published, on BraTS: wavelets win at weak compression, autoencoders at strong.",
        ),
    )


def measured(bench: Bench, name: str) -> dict[str, Any]:
    """Measure all curves of one set of masks, or read them where they are finished."""
    kept = bench.out / "compression" / f"{name}.json"
    if kept.exists():
        told: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        if told["settings"] == bench.settings:
            return told
    public, fresh = bench.masks_of(name, (4000, 8000), (500, 500))
    left, right = _curves(bench, name, public, fresh)
    told = {"settings": bench.settings, "pixels": math.prod(fresh.shape[1:]), "variables": left, "noise": right}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(told, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return told


def _curves(bench: Bench, name: str, public: Public, fresh: Array) -> tuple[drawing.Curves, drawing.Curves]:
    """Give Dice over the number of variables, and over the noise."""
    counts = variables(math.prod(fresh.shape[1:]), most=128 if bench.small else 1024)
    few = [kept for kept in counts if kept in (4, 16, 64)]
    known, valid = divided(public)
    left: drawing.Curves = {}
    right: drawing.Curves = {}
    for place, kind in enumerate(LINEAR, start=1):
        codecs = linears(kind, known, counts)
        left[kind] = (counts, [quality(codecs[count], valid, fresh, 0.0) for count in counts])
        one = codecs[KEPT]
        right[kind] = (SIGMAS, [quality(one, valid, fresh, sigma * one.norm, 2) for sigma in SIGMAS])
        bench.say(f"{name}: linear codecs", place, len(LINEAR))
    own = sparse.Chosen.fit(known, kept=KEPT, levels=levels(fresh))
    left[OWN] = (counts, [quality(sparse.Largest(own.wavelet, count), valid, fresh, 0.0) for count in counts])
    right[SPARSE] = (SIGMAS, [quality(own, valid, fresh, sigma * own.norm) for sigma in SIGMAS])
    coders = {count: packed(bench, known, count, "ball", 0.0) for count in few}
    left["Autoencoder"] = (few, [quality(coders[count], valid, fresh, 0.0) for count in few])
    for trained in (0.075, 0.2):
        coder = packed(bench, known, KEPT, "ball", trained)
        right[f"Autoencoder, σ_train {trained:g}"] = (SIGMAS, [quality(coder, valid, fresh, sigma, 2) for sigma in SIGMAS])
    return left, right


def thesis(bench: Bench) -> Finding:
    """002 Figs 4.1 and 4.2: autoencoder against PCA with the noise that the thesis gave each, and over the noise."""
    public, fresh = bench.drawn((4000, 61_440), (500, 500))
    known, valid = divided(public)
    pixels = int(np.prod(fresh.shape[1:]))
    counts = [4, 16, 64] if bench.small else [4, 16, 64, 256]
    coders = {kept: packed(bench, known, kept, "tanh", 1.0) for kept in counts}
    components = linears("PCA", known, counts)
    left: drawing.Curves = {
        "Autoencoder, σ = 1": (counts, [quality(coders[kept], valid, fresh, 1.0) for kept in counts]),
        "PCA, σ = ½√(d/l)": (
            counts,
            [quality(components[kept], valid, fresh, 0.5 * math.sqrt(pixels / kept)) for kept in counts],
        ),
    }
    scale = math.sqrt(pixels) / 64  # the thesis has 64×64 pixels: PCA's codes are shorter here by this
    sigmas = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
    right: drawing.Curves = {
        "Autoencoder, 64 variables": (sigmas, [quality(coders[64], valid, fresh, float(sigma)) for sigma in sigmas]),
        "PCA, 16 variables": (sigmas, [quality(components[16], valid, fresh, sigma * scale) for sigma in sigmas]),
    }
    groups: list[tuple[drawing.Curves, dict[str, Any]]] = [
        (left, {"xscale": "log", "xticks": counts, "xlabel": "variables", "ylabel": "Dice", "title": "002 Fig. 4.1"}),
        (right, {"xlabel": "σ of the test (PCA: in 64×64 pixels)", "title": "002 Fig. 4.2"}),
    ]
    drawing.save(drawing.curves(groups), bench.out / "thesis-compression" / "thesis.svg")
    return Finding(
        name="thesis-compression",
        title="002 Figs 4.1 and 4.2: autoencoder and PCA under noise",
        settings="",
        tables=(_table("Fig. 4.1: Dice over variables", "variables", left), _table("Fig. 4.2: Dice over σ", "σ", right)),
        pictures=("thesis.svg",),
        numbers={"variables": left, "noise": right},
        remarks=(
            "Published: the autoencoder climbs from 0.81 (4 variables) to about 0.91 (256), PCA from about 0.65 past it at 256; "
            "over σ the autoencoder falls about linearly, PCA later and steeply. The published σ was that of ONE answer. "
            "The autoencoders of the small run learn for a few hundred steps, the thesis' until they had converged.",
            PCA_STAYS_LOW,
        ),
    )


def naive(bench: Bench) -> Finding:
    """000 Fig. 2: cross-entropy over the noise, for noise on the mask itself, PCA by the criterion, and autoencoders."""
    every = {name: entropies(bench, name) for name in bench.sets}
    labels = {"xscale": "log", "yscale": "log", "xlabel": "σ, in the unit ball", "ylabel": "cross-entropy per pixel"}
    groups = [(found, {**labels, "title": name}) for name, found in every.items()]
    drawing.save(drawing.curves(groups), bench.out / "naive" / "naive.svg")
    return Finding(
        name="naive",
        title="000 Fig. 2: noise on the mask, on principal components, and behind an autoencoder",
        settings="",
        tables=tuple(_table(f"{name}: cross-entropy per pixel over σ", "σ", found, digits=4) for name, found in every.items()),
        pictures=("naive.svg",),
        numbers={"curves": every, "margin": MARGIN},
        remarks=(f"Decoded values are kept {MARGIN:g} away from 0 and 1 before the logarithm.",),
    )


def entropies(bench: Bench, name: str) -> drawing.Curves:
    """Measure all curves of 000 Fig. 2 on one set of masks."""
    public, fresh = bench.masks_of(name, (4000, 8000), (400, 400))
    sigmas = [0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0]
    pixels = Pixels.fit(public)
    assert pixels.norm is not None
    coders = {trained: packed(bench, public, 16, "clip", trained) for trained in (0.1, 0.5)}
    found: drawing.Curves = {"naive": (sigmas, [_entropy(pixels, fresh, sigma * pixels.norm) for sigma in sigmas])}
    few = name != "scenes"
    first = PCA.fit(public, components=min(64, len(public) // 2), centre=False, folds=min(10, len(public)) if few else 0)
    norm, spectrum = first.norm, first.spectrum  # the clip that the noise counts in, before the criterion knows it
    kept = [PCA(first.shape, spectrum, spectrum.above(sigma * norm), norm, sigma * norm) for sigma in sigmas]
    found["PCA, criterion and shrinking"] = (
        sigmas,
        [_entropy(codec, fresh, sigma * norm) for codec, sigma in zip(kept, sigmas, strict=True)],
    )
    for trained, coder in coders.items():
        found[f"Autoencoder, σ_train {trained:g}"] = (sigmas, [_entropy(coder, fresh, sigma) for sigma in sigmas])
    return found


def _entropy(codec: Any, fresh: Array, noise: float) -> float:
    return float(cross_entropy(behind(codec, fresh, noise, 13), fresh, margin=MARGIN).mean())


def _table(title: str, heading: str, curves: drawing.Curves, *, digits: int = 3) -> Table:
    """Write curves as rows, one per x."""
    xs = sorted({x for places, _ in curves.values() for x in places})
    known = {name: dict(zip(*pair, strict=True)) for name, pair in curves.items()}
    rows = tuple((f"{x:g}", *(f"{known[n][x]:.{digits}f}" if x in known[n] else "" for n in curves)) for x in xs)
    return Table(title, (heading, *curves), rows)
