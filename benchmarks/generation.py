"""Measure private image generation from scratch: no public images, three releases that share one budget, everything else is free.

1. class sums of random networks' features (and noisy class counts) → a generator;
2. class-wise second moments of scattering features and of features learned on generated images → the generator, improved;
3. a linear softmax in noisy rounds on scattering and learned features, whitened by generated images → soft labels of its images.

Classifiers are trained on generated images and their labels alone, for a fixed number of steps, and tested on real test images:
the mean of CNN, ResNet-18 and MLP over seeds, last step. Unit: a record; adjacency: replace one; δ = 1e-5; exact composition.

Needs torch, numpy and scipy. Sums are formed in floats on the device, and noise is the library's exact integer noise at its σ: a
measurement on public data, not a release (the library's own walk forms its sums exactly).

python benchmarks/generation.py --data FOLDER --name mnist --out RESULT.json [--epsilon 1 10] [--seeds 3] [--ablate] [--small]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import brentq
from scipy.stats import norm
from torch import Tensor

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tutelage"
try:
    import safetensors  # noqa: F401
    import sklearn  # noqa: F401
except ImportError:  # a machine with torch alone: the package's own modules, without its front door and without files
    package = types.ModuleType("tutelage")
    package.__path__ = [str(SOURCE)]
    sys.modules["tutelage"] = package
    stub: Any = types.ModuleType("safetensors")
    stub.SafetensorError, stub.safe_open = OSError, None
    sys.modules.setdefault("safetensors", stub)
    sys.path.insert(0, str(SOURCE.parent))

from tutelage.data.idx import read_digits  # noqa: E402
from tutelage.features.procedural import procedural  # noqa: E402
from tutelage.features.random_networks import RandomNetworks  # noqa: E402
from tutelage.features.scattering import Scattering  # noqa: E402
from tutelage.features.whitening import leading  # noqa: E402
from tutelage.nets import judges  # noqa: E402
from tutelage.nets.generators import Drawing, Generator  # noqa: E402
from tutelage.nets.mixing import mixed  # noqa: E402
from tutelage.nets.random_network import RandomNetwork  # noqa: E402
from tutelage.privacy.mechanisms import rounded_gaussian  # noqa: E402
from tutelage.students.matching import Matching  # noqa: E402
from tutelage.students.moments import Moments  # noqa: E402

BEGUN = time.time()
DELTA = 1e-5


@dataclass(frozen=True)
class Settings:
    """Hold what a run does. Shares are of μ² and add up to 1."""

    sums: float = 0.25
    moments: float = 0.35
    labels: float = 0.40
    networks: int = 100
    width: int = 96
    generator: int = 128
    steps: int = 2000
    improving: int = 1200
    rounds: int = 60
    clip: float = 0.25
    rate: float = 0.7
    axes: int = 1500
    half: float = 200  # the axis that counts half
    learned: int = 256  # axes of learned features in the labeller
    deep: float = 0.25  # part of a record's squared length that learned features have in the labeller
    middle: int = 160  # axes of each kind in the second moments
    pool: int = 240_000
    judge: int = 2000  # steps of the judges
    batch: int = 512
    classes_mixed: float = 0.25  # how much of a label is the class that the image was drawn for
    mirror: bool = False


SMALL = {"networks": 4, "width": 16, "generator": 8, "steps": 6, "improving": 3, "rounds": 8, "axes": 60, "learned": 32,
         "middle": 24, "pool": 600, "judge": 4, "batch": 32}  # fmt: skip


def say(*what: Any) -> None:
    print(f"[{time.time() - BEGUN:6.1f}]", *what, flush=True)


def whole_mu(epsilon: float) -> float:
    """Solve for μ of Gaussian differential privacy at (ε, δ)."""

    def excess(mu: float) -> float:
        return float(norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2) - DELTA)

    return float(brentq(excess, 1e-3, 50))


def noise(sigma: float, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Draw exact Gaussian noise by the library's sampler."""
    return torch.as_tensor(rounded_gaussian(2.0**20, shape) * (sigma / 2**20), dtype=torch.float32, device=device)


def blocks(function: Any, x: Tensor, size: int = 5000) -> Tensor:
    with torch.no_grad():
        return torch.cat([function(part) for part in x.split(size)])


# ── the three releases ────────────────────────────────────────────────────────────────────────────────────────────────


def class_sums(
    networks: list[RandomNetwork], x: Tensor, hot: Tensor, mu: float, counted: float = 0.2
) -> tuple[list[Tensor], Tensor]:
    """Release Σ of (all features, a constant) by class, none negative and together of length 1: sensitivity √2."""
    sigma = math.sqrt(2) / mu
    counts = (counted * hot.sum(0) + noise(sigma, (hot.shape[1],), x.device)) / counted
    counts = counts.clamp_min(len(x) / hot.shape[1] / 20)
    scale = math.sqrt((1 - counted**2) / len(networks))
    means = []
    for network in networks:
        total = 0
        for part, mine in zip(x.split(5000), hot.split(5000), strict=True):
            with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
                found = network(part).float()
            total = total + mine.T @ (found / found.norm(dim=1, keepdim=True).clamp_min(1.0))
        means.append((total * scale + noise(sigma, tuple(total.shape), x.device)) / scale / counts[:, None])
    return means, counts


def class_moments(f: Tensor, hot: Tensor, mu: float, w: float = 0.7) -> tuple[Tensor, Tensor, Tensor, float]:
    """Release Σ g gᵀ by class, g = (f, w), ‖f‖ ≤ 1: sensitivity √2·(1 + w²). Give second moments, sums, counts, σ."""
    g = torch.cat([f / f.norm(dim=1, keepdim=True).clamp_min(1.0), torch.full_like(f[:, :1], w)], 1)
    sigma = math.sqrt(2) * (1 + w * w) / mu
    grams = torch.stack([(g * hot[:, [one]]).T @ g for one in range(hot.shape[1])])
    grams = grams + noise(sigma, tuple(grams.shape), f.device)
    grams = (grams + grams.transpose(1, 2)) / 2
    return grams[:, :-1, :-1], grams[:, :-1, -1] / w, (grams[:, -1, -1] / w**2).clamp_min(len(f) / hot.shape[1] / 20), sigma


def rounds(q: Tensor, hot: Tensor, mu: float, how: Settings) -> Tensor:
    """Release a linear softmax in rounds: Σ q ⊗ (label − guess), each of length at most `clip`: sensitivity 2·clip."""
    n, d = q.shape
    counts = 1 / (1 + np.arange(how.axes) / how.half)
    effective = float(counts.sum() ** 2 / np.square(counts).sum())
    weights, mean = torch.zeros(d, hot.shape[1], device=q.device), 0
    sigma = 2 * how.clip * math.sqrt(how.rounds) / mu
    drawn = noise(sigma, (how.rounds, d, hot.shape[1]), q.device)
    for number in range(how.rounds):
        missing = hot - (q @ weights).softmax(1)
        missing = missing * (how.clip / missing.norm(dim=1, keepdim=True).clamp_min(how.clip))
        weights = weights + how.rate * effective / n * (q.T @ missing + drawn[number])
        if number >= how.rounds // 2:
            mean = mean + weights / (how.rounds - how.rounds // 2)
    return mean


# ── post-processing ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Whitened:
    """Give features whitened by public or generated images, of length 1."""

    function: Any
    centre: Tensor
    turned: Tensor

    @classmethod
    def of(cls, function: Any, images: Tensor, axes: int, half: float) -> Whitened:
        rows = blocks(function, images).float()
        centre = rows.mean(0)
        rows = rows - centre
        values, turn = leading(rows.T @ rows / len(rows), axes)
        counts = 1 / (1 + torch.arange(axes, device=rows.device) / half)
        return cls(function, centre, turn * counts / values.clamp_min(1e-9).sqrt())

    def __call__(self, x: Tensor) -> Tensor:
        rows = (self.function(x).float() - self.centre) @ self.turned
        return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-6)


def body_of(network: torch.nn.Module) -> Any:
    """Give the features of a judge: what its last layer sees, of length 1."""
    layers = list(network.children())[:-1]

    def features(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            for layer in layers:
                x = layer(x)
        x = x.float()
        return x / (x.norm(dim=1, keepdim=True) + 1e-3)

    return features


def halved(network: RandomNetwork) -> Any:
    """Compute a random network's features in half precision where there is a GPU."""

    def features(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            return network(x).float()

    return features


def principal(function: Any, images: Tensor, axes: int) -> Tensor:
    rows = blocks(function, images).float()
    return leading(rows.T @ rows, axes)[1]


def shrunk(grams: Tensor, sums: Tensor, counts: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """Keep the directions of a noisy second moment that stand out of its noise."""
    edge = sigma * math.sqrt(grams.shape[1])
    values, turn = torch.linalg.eigh(grams.double())
    kept = (values - edge * (values < 1.5 * edge)).clamp_min(0)
    second = ((turn * kept[:, None]) @ turn.transpose(1, 2)).float()
    return second / counts[:, None, None], sums / counts[:, None]


def drawn_from(generator: Generator, n: int, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    """Draw images on the device."""
    network = generator.drawing.built().to(device)
    network.load_state_dict(generator.state)
    network.eval()
    torch.manual_seed(seed)
    labels = torch.arange(n, device=device) % len(generator.classes)
    with torch.inference_mode():
        images = torch.cat([network(part, torch.randn(len(part), network.latent, device=device)) for part in labels.split(2000)])
    return images.clone(), labels.clone()


# ── one run ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Data:
    """Hold one data set on the device, and its scattering."""

    def __init__(self, folder: Path, device: torch.device, how: Settings, limit: int | None) -> None:
        train, test = (
            read_digits(folder / f"{part}-images-idx3-ubyte.gz", folder / f"{part}-labels-idx1-ubyte.gz")
            for part in ("train", "t10k")
        )
        self.device = device
        self.x, self.xt = (torch.as_tensor(one.inputs[:limit], dtype=torch.float32, device=device) for one in (train, test))
        self.y, self.yt = (torch.as_tensor(one.targets[:limit], device=device) for one in (train, test))
        self.hot = F.one_hot(self.y, 10).float()
        self.scattering = Scattering(mirror=how.mirror).tensors
        self.shape = tuple(self.x.shape[1:])

    def right(self, scores: Tensor) -> float:
        return round(100 * float((scores.argmax(1) == self.yt).float().mean()), 2)


def run(data: Data, epsilon: float, how: Settings, seed: int) -> tuple[dict[str, Any], Tensor, Tensor, Tensor]:
    """Make three releases and a labelled pool. Give figures on the way, the pool, its labels and images to show."""
    device, mu, figures = data.device, whole_mu(epsilon), {}
    total = how.sums + how.moments + how.labels
    part = {name: mu * math.sqrt(getattr(how, name) / total) for name in ("sums", "moments", "labels")}
    drawing = Drawing(data.shape, tuple("0123456789"), width=how.generator)
    networks = RandomNetworks(how.networks, how.width, seed).built(data.shape, device=str(device))
    means, _ = class_sums(networks, data.x, data.hot, part["sums"])
    many = [Moments(halved(network), mean) for network, mean in zip(networks, means, strict=True)]
    first = Matching(steps=how.steps, random_state=seed).fit(drawing, many, device=str(device))
    x1, y1 = drawn_from(first, 60_000 if how.pool > 60_000 else how.pool, device, seed)
    say("first generator")
    teach = {"steps": how.judge // 2, "mirror": how.mirror, "random_state": seed}
    early = judges.train_judge(judges.cnn(data.shape, 10), x1, y1, **teach)
    figures["CNN on the first generator's classes"] = data.right(judges.logits_of(early, data.xt))
    say(figures)

    learned, raw = body_of(early), data.scattering
    axes = principal(raw, x1[:20_000], how.middle), principal(learned, x1[:20_000], how.middle)

    def middle(x: Tensor) -> Tensor:
        return torch.cat([raw(x) @ axes[0], learned(x) @ axes[1]], 1) / math.sqrt(2)

    grams, sums, moment_counts, sigma = class_moments(blocks(middle, data.x), data.hot, part["moments"])
    values, turn = torch.linalg.eigh(grams.sum(0).double())
    ridge = max(sigma * math.sqrt(10 * 2 * grams.shape[1]) * 0.05, 1.0)
    linear = ((turn / (values.clamp_min(0) + ridge)) @ (turn.T @ (sums - sums.mean(0)).T.double())).float()
    figures["ridge from the second release"] = data.right(blocks(middle, data.xt) @ linear)
    second, mean = shrunk(grams, sums, moment_counts, sigma)
    better = Matching(steps=how.improving, per=96, drawn=2, learning_rate=6e-4, random_state=seed).fit(
        drawing, many, [Moments(middle, mean, second)], begin=first, device=str(device)
    )
    x2, y2 = drawn_from(better, len(x1), device, seed + 1)
    say("improved generator")
    late = judges.train_judge(
        judges.cnn(data.shape, 10), x2, (F.one_hot(y2, 10) + (blocks(middle, x2) @ linear * 6).softmax(1)) / 2, **teach
    )
    figures["CNN on the improved generator's classes and ridge"] = data.right(judges.logits_of(late, data.xt))

    drawn = torch.as_tensor(procedural(min(6000, len(x2) // 2), data.shape, random_state=seed), device=device)
    public = torch.cat([x2[:14_000], drawn])
    wide, deep = Whitened.of(raw, public, how.axes, how.half), Whitened.of(body_of(late), x2[:20_000], how.learned, how.half)
    share = math.sqrt(how.deep)

    def seen(x: Tensor) -> Tensor:
        return torch.cat([wide(x) * math.sqrt(1 - share**2), deep(x) * share], 1)

    weights = rounds(blocks(seen, data.x), data.hot, part["labels"], how)
    figures["labeller"] = data.right(blocks(seen, data.xt) @ weights)
    say(figures)

    x, y = drawn_from(better, how.pool, device, seed + 2)
    torch.manual_seed(seed)
    classes, half = F.one_hot(y, 10).float(), len(x) // 2  # half of the pool stays as it was drawn
    x[half:], classes[half:] = mixed(judges.warped(x[half:], 0.7), classes[half:])
    shares = blocks(lambda some: (seen(some) @ weights).softmax(1), x)
    labels = (1 - how.classes_mixed) * shares + how.classes_mixed * classes
    say("labelled pool")
    return figures, x, labels, x2[:100]


def judged(data: Data, x: Tensor, labels: Tensor, how: Settings, seeds: int, names: list[str]) -> dict[str, list[float]]:
    """Train judges on the pool and test them on real images."""
    found: dict[str, list[float]] = {}
    for name in names:
        for seed in range(seeds):
            network = judges.train_judge(
                judges.JUDGES[name](data.shape, 10),
                x,
                labels,
                steps=how.judge * (2 if name == "MLP" else 1),
                batch=how.batch,
                warp=0.25 if name == "MLP" else 0.5,  # it has to learn by heart what a convolution knows
                mirror=how.mirror,
                random_state=seed,
            )
            found.setdefault(name, []).append(data.right(judges.logits_of(network, data.xt)))
        say(name, found[name])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with four idx files, gzipped")
    parser.add_argument("--name", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=3, help="of the judges")
    parser.add_argument("--mirror", action="store_true", help="a mirror image is of the same class")
    parser.add_argument("--real", action="store_true", help="judges on the real training images, too")
    parser.add_argument("--ablate", action="store_true", help="shares and labels, with one CNN each")
    parser.add_argument("--small", action="store_true", help="a minute on a processor: does it run")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    how = Settings(mirror=given.mirror, **(SMALL if given.small else {}))
    data = Data(given.data, device, how, 400 if given.small else None)
    record: dict[str, Any] = {
        "name": given.name, "unit": "record", "adjacency": "replace-one", "delta": DELTA, "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu", "rows": [],
    }  # fmt: skip

    def keep(row: dict[str, Any]) -> None:
        record["rows"].append(row | {"seconds since the start": round(time.time() - BEGUN)})
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    say(given.name, device, vars(how))
    if given.real:
        keep({"judges on real images": judged(data, data.x, data.y, how, 1, list(judges.JUDGES))})
    for epsilon in given.epsilon:
        say("epsilon", epsilon)
        begun = time.time()
        mine = replace(how, half=max(10.0, len(data.x) * whole_mu(epsilon) / 80))  # the rule of LinearRounds
        figures, x, labels, shown = run(data, epsilon, mine, seed=0)
        took = time.time() - begun
        found = judged(data, x, labels, mine, given.seeds, list(judges.JUDGES))
        mean = round(float(np.mean([np.mean(values) for values in found.values()])), 2)
        say("MEAN OF THREE", mean)
        keep({"epsilon": epsilon, "settings": vars(mine), "on the way": figures, "seconds of generation": round(took),
              "judges": found, "mean of three classifiers": mean})  # fmt: skip
        np.save(given.out.with_name(f"{given.out.stem}-{epsilon:g}.npy"), (shown.cpu().numpy() * 255).astype(np.uint8))
        if given.ablate:
            for change in ({"classes_mixed": 0.0}, {"sums": 0.4, "moments": 0.2}, {"sums": 0.15, "moments": 0.25, "labels": 0.6}):
                figures, x, labels, _ = run(data, epsilon, replace(mine, **change), seed=0)
                found = judged(data, x, labels, mine, 1, ["CNN"])
                keep({"epsilon": epsilon, "ablation": change, "on the way": figures, "judges": found})


if __name__ == "__main__":
    main()
