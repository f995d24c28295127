"""Which records of a pool should be asked about, and how many? Asked of the public pool alone: no private, no test digit is used.

Prototypes are chosen among pixels or among what filters of the pool see. At one ε more questions mean more noise on every
answer. Teachers are simulated: most of 250 name the digit that it is, the others agree on a wrong one. Their votes meet the noise
that this many questions at (1, 1e-5) have, and the student learns from the noisy winners. It is judged on the records of the pool
that nobody was asked about. How right real teachers would be on such records is asked of ten that learn from parts of the pool.

    python benchmarks/questions.py --data DIR --device cuda
    python benchmarks/questions.py --data DIR --short                                  a short student, for two CPU cores
    python benchmarks/questions.py --data DIR --seeds 0 --rows FILE --no-surrogates    one seed, its rows as JSON lines
    python benchmarks/questions.py --collect FILE ...                                  rows of runs, into the result
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np

import result
from tutelage.data import load
from tutelage.data.dataset import Public
from tutelage.nets.inputs import pick_device
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training
from tutelage.privacy import accounting
from tutelage.students.consistency import Consistency, ConsistencyStudent
from tutelage.students.questions import Prototypes
from tutelage.students.seen import SeenPrototypes
from tutelage.teachers.ensemble import Ensemble

EPSILON, DELTA = 1.0, 1e-5
TEACHERS, AGREE = 250, 0.98
SURROGATES, SHARD = 10, 240
SHORT = Consistency(steps=700, batch=32, ratio=4, rounds=4, views=1, judged=1)
CHOICES = {"pixels": Prototypes, "seen": SeenPrototypes}


def heard(truth: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, float]:
    """Let simulated teachers vote, and give the noisy winners and the noise of one count.

    This is a simulation of answers about public labels: nothing is released, so the noise may have a seed.
    """
    sigma = float(np.sqrt(2 * len(truth)) / accounting.epsilon_mu(EPSILON, DELTA))
    votes, rows = np.zeros((len(truth), 10)), np.arange(len(truth))
    votes[rows, truth] = round(AGREE * TEACHERS)
    votes[rows, (truth + generator.integers(1, 10, len(truth))) % 10] += TEACHERS - round(AGREE * TEACHERS)
    return (votes + generator.normal(0, sigma, votes.shape)).argmax(axis=1), sigma


def judged(pool: Public, choice: str, questions: int, seed: int, how: argparse.Namespace) -> dict[str, Any]:
    """Ask, learn, and judge on the rest of the pool."""
    begin, truth = time.perf_counter(), np.asarray(pool.targets)
    asked = CHOICES[choice](seed=seed)(pool, questions)
    labels = np.full(len(pool), -1)
    labels[asked], sigma = heard(truth[asked], np.random.default_rng([seed, questions]))
    settings = SHORT if how.short else Consistency(steps=how.steps)
    student = ConsistencyStudent(settings=settings, classes=10, device=how.device, seed=seed)
    names = student.fit(pool.unlabelled(), labels).predict(pool.inputs)
    rest = labels < 0
    wrong = Counter(f"{a} called {b}" for a, b in zip(truth[rest], names[rest], strict=True) if a != b)
    return {
        "choice": choice,
        "questions": questions,
        "steps": settings.steps,
        "device": str(pick_device(how.device)),
        "seed": seed,
        "sigma": round(sigma, 1),
        "wrong_answers": int((labels[asked] != truth[asked]).sum()),
        "pool": float((names[rest] == truth[rest]).mean()),
        "most_often": dict(wrong.most_common(3)),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def surrogates(pool: Public, how: argparse.Namespace) -> list[dict[str, Any]]:
    """Let teachers that learned from the first 2,400 digits of the pool name prototypes among the others."""
    truth, cut = np.asarray(pool.targets), SURROGATES * SHARD
    shards = [np.arange(k * SHARD, (k + 1) * SHARD) for k in range(SURROGATES)]
    network, training = ConvNet(), Training(steps=how.teacher_steps)
    teachers = Ensemble.fit(network, pool.inputs[:cut], truth[:cut], shards, training=training, device=how.device)
    names = np.asarray(teachers.predict(pool.inputs[cut:]))  # (teachers, records)
    counts = np.stack([(names == label).sum(axis=0) for label in range(10)])  # (classes, records)
    plurality = counts.argmax(axis=0)
    chosen = {"every record": np.arange(len(truth) - cut)}
    for choice, kind in CHOICES.items():
        some = np.concatenate([kind(seed=seed)(pool, how.questions[0]) for seed in how.seeds])
        chosen[choice] = some[some >= cut] - cut
    return [
        {
            "surrogates": name,
            "records": len(rows),
            "one_right": float((names[:, rows] == truth[cut:][rows]).mean()),
            "plurality_right": float((plurality[rows] == truth[cut:][rows]).mean()),
            "all_agree": float((counts[:, rows].max(axis=0) == SURROGATES).mean()),
        }
        for name, rows in chosen.items()
    ]


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give mean and deviation over the seeds."""
    kinds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault((row["choice"], row["questions"], row["steps"], row["device"], row["sigma"]), []).append(row)
    found = []
    for (choice, questions, steps, device, sigma), some in sorted(kinds.items()):
        scores = [row["pool"] for row in some]
        wrong = float(np.mean([row["wrong_answers"] for row in some]))
        facts = {"choice": choice, "questions": questions, "steps": steps, "device": device, "sigma": sigma, "seeds": len(some)}
        spread = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
        found.append({**facts, "wrong_answers": wrong, "pool": float(np.mean(scores)), "deviation": spread})
    return found


def main() -> None:
    """Try every choice and number, or collect what was tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--choices", choices=CHOICES, nargs="+", default=list(CHOICES))
    parser.add_argument("--questions", type=int, nargs="+", default=[90])
    parser.add_argument("--steps", type=int, default=6000, help="of the student")
    parser.add_argument("--short", action="store_true", help="a short student in its place")
    parser.add_argument("--teacher-steps", type=int, default=1500)
    parser.add_argument("--no-surrogates", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--rows", type=Path, default=Path("questions.jsonl"))
    parser.add_argument("--collect", type=Path, nargs="+")
    how = parser.parse_args()
    if not how.collect:
        if how.data is None:
            parser.error("the following arguments are required: --data")
        pool = load("mnist", how.data, split="votes").public
        how.rows.unlink(missing_ok=True)
        tried = [(choice, count, seed) for seed in how.seeds for count in how.questions for choice in how.choices]
        for row in (judged(pool, *one, how) for one in tried):
            result.keep(how.rows, row)
        for row in () if how.no_surrogates else surrogates(pool, how):
            result.keep(how.rows, row)
    rows = [json.loads(line) for path in how.collect or [how.rows] for line in path.read_text(encoding="utf-8").splitlines()]
    students, others = ([row for row in rows if ("pool" in row) is own] for own in (True, False))
    figures = {"epsilon": EPSILON, "delta": DELTA, "agree": AGREE, "table": table(students), "surrogates": others}
    result.write("questions", {**figures, "rows": students})


if __name__ == "__main__":
    main()
