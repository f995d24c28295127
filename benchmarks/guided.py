"""What a decoder that sees the public image is worth: Dice of answers about drawn scenes, and of what learned public masks alone.

python benchmarks/guided.py              writes results/guided.json; seven minutes or more on one core

K = 100 teachers, 20 questions, δ = 1e-5. Noise is drawn at the deviation that a run would have, and answers about 400 other
scenes are scored, so that one figure hangs on few of them. Teachers are made up: each names the right region of a scene with a
given probability, or else another one or none. Everything is fitted on the same public scenes: codec, decoder, and a U-Net of
the decoder's size that is told no answers. A fifth of them is held back, and says at which threshold each is cut. Votes for a
region stand beside it: the other way to let the public image help.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import result
from tutelage.answers import Answers
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.guided import Guided
from tutelage.codecs.guiding import heard
from tutelage.codecs.pca import PCA
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.dataset import Public
from tutelage.data.scenes import Scenes
from tutelage.metrics import best_threshold, dice
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import SCENES
from tutelage.planning import Aggregation
from tutelage.privacy.bounds import Ball, Bound
from tutelage.privacy.ledger import Budget
from tutelage.students.masks import MaskStudent

SIZE, TEACHERS, QUESTIONS, DELTA = 32, 100, 20, 1e-5
EPSILONS, MASKS, RIGHT = (1.0, 3.0, 8.0), (50, 500), (1.0, 0.7)
SCORED, REGIONS = 400, 4
LEARNING = {"steps": 400, "batch": 16, "rate": 5e-3, "augmentation": replace(SCENES, shift=4.0)}
WIDTHS = (8, 16, 32)
VOTES = RegionVotes((SIZE, SIZE), REGIONS)


def deviation(epsilon: float, bound: Bound) -> float:
    """Give the deviation of the noise on one coordinate of a released mean, as a run would have it."""
    mechanism: Any = Aggregation("mean").built(Budget(epsilon, DELTA), QUESTIONS, TEACHERS, bound)[0]
    return float(mechanism.sigma / TEACHERS)


def of_components(public: Public, epsilon: float) -> PCA:
    """Keep as many principal components as the noise allows, and shrink by it."""
    made = PCA.priced(public, noise_per_norm=deviation(epsilon, Ball(1, 1.0)), folds=5)
    return replace(made, noise=deviation(epsilon, made.bound))


def of_flips(public: Public, epsilon: float) -> Flips:
    """Let masks out under the orthant bound, and clean them by the lowest frequencies."""
    return Flips.fit(DCT((SIZE, SIZE), 32, 1.0), public, reference="nothing")


INNER: dict[str, Callable[[Public, float], Any]] = {"pca": of_components, "flips of dct": of_flips}


def voted(pool: Public, right: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Let teachers choose: counts (scenes, regions + 1), the last of them none, and the scenes' regions (scenes, *shape)."""
    seen = VOTES.seeing(pool.inputs)
    truth = seen.encode(np.asarray(pool.targets)[None])[0].argmax(axis=-1)
    counts = np.zeros((len(pool), REGIONS + 1), dtype=np.int64)
    for row, labels, wanted in zip(counts, seen.labels, truth, strict=True):
        others = [choice for choice in (*range(1, int(labels.max()) + 1), REGIONS) if choice != wanted]  # 0: the background
        shares = np.zeros(REGIONS + 1)
        shares[others] = (1 - right) / len(others) if others else 0.0
        shares[wanted] = 1 - shares.sum()
        row[:] = rng.multinomial(TEACHERS, shares)
    return counts, seen.labels


def means(codec: Any, counts: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Average the teachers' codes: (scenes, dimension). Teachers who chose the same drew the same."""
    total = np.zeros((len(counts), codec.bound.dimension))
    for choice in range(REGIONS + 1):
        total += counts[:, choice, None] * codec.encode((labels == choice).astype(np.float32)[None])[0]
    return total / TEACHERS


def score(found: np.ndarray, pool: Public, threshold: float = 0.5) -> dict[str, float]:
    """Give Dice of all scenes (two empty masks score 1) and of those that hold the object."""
    each = dice(found, np.asarray(pool.targets), threshold=threshold)
    held = np.asarray(pool.targets).reshape(len(pool), -1).any(axis=1)
    return {"dice": float(each.mean()), "dice_of_objects": float(each[held].mean())}


def alone(public: Public, apart: Public, test: Public, seed: int) -> dict[str, float]:
    """Train a U-Net of the decoder's size on the public masks, and on nothing else."""
    plan = UNet(shape=(1, SIZE, SIZE), widths=WIDTHS)
    student = MaskStudent(plan, training=Training(**LEARNING), threshold=apart, device="cpu", seed=seed)
    return score(student.fit(public, Answers.exact(np.asarray(public.targets))).predict(test.inputs), test)


def by_votes(counts: np.ndarray, labels: np.ndarray, test: Public, epsilon: float, rng: np.random.Generator) -> dict[str, float]:
    """Paint the noisy winner of every scene."""
    mechanism: Any = Aggregation("gnmax").built(Budget(epsilon, DELTA), QUESTIONS, TEACHERS, VOTES.bound)[0]
    winner = (counts + mechanism.sigma * rng.standard_normal(counts.shape)).argmax(axis=1)
    return score(labels == winner[:, None, None], test)


def measured(masks: int, seed: int, say: Callable[[dict[str, Any]], None]) -> None:
    """Measure everything for one number of public masks and one draw of scenes."""
    scenes, rng = Scenes(size=SIZE), np.random.default_rng(seed)
    drawn, test = scenes.public(masks, seed=100 + seed), scenes.public(SCORED, seed=200 + seed)
    public, apart = drawn[: -masks // 5], drawn[-masks // 5 :]
    chosen = {right: voted(test, right, rng) for right in RIGHT}
    key = {"public_masks": masks, "seed": seed}
    say({**key, "way": "nothing", **score(np.zeros((SCORED, SIZE, SIZE)), test)})
    say({**key, "way": "u-net, public masks alone", **alone(public, apart, test, seed)})
    for epsilon, right in itertools.product(EPSILONS, RIGHT):
        told = {**key, "epsilon": epsilon, "right": right}
        say({**told, "way": "votes for a region", **by_votes(*chosen[right], test, epsilon, rng)})
    for epsilon, (name, make) in itertools.product(EPSILONS, INNER.items()):
        inner = make(public, epsilon)
        noise = deviation(epsilon, inner.bound)
        guided = Guided.fit(inner, public, noise=noise, widths=WIDTHS, device="cpu", seed=seed, **LEARNING)
        for way, codec in ((name, inner), (f"guided {name}", guided)):
            cut = best_threshold(_heard(codec, apart, noise, rng), apart)
            for right, (counts, labels) in chosen.items():
                codes = means(codec, counts, labels)
                answers = codec.decode(codes + noise * rng.standard_normal(codes.shape), test.inputs)
                found = {"dimension": codec.bound.dimension, "noise": noise, "threshold": cut, **score(answers, test, cut)}
                say({**key, "epsilon": epsilon, "right": right, "way": way, **found})


def _heard(codec: Any, apart: Public, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Send public masks that nothing was fitted on through codec and noise, in [0, 1]."""
    return np.clip(heard(codec, np.asarray(apart.targets, dtype=np.float32), apart.inputs, noise=noise, rng=rng), 0, 1)


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average over draws of scenes."""
    names = ("public_masks", "way", "epsilon", "right")
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(name) for name in names), []).append(row)
    kept = []
    for key, same in found.items():
        told = {name: value for name, value in zip(names, key, strict=True) if value is not None}
        averages = {name: round(float(np.mean([row[name] for row in same])), 3) for name in ("dice", "dice_of_objects")}
        kept.append({**told, **averages, "draws": len(same)})
    return kept


def main() -> None:
    """Measure, print rows as they come, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="draws of scenes")
    given, rows, start = parser.parse_args(), [], time.perf_counter()
    torch.set_num_threads(1)

    def say(row: dict[str, Any]) -> None:
        rows.append({name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()})
        print(f"{time.perf_counter() - start:6.0f} s", rows[-1], flush=True)

    for seed, masks in itertools.product(range(given.seeds), MASKS):
        measured(masks, seed, say)
    setting = {"size": SIZE, "teachers": TEACHERS, "questions": QUESTIONS, "delta": DELTA, "scored": SCORED, "widths": WIDTHS}
    setting |= {name: value for name, value in LEARNING.items() if name != "augmentation"} | {
        "augmentation": "scenes, shifts of 4"
    }
    seconds = round(time.perf_counter() - start)
    result.write("guided", {"setting": setting, "seconds": seconds, "table": table(rows), "rows": rows})


if __name__ == "__main__":
    main()
