"""The private frontier of a data set: the student's accuracy over ε, from scratch and with features of the public pool.

The teachers of a mode are trained once; for every ε the noise stays at a quarter of the teachers and the number of answers
follows from the budget, so that answers stay as right as the teachers are and only become more.

    python benchmarks/frontier.py --set cifar-10 --data DIR --device cuda
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np

import result
from tutelage.codecs.votes import Votes
from tutelage.data import load
from tutelage.nets.augmentation import CLOTHES, COLOUR, Augmentation
from tutelage.nets.contrastive import Contrast, learn_features
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training
from tutelage.planning import Aggregation
from tutelage.privacy import accounting
from tutelage.privacy.ledger import Budget
from tutelage.students.consistency import Consistency, ConsistencyStudent
from tutelage.tasks.table import read_controls
from tutelage.teachers.classifier import Classifier
from tutelage.transfer import transfer

DELTA, SHARE = 1e-5, 0.25
MODES = ("scratch", "features")


def settings(name: str, steps: int) -> tuple[Augmentation, Consistency]:
    """Choose what keeps the label: clothes are grey and small, photographs have colours and edges that mirror."""
    colour = name.startswith("cifar")
    padding: Any = "reflection" if colour else "zeros"
    strong = Augmentation(flip=True, shift=4, rotation=10, scale=0.1, cutout=12, brightness=0.3 * colour, padding=padding)
    weak = Augmentation(flip=True, shift=2 if colour else 1, padding=padding)
    labelled = COLOUR if colour else CLOTHES
    return labelled, Consistency(steps=steps, flip_rate=0.2, labelled=labelled, weak=weak, strong=strong)


def mode(arguments: argparse.Namespace, figures: dict[str, Any], *, features: bool, folder: Path) -> None:
    """Train one mode's teachers and a student for every ε, and write after each: a run that is stopped has shown something."""
    study = load(arguments.set, arguments.data, split="half")
    labelled, how = settings(arguments.set, arguments.student_steps)
    shape = (3, 32, 32) if arguments.set.startswith("cifar") else (1, 28, 28)
    network: Any = ConvNet(shape=shape, classes=study.classes, widths=(32, 64, 128), hidden=128)
    begin = time.perf_counter()
    if features:
        how_seen = Contrast(steps=arguments.feature_steps, distortion=dataclasses.replace(how.strong, shift=4))
        network = learn_features(network, study.public.inputs, settings=how_seen, device=arguments.device)
    learned = time.perf_counter() - begin
    here = figures["features" if features else "scratch"] = {"seconds_features": learned, "students": []}
    for epsilon in arguments.epsilons:
        sigma = SHARE * arguments.teachers
        queries = min(len(study.public), int((float(accounting.epsilon_mu(epsilon, DELTA)) * sigma) ** 2 / 2))
        teachers = Classifier(
            network,
            training=Training(steps=arguments.steps, augmentation=labelled),
            device=arguments.device,
            checkpoint=folder / f"private/{features}",
        )
        begin = time.perf_counter()
        outcome = transfer(
            study.private,
            study.public,
            teachers=teachers,
            student=lambda: ConsistencyStudent(network, settings=how, classes=study.classes, device=arguments.device),
            codec=Votes(study.classes),
            budget=Budget(epsilon, DELTA),
            shards=arguments.teachers,
            queries=queries,
            aggregation=Aggregation(sigma=sigma),
            test=study.test,
            controls=epsilon == arguments.epsilons[0],
            benchmark=True,
            out=folder / f"{features}-{epsilon:g}",
        )
        raw = float(np.load(outcome.folder.private / "data_dependent_epsilon.npy"))
        row = {"epsilon": outcome.guarantee["epsilon"], "queries": queries, "raw_epsilon": raw, "sigma": sigma}
        row |= {"seconds": time.perf_counter() - begin} | outcome.scores | read_controls(outcome.folder)
        here["students"].append(row)
        print(json.dumps({"features": features, **row}), flush=True)
        result.write(f"frontier.{arguments.set}", figures)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", default="cifar-10")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--teachers", type=int, default=100)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--student-steps", type=int, default=4000)
    parser.add_argument("--feature-steps", type=int, default=3000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[8.0, 4.0, 2.0, 1.0])
    parser.add_argument("--modes", choices=MODES, nargs="+", default=MODES, help="another one is kept as it was measured before")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"set": arguments.set, "teachers": arguments.teachers, "delta": DELTA}
    before = result.RESULTS / f"frontier.{arguments.set}.json"
    if before.exists():
        kept = json.loads(before.read_text(encoding="utf-8"))["figures"]
        figures |= {name: kept[name] for name in MODES if name in kept and name not in arguments.modes}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.modes:
            mode(arguments, figures, features=name == "features", folder=Path(folder))


if __name__ == "__main__":
    main()
