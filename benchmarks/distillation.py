"""Measure distilled sets: private ones (one noisy release, then matching), those of the literature, and what a step costs.

private  class sums of random networks' features, released once, and a linear softmax in noisy rounds for soft labels: two
         releases that share one budget. Everything else is post-processing. Unit: a record; replace-one; δ = 1e-5; exactly
         composed.
speed    a trajectory matching step against plain unrolling; experts at once against one after another.
dm       distribution matching without privacy (no guarantee), CIFAR-10, all 50,000 images.
mtt      trajectory matching and knowledge transfer (no guarantee), 25,000 images as in the thesis, as far as the time goes, with
         the controls: 500 random real images, and 500 images of noise, with the same soft labels.

A set is judged by ConvNet-3 (128 wide, instance norms) trained on it alone, last weights, mean over seeds. Settings were chosen
on Fashion-MNIST at a fifteenth of its size (and of its noise), on a processor; `class` and `soft` labels and both
augmentations are printed for all sets, so that what is best on one of the two grey sets can be taken for the other.

Needs torch, numpy and scipy. Sums are formed in floats on the device, and noise is the library's exact integer noise at its σ: a
measurement on public data, not a release.

python benchmarks/distillation.py --data FOLDER --out RESULT.json [--only explore private speed dm mtt] [--minutes 8.5] [--small]
FOLDER holds mnist/ and fashion-mnist/ (idx files, gzipped) and cifar10/ (the official binary files); absent ones are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent))
import generation
from generation import Whitened, noise, rounds, whole_mu
from tutelage.data.cifar import read_cifar
from tutelage.data.idx import read_digits
from tutelage.distillation.distributions import DistributionMatching
from tutelage.distillation.embedding import Embedding, Part, in_blocks
from tutelage.distillation.experts import Experts, ExpertTraining
from tutelage.distillation.formations import expand
from tutelage.distillation.knowledge import KnowledgeTransfer
from tutelage.distillation.lessons import Lesson, accuracies, learn_sets
from tutelage.distillation.matching import ReleasedMatching
from tutelage.distillation.sets import draw_grid
from tutelage.distillation.siamese import Siamese
from tutelage.distillation.stack import Stack
from tutelage.distillation.starts import chosen
from tutelage.distillation.starts import noise as noisy_images
from tutelage.distillation.trajectories import Matching, TrajectoryMatching
from tutelage.features.procedural import procedural
from tutelage.features.scattering import Scattering
from tutelage.nets import judges
from tutelage.nets.augmentation import CLOTHES, COLOUR, DIGITS, Augmentation
from tutelage.nets.classics import NormedConvNet

BEGUN = time.time()
PARTS = ["explore", "private", "generated", "speed", "dm", "mtt"]
STILL = Siamese(("colour", "crop", "cutout", "scale", "rotate"))  # digits are not mirrored
ALL = Siamese()


@dataclass(frozen=True)
class Settings:
    """Hold the sizes of a run. `labels` is the share of μ² for soft labels."""

    networks: int = 100
    width: int = 128
    steps: int = 1200
    drawn: int = 3
    labels: float = 0.3
    axes: int = 800
    rounds: int = 60
    public: int = 6000
    lesson: int = 1500
    seeds: int = 2
    match: int = 3600  # steps of distribution matching without privacy
    experts: int = 10
    epochs: int = 12
    iterations: int = 400
    block: int = 5000
    brief: int = 0  # 1: sets of 50 images a class and one augmentation alone
    limit: int | None = None


SMALL = Settings(4, 8, 6, 2, 0.3, 60, 4, 200, 5, 2, 3, 2, 3, 2, 200, 0, 400)


@dataclass(frozen=True)
class Kind:
    """Say what is known of a data set without its records."""

    name: str
    mirror: bool
    siamese: Siamese
    augmentation: Augmentation
    epsilons: tuple[float, ...]


KINDS = (
    Kind("mnist", False, STILL, DIGITS, (1.0,)),
    Kind("fashion-mnist", True, ALL, CLOTHES, (1.0,)),
    Kind("cifar10", True, ALL, COLOUR, (1.0, 10.0)),
)


def say(*what: Any) -> None:
    print(f"[{time.time() - BEGUN:6.1f}]", *what, flush=True)


class Data:
    """Hold one data set on the device."""

    def __init__(self, folder: Path, device: torch.device, limit: int | None) -> None:
        if folder.name == "cifar10":
            train = read_cifar([folder / f"data_batch_{i}.bin" for i in range(1, 6)], classes=10)
            test = read_cifar([folder / "test_batch.bin"], classes=10)
        else:
            train, test = (
                read_digits(folder / f"{part}-images-idx3-ubyte.gz", folder / f"{part}-labels-idx1-ubyte.gz")
                for part in ("train", "t10k")
            )
        self.x, self.xt = (torch.as_tensor(one.inputs[:limit], dtype=torch.float32, device=device) for one in (train, test))
        self.y, self.yt = (torch.as_tensor(one.targets[:limit], device=device) for one in (train, test))
        self.hot, self.shape, self.device = F.one_hot(self.y, 10).float(), tuple(self.x.shape[1:]), device


def judged(data: Data, sets: dict[str, tuple[Tensor, Tensor]], lesson: Lesson, seeds: int) -> dict[str, dict[str, Any]]:
    """Train ConvNet-3 on every set from every seed, all at once, and test the last weights."""
    factory = NormedConvNet(shape=data.shape, width=128 if data.device.type == "cuda" else 8)
    names = [name for name in sets for _ in range(seeds)]
    images, labels = ([sets[name][i] for name in names] for i in (0, 1))
    weights = learn_sets(factory, images, labels, lesson=lesson, seeds=list(range(seeds)) * len(sets))
    right = accuracies(factory, weights, data.xt, data.yt)
    found = {}
    for i, name in enumerate(sets):
        own = [round(100 * value, 2) for value in right[i * seeds : (i + 1) * seeds]]
        found[name] = {"mean": round(float(np.mean(own)), 2), "seeds": own}
    return found


# ── private ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def released_means(data: Data, parts: list[Part], mu_of: dict[float, float], block: int) -> dict[float, list[Tensor]]:
    """Release the class sums of all networks' features, together of length at most 1, once an ε: sensitivity 2."""
    scale, means = 1 / math.sqrt(len(parts)), {epsilon: [] for epsilon in mu_of}
    per = len(data.x) / 10  # public: classes are declared to be of equal size
    for part in parts:
        total = sum(hot.T @ found for hot, found in zip(data.hot.split(block), in_blocks(part, data.x, block), strict=True))
        for epsilon, mu in mu_of.items():
            drawn = noise(2 / mu, tuple(total.shape), data.device)
            means[epsilon].append((total * scale + drawn) / scale / per)
    return means


def labellers(data: Data, mu_of: dict[float, float], how: Settings, mirror: bool) -> dict[float, Callable[[Tensor], Tensor]]:
    """Release a linear softmax on scattering features, whitened by procedural images, in noisy rounds, once an ε."""
    scattering = Scattering(mirror=mirror).tensors
    public = torch.as_tensor(procedural(how.public, data.shape, random_state=0), device=data.device)
    found = {}
    for epsilon, mu in mu_of.items():
        scale = 1 if epsilon < 5 else 2
        plan = replace(generation.Settings(), axes=scale * how.axes, rounds=scale * how.rounds)
        whitened = Whitened.of(scattering, public, plan.axes, plan.half)
        with torch.no_grad():
            seen = torch.cat([whitened(some) for some in data.x.split(1000)])
        weights = rounds(seen, data.hot, mu, plan)

        def ask(images: Tensor, whitened: Whitened = whitened, weights: Tensor = weights) -> Tensor:
            with torch.no_grad():
                return torch.cat([whitened(some) @ weights for some in images.split(500)])

        found[epsilon] = ask
    return found


def private(data: Data, kind: Kind, how: Settings, keep: Callable[[dict[str, Any]], None], out: Path) -> None:
    """Make and judge private sets of 50 and 10 images a class at every ε."""
    device, small = data.device, how.limit is not None
    embedding = Embedding(networks=how.networks, width=how.width, mirror=kind.mirror)
    parts = embedding.built(data.shape, device=device)
    begun = time.time()
    means = released_means(data, parts, {e: whole_mu(e) * math.sqrt(1 - how.labels) for e in kind.epsilons}, how.block)
    asks = labellers(data, {e: whole_mu(e) * math.sqrt(how.labels) for e in kind.epsilons}, how, kind.mirror)
    took = time.time() - begun
    say(kind.name, f"released in {took:.0f} s")
    for epsilon in kind.epsilons:
        labeller = float((asks[epsilon](data.xt).argmax(1) == data.yt).float().mean())
        say(kind.name, "epsilon", epsilon, f"labeller {100 * labeller:.2f}")
        sets: dict[str, tuple[Tensor, Tensor]] = {}
        figures: dict[str, Any] = {}
        for ipc in (50,) if how.brief else (50, 10):
            began = time.time()
            start = noisy_images(10, ipc if not small else 2, data.shape, seed=ipc).to(device)
            plan = ReleasedMatching(steps=how.steps, drawn=how.drawn, formation=2)
            images, far = plan.fit(parts, means[epsilon], start)
            shown = expand(images.flatten(0, 1), 2)
            own = F.one_hot(torch.arange(10, device=device).repeat_interleave(len(shown) // 10), 10).float()
            said = asks[epsilon](shown).softmax(1)
            sets[f"ipc {ipc}, class labels"] = shown, own
            sets[f"ipc {ipc}, soft labels"] = shown, (own + said) / 2
            agreed = round(float((said.argmax(1) == own.argmax(1)).float().mean()), 3)
            figures[f"ipc {ipc}"] = {"distance": round(far, 4), "labeller agrees": agreed, "seconds": round(time.time() - began)}
            draw_grid(images[:, :10].cpu().numpy(), out.with_name(f"{out.stem}-{kind.name}-{epsilon:g}-{ipc}.png"))
        say(kind.name, figures)
        picked = chosen(data.x, data.y, 10, 50 if not small else 2, seed=0).flatten(0, 1)
        picked_own = F.one_hot(torch.arange(10, device=device).repeat_interleave(len(picked) // 10), 10).float()
        sets["control (no guarantee): 50 random real a class"] = picked, picked_own
        blank = noisy_images(10, 50 if not small else 2, data.shape, seed=1).to(device).flatten(0, 1)
        sets["control: 50 of noise a class, soft labels"] = blank, asks[epsilon](blank).softmax(1)
        half = device.type == "cuda"
        first = judged(data, sets, Lesson(steps=how.lesson, augmentation=kind.siamese, half=half), how.seeds)
        say(kind.name, epsilon, "siamese", {name: one["mean"] for name, one in first.items()})
        second: dict[str, Any] = {}
        short = {name: value for name, value in sets.items() if name.startswith("ipc")}
        if not how.brief:
            second = judged(data, short, Lesson(steps=how.lesson, augmentation=kind.augmentation, half=half), how.seeds)
        say(kind.name, epsilon, "augmentation", {name: one["mean"] for name, one in second.items()})
        keep(
            {
                "part": "private", "data": kind.name, "epsilon": epsilon, "delta": 1e-5, "adjacency": "replace-one",
                "embedding": embedding.plain(), "matching": figures, "labeller": round(100 * labeller, 2),
                "seconds of releases": round(took), "Siamese augmentation": first, "package's augmentation": second,
            }
        )  # fmt: skip


def explore(data: Data, kind: Kind, how: Settings, keep: Callable[[dict[str, Any]], None]) -> None:
    """Compare ways to match and to label at the first ε, 50 images a class: what is best here is for the *other* data sets."""
    device, small, epsilon = data.device, how.limit is not None, kind.epsilons[0]
    mu = whole_mu(epsilon)
    ask = labellers(data, {epsilon: mu * math.sqrt(how.labels)}, how, kind.mirror)[epsilon]
    sets: dict[str, tuple[Tensor, Tensor]] = {}
    figures: dict[str, Any] = {"labeller": round(100 * float((ask(data.xt).argmax(1) == data.yt).float().mean()), 2)}
    base = Embedding(networks=how.networks, width=how.width, mirror=kind.mirror)
    plan = ReleasedMatching(steps=how.steps, drawn=how.drawn, formation=2)
    ways = (
        (base, {"formation 2": plan, "formation 1": replace(plan, formation=1), "formation 3": replace(plan, formation=3),
                "rate 0.05": replace(plan, rate=0.05), "half the steps": replace(plan, steps=max(1, how.steps // 2))}),
        (replace(base, bent=False), {"not bent": plan}),
        (replace(base, width=max(8, how.width // 4)), {"a quarter as wide": plan}),
    )  # fmt: skip
    for embedding, plans in ways:
        parts = embedding.built(data.shape, device=device)
        means = released_means(data, parts, {epsilon: mu * math.sqrt(1 - how.labels)}, how.block)[epsilon]
        for name, own_plan in plans.items():
            began = time.time()
            start = noisy_images(10, 50 if not small else 2, data.shape, seed=50).to(device)
            images, far = own_plan.fit(parts, means, start)
            shown = expand(images.flatten(0, 1), own_plan.formation)
            own = F.one_hot(torch.arange(10, device=device).repeat_interleave(len(shown) // 10), 10).float()
            said = ask(shown).softmax(1)
            for share in (0.0, 0.5, 0.8) if name == "formation 2" else (0.0, 0.5):
                sets[f"{name}, soft {share}"] = shown, (1 - share) * own + share * said
            figures[name] = {
                "distance": round(far, 4),
                "agrees": round(float((said.argmax(1) == own.argmax(1)).float().mean()), 3),
            }
            say(kind.name, name, figures[name], f"{time.time() - began:.0f} s")
    for name, augmentation in (("Siamese", kind.siamese), ("package", kind.augmentation)):
        found = judged(data, sets, Lesson(steps=how.lesson, augmentation=augmentation, half=device.type == "cuda"), 1)
        say(kind.name, name, {one: value["mean"] for one, value in found.items()})
        keep(
            {"part": "explore", "data": kind.name, "epsilon": epsilon, "figures": figures, "augmentation": name, "judged": found}
        )


def some_of(images: Tensor, shares: Tensor, count: int) -> Tensor:
    """Pick images at random among those that are surely of a class; where there are few, the surest."""
    best = shares.argsort(descending=True)[: max(count, int((shares > 0.8).sum()))]
    return images[best[torch.randperm(len(best), device=best.device)[:count]]]


def generated(data: Data, kind: Kind, how: Settings, keep: Callable[[dict[str, Any]], None], folder: Path, out: Path) -> None:
    """Distil a private generator's images, labelled by a network that learned from them: post-processing of its release."""
    device, small, epsilon = data.device, how.limit is not None, kind.epsilons[0]
    settings = generation.Settings(mirror=kind.mirror, **(generation.SMALL if small else {}))
    figures, x, labels, _ = generation.run(generation.Data(folder, device, settings, how.limit), epsilon, settings, seed=0)
    network = judges.train_judge(
        judges.cnn(data.shape, 10), x, labels, steps=settings.judge, batch=512, warp=0.5, mirror=kind.mirror
    )

    def ask(images: Tensor) -> Tensor:
        return judges.logits_of(network, images).clone()  # a clone may be learned from

    figures["network that labels"] = round(100 * float((ask(data.xt).argmax(1) == data.yt).float().mean()), 2)
    say(kind.name, figures)
    sure = labels.max(1).values > (0.8 if not small else 0.0)  # blends belong to no class
    images, classes = x[sure], labels[sure].argmax(1)
    lesson = Lesson(steps=how.lesson, augmentation=kind.siamese, half=device.type == "cuda")
    sets: dict[str, tuple[Tensor, Tensor]] = {}
    for ipc in (50, 10):
        count, began = ipc if not small else 1, time.time()
        torch.manual_seed(0)
        picked = torch.stack([some_of(x, labels[:, one], 4 * count) for one in range(10)])  # four in one stored image
        quarter = F.interpolate(picked.flatten(0, 1), scale_factor=0.5, mode="bilinear", antialias=True)
        rows = quarter.unflatten(0, (10, count, 2, 2)).permute(0, 1, 4, 2, 5, 3, 6).reshape(10, count, *data.shape)
        plan = DistributionMatching(
            steps=how.match // (3 if ipc == 50 else 5), width=how.width, formation=2, batch=256 if not small else 8,
            augmentation=kind.siamese, half=device.type == "cuda",
        )  # fmt: skip
        matched = plan.fit(images, classes, rows).clamp(0, 1)
        for name, own in (("random generated", rows), ("matched", matched)):
            shown = expand(own.flatten(0, 1), 2)
            if name == "matched":
                hard = F.one_hot(torch.arange(10, device=device).repeat_interleave(len(shown) // 10), 10).float()
                sets[f"ipc {ipc}, {name}, class labels"] = shown, hard
            sets[f"ipc {ipc}, {name}, soft labels"] = shown, (ask(shown) / 2).softmax(1)
        say(kind.name, "generated", ipc, f"matched in {time.time() - began:.0f} s")
        draw_grid(matched[:, :10].cpu().numpy(), out.with_name(f"{out.stem}-{kind.name}-{ipc}.png"))
    found = judged(data, sets, lesson, how.seeds)
    say(kind.name, {name: one["mean"] for name, one in found.items()})
    keep({"part": "generated", "data": kind.name, "epsilon": epsilon, "figures": figures, "judged": found})


# ── speed ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def timed(function: Callable[[], Any], device: torch.device) -> tuple[float, float, Any]:
    """Give seconds, GiB of peak memory, and the result of the second of two calls."""
    function()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.time()
    result = function()
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.time() - began, torch.cuda.max_memory_allocated() / 2**30, result
    seconds = time.time() - began
    return seconds, saved_for_the_way_back(function) / 2**30, result


def saved_for_the_way_back(function: Callable[[], Any]) -> int:
    """Count the bytes that autograd holds at its peak: a processor has no counter of its own."""
    held, most = 0, 0

    class Kept:
        def __init__(self, tensor: Tensor) -> None:
            nonlocal held, most
            self.tensor, held = tensor, held + tensor.numel() * tensor.element_size()
            most = max(most, held)

        def __del__(self) -> None:
            nonlocal held
            held -= self.tensor.numel() * self.tensor.element_size()

    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        function()
    return most


def speed(device: torch.device, how: Settings, keep: Callable[[dict[str, Any]], None]) -> None:
    """Time matching steps and experts, in float32."""
    wide = how.limit is None
    gpu = device.type == "cuda"
    factory = NormedConvNet(shape=(3, 32, 32), width=(128 if gpu else 32) if wide else 8)
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    matching = Matching(factory, device=device, augmentation=ALL)
    start, goal = ({name: value[0] for name, value in matching.stack.start([seed]).items()} for seed in (0, 1))
    count = (250 if gpu else 50) if wide else 20
    torch.manual_seed(0)
    images, labels = (
        torch.rand(2 * count, 3, 32, 32, device=device),
        F.one_hot(torch.arange(2 * count, device=device) % 10, 10).float(),
    )
    rate, rows = torch.tensor(0.01, device=device), []
    for steps in (10, 30) if wide else (2, 3):
        generator, kinds = torch.Generator(device=device).manual_seed(0), torch.Generator().manual_seed(0)
        views = matching.views(2 * count, steps, count, generator=generator, kinds=kinds)
        given = start, goal, images, labels, rate, views
        plain = timed(lambda given=given: matching(*given, way="plain"), device)
        for way, segments in (("exact", 0), ("exact", round(steps**0.5)), ("tesla", 0)):
            own = timed(lambda given=given, way=way, segments=segments: matching(*given, way=way, segments=segments), device)
            apart = ((own[2][1][0] - plain[2][1][0]).norm() / plain[2][1][0].norm()).item()
            row = {"steps": steps, "way": way, "segments": segments, "seconds": round(own[0], 3), "GiB": round(own[1], 3)}
            row |= {"seconds plain": round(plain[0], 3), "GiB plain": round(plain[1], 3), "gradient apart": f"{apart:.1e}"}
            rows.append(row)
            say(row)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    if not gpu:  # a processor trains experts one by one anyway
        keep({"part": "speed", "matching": rows, "images": count, "width": factory.width})
        return
    stack, many = Stack(factory, device=device, half=True), 16 if wide else 2
    weights = stack.start(range(many))
    seen = torch.rand(many, 256 if wide else 8, 3, 32, 32, device=device)
    wanted = F.one_hot(torch.randint(10, seen.shape[:2], device=device), 10).float()

    def together() -> None:
        for _ in range(10 if wide else 1):
            stack.gradients(weights, seen, wanted)

    networks = [factory().to(device) for _ in range(many)]

    def apart_() -> None:
        for network, own, labels_ in zip(networks, seen, wanted, strict=True):
            for _ in range(10 if wide else 1):
                with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                    loss = -(labels_ * network(own).float().log_softmax(1)).sum(1).mean()
                network.zero_grad()
                loss.backward()

    at_once, one_by_one = timed(together, device), timed(apart_, device)
    row = {"experts": many, "steps": 10, "seconds at once": round(at_once[0], 3), "seconds one by one": round(one_by_one[0], 3)}
    row["ratio"] = round(one_by_one[0] / at_once[0], 2)
    say(row)
    keep({"part": "speed", "matching": rows, "experts": row})


# ── without a guarantee ───────────────────────────────────────────────────────────────────────────────────────────────


def dm(data: Data, how: Settings, keep: Callable[[dict[str, Any]], None], left: Callable[[], float]) -> None:
    """Match distributions step by step on all records."""
    small, sets = how.limit is not None, {}
    for ipc in (10, 50):
        began, start = time.time(), chosen(data.x, data.y, 10, ipc if not small else 2, seed=0).to(data.device)
        steps = min(how.match, 200 if left() < 60 else how.match)
        plan = DistributionMatching(steps=steps, width=how.width, batch=256 if not small else 8, half=data.device.type == "cuda")
        images = plan.fit(data.x, data.y, start).flatten(0, 1).clamp(0, 1)
        own = F.one_hot(torch.arange(10, device=data.device).repeat_interleave(len(images) // 10), 10).float()
        sets[f"DM, ipc {ipc}"] = images, own
        say("dm", ipc, f"{steps} steps in {time.time() - began:.0f} s")
        real = chosen(data.x, data.y, 10, ipc if not small else 2, seed=1).flatten(0, 1)
        sets[f"random real, ipc {ipc}"] = real, own
    found = judged(data, sets, Lesson(steps=how.lesson, augmentation=ALL, half=data.device.type == "cuda"), how.seeds)
    say("dm", {name: one["mean"] for name, one in found.items()})
    keep({"part": "dm", "data": "cifar10", "guarantee": "none", "steps": how.match, "judged": found})


def mtt(data: Data, how: Settings, keep: Callable[[dict[str, Any]], None], left: Callable[[], float]) -> None:
    """Match trajectories on the first half of the records, then transfer the experts' mean knowledge."""
    small, device = how.limit is not None, data.device
    half = len(data.x) // 2
    x, y = data.x[:half], data.y[:half]
    factory = NormedConvNet(shape=data.shape, width=how.width)
    began = time.time()
    training = ExpertTraining(experts=how.experts, epochs=how.epochs, together=how.experts, rate=0.02, half=device.type == "cuda")
    experts = training.fit(factory, x, y, 10)
    took, stack = time.time() - began, Stack(factory, device=device)
    last = {name: value.to(device) for name, value in experts.last().items()}
    right = accuracies(factory, last, data.xt, data.yt)
    say("mtt", f"{how.experts} experts in {took:.0f} s, accuracy {100 * np.mean(right):.2f}")

    def teacher(images: Tensor) -> Tensor:
        """Average the experts' shares."""
        shares = [stack.scores({name: value[i] for name, value in last.items()}, images).softmax(1) for i in range(experts.count)]
        return torch.stack(shares).mean(0).clamp_min(1e-8).log()

    with torch.no_grad():
        scores = torch.cat([teacher(some) for some in data.xt.split(500)])
    taught = 100 * float((scores.argmax(1) == data.yt).float().mean())
    ipc, began = 50 if not small else 2, time.time()
    real = chosen(x, y, 10, ipc, seed=0).flatten(0, 1)
    own = F.one_hot(torch.arange(10, device=device).repeat_interleave(ipc), 10).float()
    until = max(20.0, left() - 70)
    plan = TrajectoryMatching(
        iterations=how.iterations, steps=20 if not small else 2, epochs=2 if not small else 1, latest=how.epochs - 2
    )
    done = []
    matched, _, rate = plan.fit(
        factory, experts_on(experts, device), real, own,
        progress=lambda i, n: done.append(i), until=lambda: time.time() - began > until,
    )  # fmt: skip
    say("mtt", f"{len(done)} iterations in {time.time() - began:.0f} s, step size {rate:.4f}")
    blank = noisy_images(10, ipc, data.shape, seed=1).to(device).flatten(0, 1)
    lesson = Lesson(steps=how.lesson, augmentation=ALL, half=device.type == "cuda")
    transfer = KnowledgeTransfer(temperature=4.0, alpha=0.9, lesson=lesson)
    figures: dict[str, Any] = {}
    hard = judged(data, {"matched, no transfer": (matched, own), "random real, no transfer": (real, own)}, lesson, how.seeds)
    for name, images in (("matched", matched), ("random real", real), ("noise", blank)):
        weights = transfer.fit(factory, images, own, teacher, seeds=tuple(range(how.seeds)))
        figures[name] = [round(100 * value, 2) for value in accuracies(factory, weights, data.xt, data.yt)]
        say("mtt", name, figures[name])
    keep(
        {
            "part": "mtt", "data": "cifar10, first 25,000", "guarantee": "none", "experts": asdict(training),
            "seconds of experts": round(took),
            "accuracy of an expert": round(100 * float(np.mean(right)), 2), "accuracy of their mean": round(taught, 2),
            "iterations": len(done), "of": plan.iterations, "seconds of matching": round(time.time() - began),
            "no transfer": hard, "with the teacher's soft labels": figures,
        }
    )  # fmt: skip


def experts_on(experts: Experts, device: torch.device) -> Experts:
    """Move trajectories to the device once."""
    return Experts({name: value.to(device) for name, value in experts.weights.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=["private", "speed", "dm", "mtt"], choices=PARTS)
    parser.add_argument("--minutes", type=float, default=8.5, help="parts begin only while there is time")
    parser.add_argument("--sets", nargs="+", default=[kind.name for kind in KINDS])
    parser.add_argument("--set", dest="changes", nargs="*", default=[], help="settings as name=value")
    parser.add_argument("--small", action="store_true", help="a minute on a processor: does it run")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    how = SMALL if given.small else Settings()
    for change in given.changes:
        name, value = change.split("=")
        how = replace(how, **{name: type(getattr(how, name) or 0)(value)})
    record: dict[str, Any] = {
        "torch": torch.__version__, "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "settings": asdict(how), "rows": [],
    }  # fmt: skip

    def keep(row: dict[str, Any]) -> None:
        record["rows"].append(row | {"seconds since the start": round(time.time() - BEGUN)})
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def left() -> float:
        return given.minutes * 60 - (time.time() - BEGUN)

    given.out.parent.mkdir(parents=True, exist_ok=True)
    say(device, vars(how))
    held: dict[str, Data] = {}

    def data(name: str) -> Data:
        if name not in held:
            held[name] = Data(given.data / name, device, how.limit)
        return held[name]

    kinds = [kind for name in given.sets for kind in KINDS if kind.name == name and (given.data / name).is_dir()]
    work: list[tuple[str, Callable[[], None], float]] = []
    if "speed" in given.only:
        work.append(("speed", lambda: speed(device, how, keep), 30))
    if "explore" in given.only:
        for kind in kinds:
            work.append((kind.name, lambda kind=kind: explore(data(kind.name), kind, how, keep), 60))
    if "generated" in given.only:
        for kind in kinds:
            place = given.data / kind.name
            work.append(
                (kind.name, lambda kind=kind, place=place: generated(data(kind.name), kind, how, keep, place, given.out), 200)
            )
    if "private" in given.only:
        for kind in kinds:
            work.append((kind.name, lambda kind=kind: private(data(kind.name), kind, how, keep, given.out), 60))
    if (given.data / "cifar10").is_dir():
        work += [("dm", lambda: dm(data("cifar10"), how, keep, left), 60)] if "dm" in given.only else []
        work += [("mtt", lambda: mtt(data("cifar10"), how, keep, left), 100)] if "mtt" in given.only else []
    for name, part, least in work:
        if left() < least and not given.small:
            say(name, "left out: no time")
            continue
        try:
            part()
        except Exception as error:  # what was measured before is kept, and the next part begins
            say(name, "failed", repr(error)[:300])
            keep({"part": name, "failed": type(error).__name__})
            if given.small:
                raise


if __name__ == "__main__":
    main()
