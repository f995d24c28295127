"""Hippocampi through wavelets that the sparse vector technique chooses (Fay et al. 2020, Section 2.4), as whole runs.

Patients, pools and test volumes are those of hippocampus.py. True masks stand in for the votes of 130 teachers, who so are all
right and all agree: real ones would have a harder time, and a CPU suffices. What they are asked goes through the real mechanisms,
calibrated as a run's would be: half of the budget's room for which coefficients, half for their values.

    each: every mask chooses coefficients of its own, as published
    coarse: the same number of coarsest coefficients, which no mask chooses; the whole ε buys values

    python benchmarks/sparse.py --data DIR               what is let out, for every number of coefficients, on one pool
    python benchmarks/sparse.py --data DIR --students    and a student of each way's best number there, on every split

Rows of an earlier run are kept, unless they are made again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hippocampus
import result
from tutelage.answers import Answers
from tutelage.data.dataset import Public
from tutelage.features.alignment import aligned
from tutelage.metrics import dice
from tutelage.nets.unet import UNet
from tutelage.planning import Aggregation
from tutelage.privacy.ledger import Budget
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Unit
from tutelage.students.masks import MaskStudent

TEACHERS = 130
WAYS = ("each", "coarse")
NUMBERS = (10, 30, 100, 300)


@dataclass(frozen=True)
class Run:
    """One way of choosing `kept` coefficients, for one budget."""

    way: str
    kept: int
    epsilon: float

    def answered(self, masks: np.ndarray) -> np.ndarray:
        """Let out masks (questions, *shape) of teachers who agree."""
        codec = hippocampus.wavelets(int(np.prod(hippocampus.SIZE)))
        codes = codec.encode(masks[None].astype(np.float32))[0]  # (questions, coefficients)
        budget, coarse = Budget(self.epsilon, hippocampus.DELTA, Unit("patient")), self.way == "coarse"
        how = Aggregation("mean", selection=None if coarse else hippocampus.selection(codec, masks, self.kept))
        mechanism, _ = how.built(budget, len(masks), TEACHERS, codec.bound)
        choice = how.selecting(budget, len(masks), mechanism)
        first = np.broadcast_to(np.arange(codes.shape[1]) < self.kept, codes.shape)
        found = first if choice is None else choice.contribute(agreed(codes))
        return codec.decode(mechanism.contribute(agreed(np.where(found, codes, 0.0))) * found, masks)


def agreed(codes: np.ndarray) -> Sealed:
    """Give every teacher the same ballots."""
    return Sealed(np.broadcast_to(codes, (TEACHERS, *codes.shape)))


def rows(how: argparse.Namespace, before: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Score what is let out on the pool of split 0, and on every split a student of the number that was best there."""
    everyone = hippocampus.read(how.data)
    for split in how.split if how.students else (0,):
        _, public, test = hippocampus.divided(everyone, split)
        laid = aligned(public)
        for epsilon, way in ((epsilon, way) for epsilon in how.epsilons for way in how.ways):
            names = {"split": split, "epsilon": epsilon, "way": way}
            if how.students:
                found = {row["kept"]: row["answers"] for row in before if (row["epsilon"], row["way"]) == (epsilon, way)}
                kept = max(found, key=lambda kept: found[kept])
                yield {**names, "kept": kept, **student(laid, test, Run(way, kept, epsilon), split)}
                continue
            masks = np.asarray(laid.targets)
            for kept in NUMBERS:
                yield {**names, "kept": kept, "answers": scored(Run(way, kept, epsilon).answered(masks), masks)}


def scored(found: np.ndarray, truth: Any) -> float:
    """Give the mean Dice."""
    return round(float(dice(found, truth).mean()), 4)


def student(laid: Public, test: Public, run: Run, split: int) -> dict[str, float]:
    """Train on decoded answers as hippocampus.py does, and score on the test patients."""
    learning = hippocampus.learning(argparse.Namespace(student_steps=400))
    plain = MaskStudent(UNet(shape=(1, *hippocampus.SIZE)), training=learning, seed=split)
    values = run.answered(np.asarray(laid.targets))
    model = plain.fit(laid.unlabelled(), Answers(np.arange(len(values)), values))
    return {"answers": scored(values, laid.targets), "student": scored(model.predict(test.inputs), test.targets)}


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Tell rows apart."""
    return (row["split"], row["epsilon"], row["way"], row["kept"], "student" in row)


def table(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the students' mean and deviation over the splits."""
    kinds: dict[tuple[str, float], list[float]] = {}
    for row in found:
        if "student" in row:
            kinds.setdefault((row["way"], row["epsilon"]), []).append(row["student"])
    return [
        {"way": way, "epsilon": epsilon, "student": round(float(np.mean(scores)), 4), "runs": len(scores)}
        | ({"deviation": round(float(np.std(scores, ddof=1)), 4)} if len(scores) > 1 else {})
        for (way, epsilon), scores in sorted(kinds.items())
    ]


def main() -> None:
    """Run, and write after every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--students", action="store_true")
    how = parser.parse_args()
    path = result.RESULTS / "sparse.json"
    before = json.loads(path.read_text(encoding="utf-8"))["figures"]["rows"] if path.exists() else []
    tried = [row for row in before if row["split"] == 0 and "student" not in row]
    if how.students and not tried:
        parser.error("--students needs a run without it first: that says how many coefficients are best")
    begin, made = time.perf_counter(), {key(row): row for row in before}
    for row in rows(how, tried):
        row = {**row, "seconds": round(time.perf_counter() - begin)}
        made[key(row)] = row
        print(json.dumps(row), flush=True)
        found = list(made.values())
        result.write("sparse", {"teachers": TEACHERS, "delta": hippocampus.DELTA, "table": table(found), "rows": found})


if __name__ == "__main__":
    main()
