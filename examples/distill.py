"""Distil a thousand private digits into a hundred images, and train a network on these alone. Under three minutes of one core."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for pictures this small a second thread waits more than it works

import numpy as np

import tutelage as tt
from tutelage.data.digits import digits
from tutelage.report.page import pages


def main(out: Path = Path("runs/distilled-digits")) -> None:
    """Make the set, and print what it is worth and what it cost."""
    private, pool, rest = digits()
    test = tt.Public.of(np.concatenate([pool.inputs, rest.inputs]), np.concatenate([pool.targets, rest.targets]))
    run = tt.distill(
        private,
        classes=10,
        budget=tt.Budget(epsilon=10, delta=1e-5),  # a thousand records are few: at ε = 1 there is little but noise
        out=out,
        ipc=10,
        test=test,
        tuned_on="these digits",
        pages=pages,
    )
    for name, accuracy in run.scores.items():
        print(f"{name}: {accuracy:.1%}")
    print(run.set, f"in {out}/release: distilled.png shows it")
    print(run.guarantee["statement"])
    print(f"verified by another accountant: ε = {tt.verify(out).recomputed_epsilon:.4g}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
