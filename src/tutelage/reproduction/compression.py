"""What is left of a mask behind a codec, over variables and over noise (003 Fig. 3)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tutelage.codecs.autoencoder import Autoencoder
from tutelage.codecs.blocks import Blocks, grid
from tutelage.codecs.dct import DCT
from tutelage.codecs.fitting import QUANTILE, passes, rounded
from tutelage.codecs.pca import PCA
from tutelage.codecs.spectrum import Spectrum
from tutelage.data.dataset import Public
from tutelage.metrics import best_threshold, dice
from tutelage.reproduction import drawing, sparse
from tutelage.reproduction.findings import Finding, Table
from tutelage.reproduction.pools import Array, Bench
from tutelage.reproduction.prices import FIRST, Price

FORM = 8  # of these curves
SIGMAS, KEPT = (0.0, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, FIRST.point), 16  # of 003 Fig. 3, right; the last one is honest
BLOCK = (24, 24, 24)  # voxels of BraTS
BLOCKED, APART = "PCA of blocks", "PCA of blocks, each clipped"
OWN, SPARSE = "Wavelet, each mask's largest", "Wavelet, sparse vectors"
LINEAR = ("PCA", "DCT", "Wavelet")
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


def blocked(public: Public, block: tuple[int, ...], most: int) -> dict[int, Blocks]:
    """Fit components of blocks, 1, 2, 4, … of each; in all at most so many variables, or as few as there are blocks."""
    masks = np.asarray(public.targets)
    places = math.prod(grid(tuple(masks.shape[1:]), block))
    each = [2**power for power in range(most.bit_length()) if power == 0 or 2**power * places <= most]
    first = Blocks.fit(public, block=block, components=1, norm=1.0, centre=False, rank=each[-1])
    each = [count for count in each if count <= len(first.spectrum.vectors)]  # of few masks there are no more
    first = replace(first, variances=np.zeros((places, each[-1])))  # nothing is shrunk here
    codes = np.concatenate([first.forward(rows) for rows in passes(masks)]).reshape(len(masks), places, -1)
    found = {count: (first.variances[:, :count], codes[:, :, :count].reshape(len(masks), -1)) for count in each}
    return {count * places: replace(first, variances=some, norm=_clip(kept)) for count, (some, kept) in found.items()}


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
        over = {"xlabel": "σ, in the unit ball", "linear": 0.05, "epsilons": FIRST.ticks(SIGMAS)}
        groups: list[tuple[drawing.Curves, dict[str, Any]]] = [
            (left, {**axis, "title": f"{name}: no noise"}),
            (right, {**over, "title": f"{name}: {KEPT} variables"}),
        ]
        drawing.save(drawing.curves(groups), bench.out / "compression" / f"{name}.svg")
        pictures.append(f"{name}.svg")
        tables += [
            table(f"{name}, {pixels:,} pixels: Dice over the number of variables, no noise", "variables", left),
            table(f"{name}: Dice over σ, {KEPT} variables, codes in the unit ball", "σ", right, price=FIRST),
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
            f"«{SPARSE}» pays: the sparse vector technique chooses, half of ε for the choices and half for the values, for all "
            "answers together what the table says. The other wavelet curve has one set for all, fixed on public masks. "
            "Published, on BraTS: wavelets win at weak compression, autoencoders at strong.",
            FIRST.told,
            "Volumes were cut into blocks there before PCA, and each of B blocks was clipped to 1/√B of a whole mask's norm; in "
            f"which unit masks were it does not say. «{APART}» does that with C: it costs the noise of the ball around it, and "
            f"masks that fill few blocks lose most. «{BLOCKED}» clips the whole mask, as all other curves do. Where blocks are "
            "more than the variables, each has one.",
        ),
    )


def measured(bench: Bench, name: str) -> dict[str, Any]:
    """Measure all curves of one set of masks, or read them where they are finished."""
    kept, settings = bench.out / "compression" / f"{name}.json", f"form {FORM}, {bench.settings}"
    if kept.exists():
        told: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        if told["settings"] == settings:
            return told
    public, fresh = bench.masks_of(name, (4000, 8000), (500, 500))
    left, right = _curves(bench, name, public, fresh)
    told = {"settings": settings, "pixels": math.prod(fresh.shape[1:]), "variables": left, "noise": right}
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
    if name != "scenes":
        every = blocked(known, bench.named(name).block(BLOCK), counts[-1])
        one = every[max((count for count in every if count <= KEPT), default=min(every))]
        for title, clip in ((BLOCKED, "volume"), (APART, "block")):
            left[title] = (list(every), [quality(replace(codec, clip=clip), valid, fresh, 0.0) for codec in every.values()])
            noisy = replace(one, clip=clip)
            right[title] = (SIGMAS, [quality(noisy, valid, fresh, sigma * one.norm, 2) for sigma in SIGMAS])
    own = sparse.Chosen.fit(known, kept=KEPT, levels=levels(fresh))
    left[OWN] = (counts, [quality(sparse.Largest(own.wavelet, count), valid, fresh, 0.0) for count in counts])
    right[SPARSE] = (SIGMAS, [quality(own, valid, fresh, sigma * own.norm) for sigma in SIGMAS])
    coders = {count: packed(bench, known, count, "ball", 0.0) for count in few}
    left["Autoencoder"] = (few, [quality(coders[count], valid, fresh, 0.0) for count in few])
    for trained in (0.075, 0.2):
        coder = packed(bench, known, KEPT, "ball", trained)
        right[f"Autoencoder, σ_train {trained:g}"] = (SIGMAS, [quality(coder, valid, fresh, sigma, 2) for sigma in SIGMAS])
    return left, right


def table(title: str, heading: str, curves: drawing.Curves, *, digits: int = 3, price: Price | None = None) -> Table:
    """Write curves as rows, one per x; where x is a noise, with what it costs."""
    xs = sorted({x for places, _ in curves.values() for x in places})
    known = {name: dict(zip(*pair, strict=True)) for name, pair in curves.items()}
    cells = [[f"{known[n][x]:.{digits}f}" if x in known[n] else "" for n in curves] for x in xs]
    costs = [[cost] for cost in price.column(xs)] if price else [[] for _ in xs]
    rows = tuple((price.named(x) if price else f"{x:g}", *cost, *some) for x, cost, some in zip(xs, costs, cells, strict=True))
    return Table(title, (heading, *((price.heading,) if price else ()), *curves), rows)
