"""Measure the classifier without a public pool through the library's own walk: curator, exact sums and noise, ledger, verify.

Settings follow from the rule of `LinearRounds` alone. Its constants were derived on held-out training images of MNIST and
Fashion-MNIST (taper.py), never on test images, and CIFAR-10 had no part. Unit: a record; adjacency: replace one; δ = 1e-5.

python benchmarks/nopool.py --data FOLDER --name mnist [--epsilon 0.5 1 3] [--units-per-axis 80] [--mirror]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import result
import tutelage as tt
from tutelage.data.idx import read_digits


def read(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read idx files, or CIFAR-10's binary ones: training images and labels, test images and labels."""
    if (folder / "test_batch.bin").exists():
        parts = []
        for names in ([f"data_batch_{number}" for number in range(1, 6)], ["test_batch"]):
            raw = np.concatenate([np.fromfile(folder / f"{name}.bin", np.uint8).reshape(-1, 3073) for name in names])
            parts += [raw[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255, raw[:, 0].astype(np.int64)]
        return parts[0], parts[1], parts[2], parts[3]
    train, test = (
        read_digits(folder / f"{part}-images-idx3-ubyte.gz", folder / f"{part}-labels-idx1-ubyte.gz")
        for part in ("train", "t10k")
    )
    return train.inputs, train.targets, test.inputs, test.targets


def row(data: Any, epsilon: float, student: Any, out: Path) -> dict[str, Any]:
    """Learn at one budget, and verify the release."""
    x, y, xt, yt = data
    begun, used = time.perf_counter(), time.process_time()
    found = tt.classify(
        tt.Private.of(x, y), classes=10, budget=tt.Budget(epsilon, 1e-5), out=out, student=student, test=tt.Public.of(xt, yt),
        tuned_on="held-out training images of MNIST and Fashion-MNIST",
    )  # fmt: skip
    took, worked = time.perf_counter() - begun, time.process_time() - used
    verdict = tt.verify(out)
    axes, half = student.ruled(units=len(x), mu=tt.Budget(epsilon, 1e-5).mu, shape=tuple(x.shape[1:]))
    return {
        "epsilon": epsilon, "epsilon recomputed by verify": round(verdict.recomputed_epsilon, 6), "axes": axes,
        "axis that counts half": round(half, 1), "rounds": student.rounds, "clip": student.clip,
        "accuracy": round(100 * found.scores["private student"], 2), "seconds": round(took, 1), "core seconds": round(worked, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 3.0])
    parser.add_argument("--units-per-axis", type=float, default=80.0)
    parser.add_argument("--mirror", action="store_true", help="declare that a mirror image is of the same class")
    given = parser.parse_args()
    data = read(given.data)
    student = tt.LinearRounds(features=tt.Scattering(mirror=given.mirror), units_per_axis=given.units_per_axis)
    with tempfile.TemporaryDirectory() as place:
        rows = []
        for epsilon in given.epsilon:
            rows.append(row(data, epsilon, student, Path(place) / f"{epsilon:g}"))
            print(rows[-1], flush=True)
    about = {"mirror": given.mirror, "units per axis": given.units_per_axis, "threads": torch.get_num_threads(), "rows": rows}
    result.write(f"nopool.{given.name}", about)


if __name__ == "__main__":
    main()
