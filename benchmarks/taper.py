"""Derive the one constant of `LinearRounds`' rule on training images, 10,000 of them held out: which axis should count half.

Noise is raised for the missing records and drawn by the library's sampler; sums are formed in floats: no release.
No test image is read.

python benchmarks/taper.py --data FOLDER --name mnist [--mirror] [--epsilon 1]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

import result
import tutelage as tt
from nopool import read
from tutelage.features.correction import Descent
from tutelage.privacy.mechanisms import rounded_gaussian

HELD = 10_000


def fitted(seen: np.ndarray, labels: np.ndarray, mu: float, how: Any, effective: float) -> np.ndarray:
    """Descend in noisy rounds; give the weights."""
    hot = np.eye(10, dtype=np.float32)[labels]
    sigma, descent = 2 * how.clip * how.rounds**0.5 / mu, Descent(seen.shape[1], 10, how.rounds)
    for _ in range(how.rounds):
        missing = hot - softmax(seen @ descent.guess.astype(np.float32), axis=1)
        missing *= np.minimum(1, how.clip / np.maximum(np.linalg.norm(missing, axis=1, keepdims=True), 1e-9))
        noise = rounded_gaussian(2.0**20, descent.guess.shape) * (sigma / 2**20)
        descent.follow(how.rate * effective / len(seen) * (seen.T @ missing + noise))
    return descent.weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--mirror", action="store_true")
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    x, y, _, _ = read(given.data)
    order = np.random.default_rng(0).permutation(len(x))
    held, rest = order[:HELD], order[HELD:]
    how = tt.LinearRounds(features=tt.Scattering(mirror=given.mirror))
    mu = tt.Budget(given.epsilon, 1e-5).mu * len(x) / len(rest)
    whole, features, rows = how.whitening(tuple(x.shape[1:]), how.most_axes), how.features(x), []
    for half, axes in ((100, 600), (200, 1200), (400, 1200), (None, 600), (None, 1000)):
        part = type(whole)(whole.centre, whole.axes[:, :axes], whole.spread[:axes])
        counts = np.ones(axes) if half is None else 1 / (1 + np.arange(axes) / half)
        seen = (part if half is None else part.tapered(half))(features)
        weights = fitted(seen[rest], y[rest], mu, how, counts.sum() ** 2 / np.square(counts).sum())
        right = float(np.mean((seen[held] @ weights).argmax(axis=1) == y[held]))
        rows.append({"axis that counts half": half, "axes": axes, "held out": round(100 * right, 2)})
        print(rows[-1], flush=True)
    result.write(f"taper.{given.name}", {"mirror": given.mirror, "epsilon": given.epsilon, "held out": HELD, "rows": rows})


if __name__ == "__main__":
    main()
