"""Which distortions should teachers learn with? Asked of the public pool alone: no private digit and no test digit is read.

Small teachers learn from parts of the pool as large as a private shard (MNIST test[:2400], 240 digits each) and are judged on
the rest of it (test[2400:5000]): how right each is, how right their plurality is, and how many agree with it, which is what
labels cost. Every distortion is left out once; two more are tried: a mirror, which makes other signs of digits, and more of all.

    python benchmarks/augmentation.py --data DIR
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np

import result
from tutelage.data import load
from tutelage.nets.augmentation import DIGITS, Augmentation
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training
from tutelage.teachers.ensemble import Ensemble

SHARD = 240
TRIED: dict[str, Augmentation | None] = {
    "digits": DIGITS,
    "none": None,
    "without elastic bends": replace(DIGITS, elastic=0.0),
    "without rotation and shear": replace(DIGITS, rotation=0.0, shear=0.0),
    "without scale": replace(DIGITS, scale=0.0),
    "without shift": replace(DIGITS, shift=0.0),
    "none left alone": replace(DIGITS, keep=0.0),
    "and cut-out of 8": replace(DIGITS, cutout=8),
    "and mirrored": replace(DIGITS, flip=True),
    "twice as much": replace(DIGITS, rotation=30, scale=0.3, shear=30, shift=4, elastic=2.0),
}


def judged(augmentation: Augmentation | None, pool: Any, how: argparse.Namespace) -> dict[str, float]:
    """Train teachers on the beginning of the pool and let them name its end."""
    begin, cut = time.perf_counter(), how.teachers * SHARD
    shards = [np.arange(k * SHARD, (k + 1) * SHARD) for k in range(how.teachers)]
    training = Training(steps=how.steps, augmentation=augmentation)
    teachers = Ensemble.fit(ConvNet(), pool.inputs[:cut], pool.targets[:cut], shards, training=training, device=how.device)
    names, truth = teachers.predict(pool.inputs[cut:]), pool.targets[cut:]  # (teachers, records)
    counts = np.stack([(names == label).sum(axis=0) for label in range(10)])
    return {
        "teacher": float((names == truth).mean()),
        "deviation": float((names == truth).mean(axis=1).std(ddof=1)),
        "plurality": float((counts.argmax(axis=0) == truth).mean()),
        "agree": float(counts.max(axis=0).mean() / how.teachers),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def main() -> None:
    """Try every distortion, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--teachers", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1500)
    how = parser.parse_args()
    pool = load("mnist", how.data, split="half").public
    figures: dict[str, Any] = {"teachers": how.teachers, "steps": how.steps, "shard": SHARD, "tried": {}}
    for name, augmentation in TRIED.items():
        figures["tried"][name] = judged(augmentation, pool, how)
        print(name, figures["tried"][name], flush=True)
        result.write("augmentation", figures)


if __name__ == "__main__":
    main()
