"""Private segmentation of SiSI scenes: teachers vote for one region of a public image, students learn from the noisy winners.

python benchmarks/scenes.py --templates DIR_OR_NPZ --device cuda --teachers 1000 --controls   writes results/scenes.json
python benchmarks/scenes.py --templates DIR_OR_NPZ --teachers 64 256 --rows FILE              rows as they come, as JSON lines
python benchmarks/scenes.py --collect FILE ...                     rows and results of several runs, into results/scenes.json
python benchmarks/scenes.py --small                                      minutes on a CPU, drawn silhouettes, nothing written

Record level, δ = 1e-7. 131,072 private scenes are divided among K teachers. A scene has a grey level per object, so that
"which pixels are the dog's?" has at most four answers or none, and a vote costs √2. Two kinds of teacher and student:
silhouettes  a small network looks at every region by itself, cut out and scaled: is this a dog? (`teachers.regions`)
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
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import result
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.regionvotes import Regioned, RegionVotes
from tutelage.codecs.votes import Votes
from tutelage.data.dataset import Public
from tutelage.data.scenes import Scenes
from tutelage.metrics import dice
from tutelage.nets.crops import CHANNELS, SIDE, SILHOUETTES, Crops
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import SCENES
from tutelage.planning import Aggregation
from tutelage.privacy import accounting
from tutelage.privacy.bounds import Ball
from tutelage.privacy.curator import Curator
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Unit
from tutelage.students.regions import RegionStudent
from tutelage.teachers.ensemble import Ensemble

DELTA, SIZE, REGIONS = 1e-7, 64, 4  # a background and three animals
NONE = REGIONS
CODEC = RegionVotes((SIZE, SIZE), REGIONS)
MARGIN, DEVIATIONS = 0.4, 1.5
DRAWN = 2048  # scenes per seed
SEEDS = {"private": 10_000, "public": 20_000, "test": 40_000}  # settings were tried on scenes of 30,000 on
FITTED, SHAPES, FEW = 50_000, 4096, 128  # seed and number of the scenes that codecs are fitted on; questions at a time
FIXED = {
    "delta": DELTA,
    "unit": "record",
    "codec": repr(CODEC),
    "questions_rule": f"largest power of two with {MARGIN} K ≥ {DEVIATIONS} deviations of a difference of two counts",
}


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

    @cached_property
    def crops(self) -> Crops:
        return Crops.of(self.labels, REGIONS)

    def part(self, rows: Any) -> Pool:
        return Pool(self.images[rows], self.masks[rows], self.labels[rows], self.truth[rows])

    def score(self, masks: np.ndarray) -> dict[str, float]:
        """Give Dice of all scenes (two empty masks score 1), and of those with a dog."""
        each = dice(masks, self.masks)
        return {"dice": float(each.mean()), "dice_of_dogs": float(each[self.truth != NONE].mean())}

    def scored(self, chosen: np.ndarray) -> dict[str, float]:
        """Score regions that were chosen."""
        return self.score(self.seen.decode(chosen, self.images))


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


Answered = tuple[np.ndarray, np.ndarray]  # scenes, and the region that each was said to be


class Silhouettes:
    """Look at every region but the background by itself, cut out and scaled."""

    name = "silhouettes"
    factory = ConvNet(shape=(CHANNELS, SIDE, SIDE), classes=2)

    def __init__(self, device: str) -> None:
        self.device = device

    def teach(self, private: Pool, shards: list[np.ndarray], how: Training, distorted: Any = SILHOUETTES) -> Ensemble:
        """Train one network per shard of scenes."""
        material = private.crops.lessons((shard, private.truth[shard]) for shard in shards)
        return fitted(self.factory, *material, replace(how, augmentation=distorted), 0, self.device)

    def votes(self, ensemble: Ensemble, pool: Pool) -> np.ndarray:
        """Let every network choose a region or none: (networks, scenes)."""
        return pool.crops.chosen(ensemble.shares(pool.crops.pictures, label=1), CODEC.share)

    def learn(self, pool: Pool, lessons: list[Answered], how: Training, seed: int, members: int) -> list[Any]:
        """Train a student of as many members per lesson; each gives its choices (scenes,) of another pool."""
        how = replace(how, augmentation=SILHOUETTES)
        students = RegionStudent(CODEC, training=how, members=members, device=self.device, seed=seed).learn(pool.crops, lessons)
        return [lambda other, one=one: one.choose(other.crops) for one in students]


class UNets:
    """Look at whole scenes; a mask's best region is its vote."""

    name = "unet"
    factory = UNet(shape=(1, SIZE, SIZE))

    def __init__(self, device: str) -> None:
        self.device = device

    def teach(self, private: Pool, shards: list[np.ndarray], how: Training, distorted: Any = SCENES) -> Ensemble:
        """Train one network per shard of scenes."""
        return self._fit(private, [(shard, private.truth[shard]) for shard in shards], how, 0, distorted)

    def _fit(self, pool: Pool, lessons: list[Answered], how: Training, seed: int, distorted: Any = SCENES) -> Ensemble:
        rows, chosen = (np.concatenate(parts) for parts in zip(*lessons, strict=True))
        masks = (pool.labels[rows] == chosen[:, None, None]).astype(np.uint8)
        parts = [np.arange(low, high) for low, high in itertools.pairwise(np.cumsum([0, *(len(one) for one, _ in lessons)]))]
        how = replace(how, augmentation=distorted, batch=16)
        return fitted(self.factory, pool.images[rows], masks, parts, how, seed, self.device)

    def votes(self, ensemble: Ensemble, pool: Pool, members: int = 1) -> np.ndarray:
        """Let every network choose a region or none (networks, scenes); as many neighbours as `members` choose together."""
        chosen = np.empty((len(ensemble) // members, len(pool)), dtype=np.uint8)
        step = max(16, (1 << 30) // (len(ensemble) * SIZE * SIZE))
        for start in range(0, len(pool), step):
            some = pool.part(slice(start, start + step))
            likely = ensemble.probabilities(some.images)
            likely = likely.reshape(-1, members, *likely.shape[1:]).mean(axis=1, dtype=np.float32)
            chosen[:, start : start + step] = some.seen.encode(likely).argmax(axis=-1)
        return chosen

    def learn(self, pool: Pool, lessons: list[Answered], how: Training, seed: int, members: int) -> list[Any]:
        """Train a student of as many members per lesson; each gives its choices (scenes,) of another pool."""
        ensemble = self._fit(pool, [lesson for lesson in lessons for _ in range(members)], how, seed)

        def student(first: int) -> Any:
            state = {name: part[first : first + members] for name, part in ensemble.state.items()}
            return lambda other: self.votes(Ensemble(self.factory, state, device=self.device), other, members)[0]

        return [student(number * members) for number in range(len(lessons))]


WAYS = {way.name: way for way in (Silhouettes, UNets)}


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


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


PARTS = {  # by what a row is told from others of its kind: a later one takes its place
    "teachers": ("network", "teachers"),
    "students": ("network", "teachers", "epsilon", "questions", "seed"),
    "controls": ("network", "control"),
    "codecs": ("codec", "teachers", "epsilon", "questions"),
}


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read rows again: of a run that wrote JSON lines, which may have been cut off, or of a result."""
    if path.suffix == ".json":
        figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
        for number, run in enumerate(figures["runs"]):
            yield {"part": "run", **run}
            for part in PARTS:
                yield from ({"part": part, **row} for row in figures[part] if row["run"] == number)
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:  # the last one, half written
            return


def merged(rows: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """Put the rows of several runs together: every row tells its run, and of equal ones the last stays."""
    runs: list[dict[str, Any]] = []
    parts: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {part: {} for part in PARTS}
    for row in rows:
        part = row["part"]
        told = {key: value for key, value in row.items() if key != "part"}
        if part == "run":
            runs.append({"seconds": {}, **told})
        elif part == "seconds":
            runs[-1]["seconds"][told["stage"]] = told["seconds"]
        else:
            parts[part][tuple(told.get(key) for key in PARTS[part])] = {**told, "run": len(runs) - 1}
    used = sorted({row["run"] for found in parts.values() for row in found.values()})
    kept = {part: [{**row, "run": used.index(row["run"])} for row in found.values()] for part, found in parts.items()}
    return {**FIXED, "runs": [runs[number] for number in used], "table": table(kept["students"]), **kept}


def table(students: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give mean and deviation of Dice over draws of questions and noise, where the rule chose how many questions."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in students:
        if row["by_rule"]:
            groups.setdefault((row["network"], row["teachers"], str(row["epsilon"]), row["questions"]), []).append(row)
    found = []
    for key in sorted(groups, key=lambda key: (*key[:2], float(key[2]))):
        (network, teachers, epsilon, questions), rows = key, groups[key]
        scores = np.array([row["student"]["dice"] for row in rows])
        found.append(
            {
                "network": network,
                "teachers": teachers,
                "epsilon": epsilon,
                "questions": questions,
                "right_answers": round(float(np.mean([row["right_answers"] for row in rows])), 4),
                "dice": round(float(scores.mean()), 4),
                "deviation": round(float(scores.std(ddof=1)), 4) if len(scores) > 1 else None,
                "dice_of_dogs": round(float(np.mean([row["student"]["dice_of_dogs"] for row in rows])), 4),
                "draws": len(rows),
            }
        )
    return found


class Run:
    """Hold what all stages share, and keep every row as soon as it is known."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.began, self.rows = given, time.monotonic(), []
        if given.rows is not None:
            given.rows.unlink(missing_ok=True)

    def keep(self, part: str, **told: Any) -> None:
        row = {"part": part, **told}
        self.rows.append(row)
        print(row, flush=True)
        if self.given.rows is not None:
            with self.given.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def late(self) -> bool:
        return time.monotonic() - self.began > 60 * self.given.minutes

    def done(self, stage: str, begin: float) -> None:
        self.keep("seconds", stage=stage, seconds=round(time.monotonic() - begin, 1))
        print(f"[{time.monotonic() - self.began:6.1f} s]", flush=True)


# ── the stages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def teach(run: Run, way: Any, private: Pool, public: Pool, count: int) -> np.ndarray:
    """Train K teachers on shards and let them vote on the public pool once."""
    begin = time.monotonic()
    shards = np.array_split(np.random.default_rng(0).permutation(len(private)), count)
    shards = [np.sort(shard) for shard in shards]
    ensemble = way.teach(private, shards, Training(steps=run.given.steps, batch=32, rate=run.given.rate))
    run.done(f"{way.name}, {count} teachers trained", begin)
    begin = time.monotonic()
    votes = way.votes(ensemble, public)
    counts = np.stack([(votes == region).sum(axis=0) for region in range(NONE + 1)], axis=1)  # (scenes, 5)
    plurality, ordered = counts.argmax(axis=1), np.sort(counts, axis=1)
    alone = [public.scored(vote.astype(np.int64)) for vote in votes[:: max(1, len(votes) // 8)][:8]]
    run.keep(
        "teachers",
        network=way.name,
        teachers=count,
        scenes_each=len(private) // count,
        right_votes=float((votes == public.truth).mean()),
        right_votes_of_dogs=float((votes == public.truth)[:, public.truth != NONE].mean()),
        right_plurality=float((plurality == public.truth).mean()),
        lead=float((ordered[:, -1] - ordered[:, -2]).mean() / count),
        teacher={key: float(np.mean([one[key] for one in alone])) for key in alone[0]},
        ensemble=public.scored(plurality),
        engine=None if ensemble.plan is None else f"{ensemble.plan.engine}, {ensemble.plan.chunk} at a time",
    )
    run.done(f"{way.name}, {count} teachers voted", begin)
    return votes


@dataclass(frozen=True)
class Lesson:
    """Hold one student's answers."""

    epsilon: float
    questions: int
    by_rule: bool
    seed: int
    rows: np.ndarray
    chosen: np.ndarray


def ask(run: Run, public: Pool, votes: np.ndarray) -> list[Lesson]:
    """Hold an interview for every ε, number of questions and draw of the noise."""
    candidates = worth_asking(public)
    lessons = []
    for epsilon in run.given.epsilons:
        rule = asked(epsilon, len(votes), len(candidates))
        around = {max(16, rule // 4), rule, min(4 * rule, len(candidates))}
        numbers = sorted(around) if run.given.around and not math.isinf(epsilon) else [rule]
        for number in numbers:
            for seed in range(run.given.seeds if not math.isinf(epsilon) else 1):
                rows = np.sort(np.random.default_rng(seed).permutation(candidates)[:number])
                lessons.append(Lesson(epsilon, number, number == rule, seed, rows, winners(votes, rows, epsilon)))
    return lessons


def learn(run: Run, way: Any, public: Pool, test: Pool, lessons: list[Lesson], teachers: int) -> None:
    """Train every student at once; name the rest of the pool with each and train again, where that is asked for."""
    begin = time.monotonic()
    training = Training(steps=run.given.student_steps, batch=32, rate=run.given.rate)
    given = {"how": training, "members": run.given.members}
    stages = {"student": way.learn(public, [(one.rows, one.chosen) for one in lessons], seed=1, **given)}
    if run.given.self_training:
        filled = []
        for lesson, student in zip(lessons, stages["student"], strict=True):
            answers = student(public).astype(np.int64)
            answers[lesson.rows] = lesson.chosen
            filled.append((np.arange(len(public)), answers))
        stages["self_trained"] = way.learn(public, filled, seed=2, **given)
    for number, lesson in enumerate(lessons):
        asked_about = public.part(lesson.rows)
        run.keep(
            "students",
            network=way.name,
            teachers=teachers,
            epsilon="inf" if math.isinf(lesson.epsilon) else lesson.epsilon,
            questions=lesson.questions,
            seed=lesson.seed,
            by_rule=lesson.by_rule,
            right_answers=float((lesson.chosen == asked_about.truth).mean()),
            released=asked_about.scored(lesson.chosen),
            **{stage: test.scored(students[number](test).astype(np.int64)) for stage, students in stages.items()},
        )
    run.done(f"{way.name}, {len(lessons)} students of {teachers} teachers", begin)


def control(run: Run, way: Any, private: Pool, test: Pool) -> None:
    """Score nothing at all, the mean shape, and a network that learned from every private scene without noise."""
    begin = time.monotonic()
    run.keep("controls", control="public only: an empty mask", **test.score(np.zeros(test.masks.shape, dtype=np.uint8)))
    mean = private.masks.mean(axis=0, dtype=np.float64)
    mean = mean / max(mean.max(), 1e-9)  # its highest point is one: at its true height it is empty
    run.keep("controls", control="mean shape, constant", **test.score(np.broadcast_to(mean, test.masks.shape)))
    training = Training(steps=run.given.control_steps, batch=64, rate=run.given.rate)
    [alone] = way.learn(private, [(np.arange(len(private)), private.truth)], how=training, seed=3, members=1)
    told = {"network": way.name, "control": "not private, all scenes", "steps": run.given.control_steps}
    run.keep("controls", **told, **test.scored(alone(test).astype(np.int64)))
    run.done(f"{way.name}, controls", begin)


def papers(run: Run, public: Pool, votes: np.ndarray, epsilon: float = 2.0) -> None:
    """Ask the same teachers for whole masks in the papers' codes, at the same honest budget.

    Codecs are fitted on masks of further scenes of the same kind, as the papers fitted theirs. They are asked few questions,
    which carry less noise, and as many as the votes are. Released masks are scored at 1/2, and snapped to a region.
    """
    begin = time.monotonic()
    shapes = Public.of(np.zeros((SHAPES, 1)), draw(run.given.templates, SHAPES, FITTED)[1], source="scenes")
    candidates, budget = worth_asking(public), Budget(epsilon, DELTA, Unit("record"))
    fixed = [("pixels, naive", Pixels.fit(shapes)), ("pca, 16 components", PCA.fit(shapes, components=16))]
    for questions in sorted({min(FEW, len(candidates)), asked(epsilon, len(votes), len(candidates))}):
        unit_clip, _ = Aggregation("mean").built(budget, questions, len(votes), Ball(1, 1.0))
        rows = candidates[:questions]
        asked_about = public.part(rows)
        for name, codec in coded(fixed, shapes, unit_clip.sigma / len(votes)):
            masks = released(public, votes, rows, codec, budget)
            snapped = asked_about.seen.encode(masks[None])[0].argmax(axis=-1)
            told = {"codec": name, "teachers": len(votes), "epsilon": epsilon, "questions": questions}
            scores = {"released": asked_about.score(masks), "released_snapped": asked_about.scored(snapped)}
            empty = asked_about.score(np.zeros(masks.shape, dtype=np.uint8))["dice"]
            run.keep("codecs", **told, dimension=codec.bound.dimension, **scores, empty_mask=empty)
    run.done(f"the papers' codes, {len(votes)} teachers", begin)


def coded(fixed: list[tuple[str, Any]], shapes: Public, noise_per_norm: float) -> Iterator[tuple[str, Any]]:
    """Let components shrink under the noise that they will meet, and add as many of them as it allows (000's criterion)."""
    own = ("pca, by the criterion", PCA.priced(shapes, noise_per_norm=noise_per_norm))
    for name, codec in (*fixed, own):
        yield name, replace(codec, noise=noise_per_norm * codec.norm) if isinstance(codec, PCA) else codec


def released(public: Pool, votes: np.ndarray, rows: np.ndarray, codec: Any, budget: Budget) -> np.ndarray:
    """Let the teachers' regions through the door as masks, some questions at a time."""

    class Painters:
        def vote(self, inputs: np.ndarray) -> Sealed:
            mine = votes[:, inputs[:, 0]]
            return Sealed(public.labels[inputs[:, 0]][None] == mine[:, :, None, None])  # NONE is no region

    mechanism, _ = Aggregation("mean").built(budget, len(rows), len(votes), codec.bound)
    with TemporaryDirectory() as folder, Ledger(Path(folder) / "book.sqlite", budget) as ledger:
        curator = Curator(Painters(), codec, mechanism, ledger)
        return np.concatenate([curator.answer(rows[start : start + FEW, None]) for start in range(0, len(rows), FEW)])


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--templates", help="a folder with bird/, cat/ and dog/, or an .npz of them; without, they are drawn")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", nargs="+", choices=tuple(WAYS), default=["silhouettes"])
    parser.add_argument("--teachers", type=int, nargs="*", default=[256, 1000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0, math.inf])
    parser.add_argument("--seeds", type=int, default=3, help="draws of questions and of noise")
    parser.add_argument("--members", type=int, default=3, help="networks that are one student together")
    parser.add_argument("--private", type=int, default=131_072)
    parser.add_argument("--public", type=int, default=4096)
    parser.add_argument("--test", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1600, help="of a teacher")
    parser.add_argument("--student-steps", type=int, default=2000)
    parser.add_argument("--control-steps", type=int, default=3000)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no stage after so many")
    parser.add_argument(
        "--controls", action="store_true", help="also the controls, before any teacher; alone with an empty --teachers"
    )
    parser.add_argument("--papers", action="store_true", help="also the papers' codes, with the votes of the first K")
    parser.add_argument("--around", action="store_true", help="also a quarter of the questions, and four times as many")
    parser.add_argument("--self-training", action="store_true", help="also students that learn from their own answers")
    parser.add_argument("--rows", type=Path, help="write rows here as they come, and no result")
    parser.add_argument("--collect", type=Path, nargs="+", help="rows or results of earlier runs, the later takes precedence")
    parser.add_argument("--small", action="store_true", help="a size that a CPU does in minutes")
    given = parser.parse_args()
    if given.small:
        small = {"teachers": [8], "epsilons": [8.0, math.inf], "seeds": 1, "private": 1024, "public": 256, "test": 256}
        vars(given).update(small, steps=60, student_steps=100, control_steps=100, members=1, controls=True, papers=True)
    return given


def main() -> None:
    """Go through the stages until time is up, or collect what others went through."""
    given = parsed()
    if given.collect:
        figures = merged(itertools.chain.from_iterable(map(lines, given.collect)))
        result.write("scenes", figures)
        return show(figures)
    logging.basicConfig(level=logging.INFO)
    run, begin = Run(given), time.monotonic()
    workers = len(os.sched_getaffinity(0)) if given.private > DRAWN else 1
    pools = {part: drawn(given.templates, part, getattr(given, part), workers) for part in SEEDS}
    run.keep("run", **described(given), empty_masks_in_test=float((pools["test"].truth == NONE).mean()))
    run.done("scenes drawn", begin)
    for name in given.networks:
        stages(run, WAYS[name](given.device), pools)
    figures = merged(iter(run.rows))
    if given.rows is None and not given.small:
        result.write("scenes", figures)
    return show(figures)


def stages(run: Run, way: Any, pools: dict[str, Pool]) -> None:
    """Go through them with one kind of network."""
    private, public, test = (pools[part] for part in SEEDS)
    if run.given.controls and not run.late():
        control(run, way, private, test)
    for number, count in enumerate(run.given.teachers):
        if run.late():
            return
        votes = teach(run, way, private, public, count)
        lessons = ask(run, public, votes)
        if not run.late():
            learn(run, way, public, test, lessons, count)
        if run.given.papers and number == 0 and not run.late():
            papers(run, public, votes)


def described(given: argparse.Namespace) -> dict[str, Any]:
    """Say how, on what and by which command a run was made; folders elsewhere by their last name alone."""
    words = [Path(word).name if os.path.isabs(word) or word.startswith("..") else word for word in sys.argv[1:]]
    return {
        "command": " ".join(["python benchmarks/scenes.py", *words]),
        "machine": result.machine(),
        "gpu": torch.cuda.get_device_name() if given.device == "cuda" else None,
        "versions": result.versions(),
        "templates": "drawn" if given.templates is None else "SiSI",
        "scenes": {part: getattr(given, part) for part in SEEDS},
        "steps": {"teachers": given.steps, "students": given.student_steps},
        "members_of_a_student": given.members,
    }


def show(figures: dict[str, Any]) -> None:
    """Print the frontier, at the numbers of questions that the rule chose."""
    for row in figures["table"]:
        print(row)


if __name__ == "__main__":
    main()
