"""Measure chest X-rays (PneumoniaMNIST): generated images, a direct private classifier and a tuned real-data baseline.

Balanced accuracy on the official test part. The steps and distortions of the baseline are chosen on the validation part without
privacy; private settings are the library's defaults and were not chosen on X-rays. Unit: a record; replace one; δ = 1e-5.

python benchmarks/pneumonia.py --data pneumoniamnist.npz [--epsilon 10]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import result
import tutelage as tt
from tutelage.nets import judges

NAMES = ("normal", "pneumonia")
SEEDS = 3


def predicted(x: np.ndarray, labels: np.ndarray, real: np.ndarray, steps: int, warp: float, seed: int) -> np.ndarray:
    """Train a small CNN on images and labels, or shares, and give its answers on real images."""
    network = judges.train_judge(
        judges.small_cnn((1, 28, 28), 2),
        torch.as_tensor(x),
        torch.as_tensor(labels),
        steps=steps,
        batch=128,
        warp=warp,
        random_state=seed,
    )
    return judges.logits_of(network, torch.as_tensor(real)).argmax(1).numpy()


def balanced(x: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Draw as many of one class as of the other: indices."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.choice(np.flatnonzero(y == one), len(y) // 2) for one in (0, 1)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, default=10.0)
    given = parser.parse_args()
    with np.load(given.data) as file:
        parts = {name: (file[f"{name}_images"].astype(np.float32)[:, None] / 255, file[f"{name}_labels"][:, 0].astype(np.int64))
                 for name in ("train", "val", "test")}  # fmt: skip
    (x, y), (xv, yv), (xt, yt) = parts["train"], parts["val"], parts["test"]

    def score(answers: np.ndarray, truth: np.ndarray = yt) -> float:
        return round(100 * judges.balanced_accuracy(answers, truth), 2)

    def spread(values: list[float]) -> dict[str, Any]:
        return {"mean": round(float(np.mean(values)), 2), "of seeds": values}

    tried = {}
    for steps in (300, 900):
        for warp in (0.0, 0.5):
            chosen = balanced(x, y, 0)
            tried[steps, warp] = score(predicted(x[chosen], y[chosen], xv, steps, warp, 0), yv)
    steps, warp = max(tried, key=lambda one: tried[one])
    real = [score(predicted(x[some], y[some], xt, steps, warp, seed)) for seed in range(SEEDS) for some in [balanced(x, y, seed)]]
    figures: dict[str, Any] = {"epsilon": given.epsilon, "real images, tuned": spread(real),
                               "real images, tried on validation": {str(one): value for one, value in tried.items()}}  # fmt: skip
    print(figures, flush=True)
    budget, private, test = tt.Budget(given.epsilon, 1e-5), tt.Private.of(x, y), tt.Public.of(xt, yt)
    with tempfile.TemporaryDirectory() as place:
        direct = tt.classify(private, classes=NAMES, budget=budget, out=Path(place) / "direct", test=test)
        figures["private classifier without a pool"] = score(direct.predict(xt))
        print(figures, flush=True)
        made = tt.generate(private, classes=NAMES, budget=budget, out=Path(place) / "images", device="cpu")
        drawn, shares = made.labelled(8000)
        images = [score(predicted(drawn, shares, xt, 900, 0.3, seed)) for seed in range(SEEDS)]
        drawn, classes = made.sample(8000)
        figures["generated images, labeller's labels"] = spread(images)
        figures["generated images, their classes"] = spread(
            [score(predicted(drawn, classes, xt, 900, 0.3, seed)) for seed in range(SEEDS)]
        )
        figures["labeller of the generator"] = score(made.labeller.predict(xt))
        figures["epsilon verified"] = [tt.verify(Path(place) / name).recomputed_epsilon for name in ("direct", "images")]
    print(figures, flush=True)
    result.write("pneumonia", figures)


if __name__ == "__main__":
    main()
