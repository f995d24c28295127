"""Measure generated images on a processor through the library's own walk: from images to a verified release and its worth.

A small CNN is trained on generated images and their labels alone, for a fixed number of steps, and tested on real test images.
The ledger, exact sums, the generator's fit and the judge are all in the time. Unit: a record; adjacency: replace one; δ = 1e-5.

python benchmarks/images.py --data FOLDER --name mnist [--epsilon 1]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import result
import tutelage as tt
from nopool import read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--plain", action="store_true", help="one grouped release alone: classes as labels")
    given = parser.parse_args()
    x, y, xt, yt = read(given.data)
    how = tt.OneShot(sums=1.0, labels=0.0) if given.plain else tt.OneShot()
    rows: list[dict[str, Any]] = []
    for epsilon in given.epsilon:
        with tempfile.TemporaryDirectory() as place:
            begun, used, stages = time.perf_counter(), time.process_time(), {}

            def say(what: str, done: int, total: int, begun: float = begun, stages: Any = stages) -> None:
                stages[what] = round(time.perf_counter() - begun, 1)

            made = tt.generate(
                tt.Private.of(x, y), classes=10, budget=tt.Budget(epsilon, 1e-5), out=Path(place) / "run", how=how, device="cpu",
                test=tt.Public.of(xt, yt), tuned_on="part of MNIST's training images", progress=say,
            )  # fmt: skip
            scores = {name: round(100 * score, 2) for name, score in made.scores.items()}
            row = {"epsilon": epsilon, "scores": scores,
                   "seconds": round(time.perf_counter() - begun, 1), "core seconds": round(time.process_time() - used, 1),
                   "ended after": stages, "epsilon verified": tt.verify(Path(place) / "run").recomputed_epsilon}  # fmt: skip
        print(row, flush=True)
        rows.append(row)
    name = f"images.{given.name}{'.plain' if given.plain else ''}"
    result.write(name, {"threads": torch.get_num_threads(), "settings": how.plain(), "rows": rows})


if __name__ == "__main__":
    main()
