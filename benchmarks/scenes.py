"""Private segmentation of SiSI scenes: teachers vote for one region of a public image, students learn from the noisy winners.

python benchmarks/scenes.py --templates DIR_OR_NPZ --device cuda --teachers 256 1000      writes results/scenes.json
python benchmarks/scenes.py --templates DIR_OR_NPZ --controls --control-steps 3000            adds the controls, on a CPU
python benchmarks/scenes.py --small                                                       minutes on a CPU, drawn silhouettes

Record level, δ = 1e-7. 131,072 private scenes are divided among K teachers. A scene has a grey level per object, so the question
"which pixels are the dog's?" has at most four answers or none, and a vote costs √2. Two kinds of teacher and student:
silhouettes  a small network looks at every region by itself, cut out and scaled: is this a dog?
unet         a U-Net looks at the whole scene.
How many questions are asked is a rule that was fixed before any test scene was looked at (`asked`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import math
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import result
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.regionvotes import Regioned, RegionVotes
from tutelage.codecs.votes import Votes
from tutelage.data.dataset import Public
from tutelage.data.scenes import Scenes
from tutelage.metrics import dice
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.inputs import as_float
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import SCENES
from tutelage.planning import Aggregation
from tutelage.privacy import accounting
from tutelage.privacy.curator import Curator
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Unit
from tutelage.teachers.ensemble import Ensemble

DELTA, SIZE, REGIONS = 1e-7, 64, 4  # a background and three animals
NONE, SIDE = REGIONS, 32
CODEC = RegionVotes((SIZE, SIZE), REGIONS)
MARGIN, DEVIATIONS = 0.4, 1.5
DRAWN = 2048  # scenes per seed
SEEDS = {"private": 10_000, "public": 20_000, "test": 40_000}  # settings were tried on scenes of 30,000 on


@dataclass(frozen=True, repr=False)
class Pool:
    """Hold scenes, their regions, and which region is the dog's."""

    images: np.ndarray  # (scenes, 1, 64, 64) bytes
    masks: np.ndarray  # (scenes, 64, 64) bytes
    labels: np.ndarray  # (scenes, 64, 64), which region a pixel belongs to
    truth: np.ndarray  # (scenes,), the dog's region, or NONE

    def __len__(self) -> int:
        return len(self.images)

    @property
    def seen(self) -> Regioned:
        return Regioned(CODEC, self.labels)

    def part(self, rows: Any) -> Pool:
        return Pool(self.images[rows], self.masks[rows], self.labels[rows], self.truth[rows])

    def score(self, masks: np.ndarray) -> dict[str, float]:
        """Give Dice of all scenes (two empty masks score 1), and of those with a dog."""
        each = dice(masks, self.masks)
        return {"dice": float(each.mean()), "dice_of_dogs": float(each[self.truth != NONE].mean())}

    def painted(self, chosen: np.ndarray) -> np.ndarray:
        return self.seen.decode(chosen, self.images)


def draw(templates: str | None, count: int, seed: int) -> tuple[np.ndarray, ...]:
    """Draw one pass of scenes and cut them into regions."""
    images, masks = Scenes(size=SIZE, templates=templates).draw(count, seed=seed)
    seen = CODEC.seeing(images)
    truth = seen.encode(masks[None])[0].argmax(axis=-1)
    return np.rint(images * 255).astype(np.uint8), masks, seen.labels, truth


def drawn(templates: str | None, part: str, count: int, workers: int) -> Pool:
    """Draw many scenes, in several processes; private, public and test scenes have seeds of their own."""
    sizes = [min(DRAWN, count - start) for start in range(0, count, DRAWN)]
    seeds = range(SEEDS[part], SEEDS[part] + len(sizes))
    if workers > 1 and len(sizes) > 1:
        with ProcessPoolExecutor(workers) as pool:
            parts = list(pool.map(draw, [templates] * len(sizes), sizes, seeds))
    else:
        parts = [draw(templates, size, seed) for size, seed in zip(sizes, seeds, strict=True)]
    return Pool(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


# ── two kinds of network ──────────────────────────────────────────────────────────────────────────────────────────────


class Silhouettes:
    """Look at every region but the background by itself: the region, and what else is there, cut out and scaled."""

    name = "silhouettes"
    factory = ConvNet(shape=(2, SIDE, SIDE), classes=2)
    wide = ConvNet(shape=(2, SIDE, SIDE), classes=2, widths=(32, 64, 128))  # of students: there are few, with more to learn from
    distortion = Augmentation(rotation=30, scale=0.2, shear=10, shift=2, flip=True)

    def __init__(self, device: str) -> None:
        self.device = device

    def prepare(self, pool: Pool) -> tuple[np.ndarray, np.ndarray]:
        """Give crops (crops, 2, side, side) in bytes, and (crops, 2) the scene and region of each."""
        if "crops" in vars(pool):  # large, and asked for several times
            return vars(pool)["crops"]
        found = [self._crops(pool.labels[start : start + DRAWN], start) for start in range(0, len(pool), DRAWN)]
        crops, places = zip(*found, strict=True)
        vars(pool)["crops"] = np.concatenate(crops), np.concatenate(places)
        return vars(pool)["crops"]

    def _crops(self, labels: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
        shown = F.one_hot(torch.from_numpy(labels.astype(np.int64)).to(self.device), REGIONS).permute(0, 3, 1, 2).float()
        rim = torch.ones(SIZE, SIZE, device=self.device)
        rim[1:-1, 1:-1] = 0
        scenes = torch.arange(len(shown), device=self.device)
        back = (shown * rim).sum((2, 3)).argmax(1)  # the background is what most of the frame's rim shows
        there = shown.sum((2, 3)) > 0
        there[scenes, back] = False
        others = (1 - shown) * (1 - shown[scenes, back])[:, None]
        where = there.nonzero()  # (crops, 2)
        both = torch.stack([shown, others], dim=2)[where[:, 0], where[:, 1]]  # (crops, 2, 64, 64)
        grid = self._grid(both[:, 0])
        crops = F.grid_sample(both, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        where[:, 0] += start
        return (crops * 255).round().to(torch.uint8).cpu().numpy(), where.cpu().numpy()

    def _grid(self, region: torch.Tensor) -> torch.Tensor:
        """Put a square around each region: (crops, side, side, 2)."""
        places = torch.arange(SIZE, device=self.device, dtype=torch.float32)
        lines = []
        for axis in (2, 1):  # rows, columns
            used = region.amax(axis) > 0
            low = torch.where(used, places, torch.inf).amin(1)
            high = torch.where(used, places, -torch.inf).amax(1)
            lines.append((low, high))
        half = torch.stack([high - low for low, high in lines]).amax(0).clamp(min=4) / 2 * 1.15 + 1
        steps = (torch.arange(SIDE, device=self.device) + 0.5) / SIDE * 2 - 1
        down, right = (
            (((low + high) / 2)[:, None] + half[:, None] * steps + 0.5) / SIZE * 2 - 1 for low, high in lines
        )  # (crops, side)
        shape = (len(region), SIDE, SIDE)
        return torch.stack([right[:, None].expand(shape), down[:, :, None].expand(shape)], dim=-1)

    def fit(
        self, pool: Pool, shards: list[np.ndarray], chosen: list[np.ndarray], how: Training, seed: int, wide: bool = False
    ) -> Ensemble:
        """Train one network per shard of scenes, each with its own answers (scenes of the shard,)."""
        crops, places = self.prepare(pool)
        begins = np.searchsorted(places[:, 0], np.arange(len(pool) + 1))
        rows, targets, parts, at = [], [], [], 0
        for shard, answers in zip(shards, chosen, strict=True):
            counts = begins[shard + 1] - begins[shard]
            mine = np.repeat(begins[shard], counts) + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            rows.append(mine)
            targets.append(places[mine, 1] == np.repeat(answers, counts))
            parts.append(np.arange(at, at + len(mine)))
            at += len(mine)
        given, wanted = crops[np.concatenate(rows)], np.concatenate(targets).astype(np.int64)
        how = replace(how, augmentation=self.distortion)
        return fitted(self.wide if wide else self.factory, given, wanted, parts, how, seed, self.device)

    def votes(self, ensemble: Ensemble, pool: Pool, members: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Let every network choose a region or none (networks, scenes), and say how sure it is of its best one.

        As many neighbours as `members` choose together, by their mean.
        """
        crops, places = self.prepare(pool)
        likely = np.zeros((len(ensemble), len(pool), REGIONS), dtype=np.float32)
        place = torch.device(self.device)
        height, width = (64, 1024) if place.type == "cuda" else (1, 512)
        with torch.inference_mode(), torch.autocast(place.type, dtype=torch.bfloat16, enabled=place.type == "cuda"):
            for top in range(0, len(ensemble), height):
                ask = ensemble._asker(top, min(top + height, len(ensemble)), place)  # `predict` gives labels alone
                for left in range(0, len(crops), width):
                    some = places[left : left + width]
                    scores = ask(as_float(torch.from_numpy(crops[left : left + width]).to(place)))
                    sure = scores.float().softmax(-1)[..., 1].cpu().numpy()
                    likely[top : top + height, some[:, 0], some[:, 1]] = sure
        likely = likely.reshape(-1, members, len(pool), REGIONS).mean(axis=1)
        best, sure = likely.argmax(axis=-1), likely.max(axis=-1)
        return np.where(sure >= CODEC.share, best, NONE).astype(np.uint8), sure

    def drawn(self, ensemble: Ensemble, pool: Pool, members: int = 1) -> np.ndarray | None:
        """There is no mask but the chosen region."""
        return None


class UNets:
    """Look at whole scenes; a mask's best region is its vote."""

    name = "unet"
    factory = wide = UNet(shape=(1, SIZE, SIZE))

    def __init__(self, device: str) -> None:
        self.device = device

    def fit(
        self, pool: Pool, shards: list[np.ndarray], chosen: list[np.ndarray], how: Training, seed: int, wide: bool = False
    ) -> Ensemble:
        """Train one network per shard of scenes, each with its own answers (scenes of the shard,)."""
        rows = np.concatenate(shards)
        masks = (pool.labels[rows] == np.concatenate(chosen)[:, None, None]).astype(np.uint8)
        ends = np.cumsum([0, *map(len, shards)])
        parts = [np.arange(low, high) for low, high in itertools.pairwise(ends)]
        how = replace(how, augmentation=SCENES, batch=16)
        return fitted(self.factory, pool.images[rows], masks, parts, how, seed, self.device)

    def votes(self, ensemble: Ensemble, pool: Pool, members: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Let every network choose a region or none (networks, scenes); as many neighbours as `members` choose together."""
        chosen = np.empty((len(ensemble) // members, len(pool)), dtype=np.uint8)
        step = max(16, (1 << 30) // (len(ensemble) * SIZE * SIZE))
        for start in range(0, len(pool), step):
            some = pool.part(slice(start, start + step))
            likely = self.drawn(ensemble, some, members)
            chosen[:, start : start + step] = some.seen.encode(likely).argmax(axis=-1)
        return chosen, np.ones(chosen.shape, dtype=np.float32)

    def drawn(self, ensemble: Ensemble, pool: Pool, members: int = 1) -> np.ndarray | None:
        """Give masks as they are drawn, not snapped to a region: (networks, scenes, 64, 64)."""
        likely = ensemble.probabilities(pool.images)
        return likely if members == 1 else likely.reshape(-1, members, *likely.shape[1:]).mean(axis=1, dtype=np.float32)


def fitted(factory: Any, inputs: Any, targets: Any, shards: Any, training: Training, seed: int, device: str) -> Ensemble:
    """Stack on a GPU; on a CPU train one after the other, which measures nothing first."""
    torch.compiler.reset()  # every fit has sizes of its own, and the compiler gives up after eight
    engine: Any = "auto" if device == "cuda" else "sequential"
    return Ensemble.fit(factory, inputs, targets, shards, training=training, seed=seed, device=device, engine=engine)


# ── the door ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Kept:
    """Teachers that voted once on the whole pool. A question is the number of a public scene."""

    def __init__(self, votes: np.ndarray) -> None:
        self.votes = votes  # (teachers, scenes)

    def vote(self, inputs: np.ndarray) -> Sealed:
        return Sealed(self.votes[:, inputs[:, 0]])


def asked(epsilon: float, teachers: int, most: int) -> int:
    """Ask as many questions (a power of two) as leave the noise well below a usual lead of votes.

    GNMax adds σ = √(2N)/μ to every count. The lead of the winner, MARGIN·K votes, should be DEVIATIONS of a difference of two.
    """
    if math.isinf(epsilon):
        return most
    mu = float(accounting.epsilon_mu(epsilon, DELTA))
    bound = (MARGIN * teachers * mu / (2 * DEVIATIONS)) ** 2
    return max(16, min(most, 2 ** int(math.log2(max(bound, 1.0)))))


def winners(votes: np.ndarray, questions: np.ndarray, epsilon: float) -> np.ndarray:
    """Ask for the region of each scene through a curator with a book of its own: (questions,).

    The votes are those of `RegionVotes.encode`, cast once for every budget, so that the curator is given them as labels.
    """
    if math.isinf(epsilon):  # no guarantee: what a plurality without noise would say
        return np.stack([(votes[:, questions] == region).sum(axis=0) for region in range(NONE + 1)]).argmax(axis=0)
    budget, teachers = Budget(epsilon, DELTA, Unit("record")), len(votes)
    codec = Votes(CODEC.bound.dimension)
    mechanism, _ = Aggregation("gnmax").built(budget, len(questions), teachers, codec.bound)
    with TemporaryDirectory() as folder, Ledger(Path(folder) / "book.sqlite", budget) as ledger:
        return np.asarray(Curator(Kept(votes), codec, mechanism, ledger).answer(questions[:, None]))


def worth_asking(pool: Pool) -> np.ndarray:
    """Name the scenes that show something at all, which anyone can see."""
    return np.flatnonzero(pool.labels.reshape(len(pool), -1).max(axis=1) > 0)


# ── the stages ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Run:
    """Hold what all stages share, and write after each."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.began = given, time.monotonic()
        self.figures: dict[str, Any] = {
            "templates": "drawn" if given.templates is None else "SiSI",
            "delta": DELTA,
            "unit": "record",
            "private_scenes": given.private,
            "public_scenes": given.public,
            "test_scenes": given.test,
            "codec": repr(CODEC),
            "questions_rule": f"largest power of two with {MARGIN} K ≥ {DEVIATIONS} deviations of a difference of two counts",
            "steps": {"teachers": given.steps, "students": given.student_steps},
            "members_of_a_student": given.members,
            "teachers": [],
            "students": [],
            "controls": {},
            "codecs": [],
            "seconds": {},
        }

    def late(self) -> bool:
        return time.monotonic() - self.began > 60 * self.given.minutes

    def done(self, stage: str, begin: float) -> None:
        self.figures["seconds"][stage] = round(time.monotonic() - begin, 1)
        print(f"[{time.monotonic() - self.began:6.1f} s] {stage}: {self.figures['seconds'][stage]} s", flush=True)
        result.write(self.given.name, self.figures)


def teach(run: Run, way: Any, private: Pool, public: Pool, count: int) -> np.ndarray:
    """Train K teachers on shards and let them vote on the public pool once."""
    begin = time.monotonic()
    shards = np.array_split(np.random.default_rng(0).permutation(len(private)), count)
    shards = [np.sort(shard) for shard in shards]
    training = Training(steps=run.given.steps, batch=32, rate=run.given.rate)
    ensemble = way.fit(private, shards, [private.truth[shard] for shard in shards], training, seed=0)
    run.done(f"{way.name}, {count} teachers trained", begin)
    begin = time.monotonic()
    votes, sure = way.votes(ensemble, public)
    counts = np.stack([(votes == region).sum(axis=0) for region in range(NONE + 1)], axis=1)  # (scenes, 5)
    plurality, ordered = counts.argmax(axis=1), np.sort(counts, axis=1)
    few = slice(0, len(votes), max(1, len(votes) // 8))
    alone = [public.score(public.painted(vote)) for vote in votes[few][:8]]
    row: dict[str, Any] = {
        "network": way.name,
        "teachers": count,
        "scenes_each": len(private) // count,
        "right_votes": float((votes == public.truth).mean()),
        "right_votes_of_dogs": float((votes == public.truth)[:, public.truth != NONE].mean()),
        "right_plurality": float((plurality == public.truth).mean()),
        "votes_as_the_codec_has_them": same_votes(way, public, votes, sure),
        "lead": float((ordered[:, -1] - ordered[:, -2]).mean() / count),
        "teacher": {key: float(np.mean([one[key] for one in alone])) for key in alone[0]},
        "ensemble": public.score(public.painted(plurality)),
        "engine": None if ensemble.plan is None else f"{ensemble.plan.engine}, {ensemble.plan.chunk} at a time",
    }
    state = {name: part[few][:8] for name, part in ensemble.state.items()}
    masks = way.drawn(Ensemble(ensemble.factory, state, device=way.device), public.part(slice(0, 256)))
    if masks is not None:
        several = [public.part(slice(0, 256)).score(mask) for mask in masks]
        row["teacher_not_snapped"] = {key: float(np.mean([one[key] for one in several])) for key in several[0]}
    run.figures["teachers"].append(row)
    print({key: value for key, value in row.items() if key != "engine"}, flush=True)
    run.done(f"{way.name}, {count} teachers voted", begin)
    return votes


def same_votes(way: Any, public: Pool, votes: np.ndarray, sure: np.ndarray) -> float:
    """Tell how many of the fast votes are the codec's own: two teachers' masks, painted with how sure they are, encoded."""
    if way.name != "silhouettes":
        return 1.0  # these were encoded by it
    some, few = public.part(slice(0, 256)), slice(0, 2)
    best = np.where(votes[few, :256] == NONE, 0, votes[few, :256])
    painted = (some.labels[None] == best[:, :, None, None]) * sure[few, :256, None, None]
    return float(np.mean(some.seen.encode(painted).argmax(axis=-1) == votes[few, :256]))


@dataclass(frozen=True)
class Lesson:
    """Hold one student's answers."""

    network: str
    teachers: int
    epsilon: float
    questions: int
    by_rule: bool
    seed: int
    rows: np.ndarray
    chosen: np.ndarray


def ask(run: Run, way: Any, public: Pool, votes: np.ndarray) -> list[Lesson]:
    """Hold an interview for every ε, number of questions and draw of the noise."""
    candidates = worth_asking(public)
    lessons = []
    for epsilon in run.given.epsilons:
        rule = asked(epsilon, len(votes), len(candidates))
        around = {max(16, rule // 4), rule, min(4 * rule, len(candidates))}
        numbers = [rule] if math.isinf(epsilon) or run.given.small else sorted(around)
        for number in numbers:
            for seed in range(run.given.seeds if not math.isinf(epsilon) else 1):
                rows = np.sort(np.random.default_rng(seed).permutation(candidates)[:number])
                chosen = winners(votes, rows, epsilon)
                lessons.append(Lesson(way.name, len(votes), epsilon, number, number == rule, seed, rows, chosen))
    return lessons


def learn(run: Run, way: Any, public: Pool, test: Pool, lessons: list[Lesson]) -> None:
    """Train every student at once, name the rest of the pool with each, train again."""
    begin = time.monotonic()
    training = Training(steps=run.given.student_steps, batch=32, rate=run.given.rate)
    label = f"{way.name}, {len(lessons)} students of {lessons[0].teachers} teachers"
    members = run.given.members
    first = way.fit(public, *repeated([(one.rows, one.chosen) for one in lessons], members), training, seed=1, wide=True)
    run.done(f"{label}: from answers", begin)
    begin = time.monotonic()
    guesses, _ = way.votes(first, public, members)
    everything, filled = np.arange(len(public)), []
    for lesson, guess in zip(lessons, guesses, strict=True):
        answers = guess.astype(np.int64)
        answers[lesson.rows] = lesson.chosen
        filled.append((everything, answers))
    second = way.fit(public, *repeated(filled, members), training, seed=2, wide=True)
    for stage, students in (("student", first), ("self_trained", second)):
        chosen, _ = way.votes(students, test, members)
        masks = way.drawn(students, test.part(slice(0, 512)), members)
        for number, lesson in enumerate(lessons):
            entry = row_of(run, public, lesson)
            entry[stage] = test.score(test.painted(chosen[number]))
            if masks is not None:
                entry[f"{stage}_not_snapped"] = test.part(slice(0, 512)).score(masks[number])
    run.done(f"{label}: self-trained", begin)


def repeated(lessons: list[tuple[np.ndarray, np.ndarray]], members: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Give every lesson to several networks: they think together, which costs no privacy."""
    return [rows for rows, _ in lessons for _ in range(members)], [chosen for _, chosen in lessons for _ in range(members)]


def row_of(run: Run, public: Pool, lesson: Lesson) -> dict[str, Any]:
    """Find or begin the row of one student."""
    key = {
        "network": lesson.network,
        "teachers": lesson.teachers,
        "epsilon": "inf" if math.isinf(lesson.epsilon) else lesson.epsilon,
        "questions": lesson.questions,
        "seed": lesson.seed,
    }
    for entry in run.figures["students"]:
        if all(entry[name] == value for name, value in key.items()):
            return entry
    asked_about = public.part(lesson.rows)
    entry = {
        **key,
        "by_rule": lesson.by_rule,
        "right_answers": float((lesson.chosen == asked_about.truth).mean()),
        "released": asked_about.score(asked_about.painted(lesson.chosen)),
    }
    run.figures["students"].append(entry)
    return entry


def control(run: Run, way: Any, private: Pool, test: Pool) -> None:
    """Score nothing at all, the mean shape, and a network that learned from every private scene without noise."""
    begin = time.monotonic()
    controls = run.figures["controls"]
    controls["public only: an empty mask"] = test.score(np.zeros(test.masks.shape, dtype=np.uint8))
    mean = private.masks.mean(axis=0, dtype=np.float64)
    mean = mean / max(mean.max(), 1e-9)  # its highest point is one: at its true height it is empty
    controls["mean shape, constant"] = test.score(np.broadcast_to(mean, test.masks.shape))
    training = Training(steps=run.given.control_steps, batch=64, rate=run.given.rate)
    alone = way.fit(private, [np.arange(len(private))], [private.truth], training, seed=3, wide=True)
    chosen, _ = way.votes(alone, test)
    controls[f"{way.name}: not private, all scenes"] = test.score(test.painted(chosen[0]))
    masks = way.drawn(alone, test.part(slice(0, 1024)))
    if masks is not None:
        controls[f"{way.name}: not private, all scenes, not snapped"] = test.part(slice(0, 1024)).score(masks[0])
    print(controls, flush=True)
    run.done(f"{way.name}, controls", begin)


def papers(run: Run, public: Pool, votes: np.ndarray, epsilon: float = 2.0, questions: int = 128) -> None:
    """Ask the same teachers for whole masks in the papers' codes, at the same honest budget.

    Codecs are fitted on drawn silhouettes, which are public. Released masks are scored at 1/2, and snapped to a region.
    """
    begin = time.monotonic()
    shapes = Public.of(np.zeros((2000, 1)), draw(None, 2000, 1)[1], source="drawn scenes")
    rows = worth_asking(public)[:questions]
    asked_about = public.part(rows)
    budget = Budget(epsilon, DELTA, Unit("record"))
    for name, codec in (("pixels, naive", Pixels.fit(shapes)), ("pca, 16 components", PCA.fit(shapes, components=16))):
        mechanism, _ = Aggregation("mean").built(budget, len(rows), len(votes), codec.bound)
        if isinstance(codec, PCA):
            codec = replace(codec, noise=mechanism.sigma / len(votes))  # shrinking; the clip stays

        class Painters:
            def vote(self, inputs: np.ndarray) -> Sealed:
                mine = votes[:, inputs[:, 0]]
                return Sealed(public.labels[inputs[:, 0]][None] == mine[:, :, None, None])  # NONE is no region

        with TemporaryDirectory() as folder, Ledger(Path(folder) / "book.sqlite", budget) as ledger:
            masks = Curator(Painters(), codec, mechanism, ledger).answer(rows[:, None])
        snapped = asked_about.seen.encode(masks[None])[0].argmax(axis=-1)
        row = {
            "codec": name,
            "teachers": len(votes),
            "epsilon": epsilon,
            "questions": len(rows),
            "released": asked_about.score(masks),
            "released_snapped": asked_about.score(asked_about.painted(snapped)),
        }
        print(row, flush=True)
        run.figures["codecs"].append(row)
    run.done(f"the papers' codes, {len(votes)} teachers", begin)


def table(run: Run) -> None:
    """Print the frontier: mean and spread of Dice over seeds; a star marks the number of questions that the rule chose."""
    print("network         K     ε  questions  right answers  student        self-trained   dogs alone")
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in run.figures["students"]:
        groups.setdefault((row["network"], row["teachers"], row["epsilon"], row["questions"]), []).append(row)
    for (network, teachers, epsilon, questions), rows in groups.items():
        first, second = (np.array([row[stage]["dice"] for row in rows]) for stage in ("student", "self_trained"))
        dogs = np.mean([row["self_trained"]["dice_of_dogs"] for row in rows])
        print(
            f"{network:11s} {teachers:5d} {epsilon!s:>5} {questions:7d}{'*' if rows[0]['by_rule'] else ' '}"
            f"  {np.mean([row['right_answers'] for row in rows]):10.3f}     "
            f"{first.mean():.3f} ± {first.std():.3f}  {second.mean():.3f} ± {second.std():.3f}  {dogs:.3f}"
        )


def main() -> None:
    """Go through the stages until time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--templates", help="a folder with bird/, cat/ and dog/, or an .npz of them; without one they are drawn")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", nargs="+", choices=("silhouettes", "unet"), default=["silhouettes"])
    parser.add_argument("--teachers", type=int, nargs="+", default=[256, 1000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0, math.inf])
    parser.add_argument("--seeds", type=int, default=3, help="draws of questions and of noise")
    parser.add_argument("--members", type=int, default=3, help="networks that are one student together")
    parser.add_argument("--private", type=int, default=131_072)
    parser.add_argument("--public", type=int, default=4096)
    parser.add_argument("--test", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1600, help="of a teacher")
    parser.add_argument("--student-steps", type=int, default=2000)
    parser.add_argument("--control-steps", type=int, default=6000)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no stage after so many")
    parser.add_argument("--name", default="scenes", help="of the result")
    parser.add_argument("--controls", action="store_true", help="only the controls, into a result that is there")
    parser.add_argument("--small", action="store_true", help="a size that a CPU does in minutes")
    given = parser.parse_args()
    if given.small:
        small = {"teachers": [8], "epsilons": [8.0, math.inf], "seeds": 1, "private": 1024, "public": 256, "test": 256}
        vars(given).update(small, steps=60, student_steps=100, control_steps=150, members=1)
    logging.basicConfig(level=logging.INFO)
    run, begin = Run(given), time.monotonic()
    workers = len(os.sched_getaffinity(0)) if given.private > DRAWN else 1
    pools = {part: drawn(given.templates, part, getattr(given, part), workers) for part in SEEDS}
    if given.device == "cuda":
        run.figures["gpu"] = torch.cuda.get_device_name()
    run.figures["empty_masks_in_test"] = float((pools["test"].truth == NONE).mean())
    if given.controls:
        run.figures = json.loads((result.RESULTS / f"{given.name}.json").read_text(encoding="utf-8"))["figures"]
        run.figures["controls"]["steps"] = given.control_steps
        for name in given.networks:
            way = Silhouettes(given.device) if name == "silhouettes" else UNets(given.device)
            control(run, way, pools["private"], pools["test"])
        return
    run.done("scenes drawn", begin)
    for name in given.networks:
        way = Silhouettes(given.device) if name == "silhouettes" else UNets(given.device)
        for count in given.teachers:
            if run.late():
                break
            votes = teach(run, way, pools["private"], pools["public"], count)
            lessons = ask(run, way, pools["public"], votes)
            if not run.late():
                learn(run, way, pools["public"], pools["test"], lessons)
            if not run.late() and count == given.teachers[0] and name == given.networks[0]:
                papers(run, pools["public"], votes)
        if not run.late():
            control(run, way, pools["private"], pools["test"])
    table(run)
    result.write(given.name, run.figures)


if __name__ == "__main__":
    main()
