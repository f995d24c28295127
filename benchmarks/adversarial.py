"""Why is the papers' GAN student below print on MNIST? It learns from the answers that the papers' own student got.

100 answers: the labels of Papernot et al. 2017 for the digits that their student was told. 1,000 answers: the first digits of the
pool, drawn by our LNMax from the votes of their 250 teachers with their noise, Lap(20); these are kept in a file, because noise
has no seed and every setting should hear the same. The pool is test[:9000]. Settings are compared by the pool's own labels;
test[9000:] stands beside and chooses nothing. Weights are of free lengths, as ours are, or of fixed ones, begun as the authors'
code begins them.

    python benchmarks/adversarial.py --data DIR --votes DIR --steps 6000                                ours, rows appended
    python benchmarks/adversarial.py --data DIR --votes DIR --steps 6000 --lengths fixed --rate 3e-3    as the authors
    python benchmarks/adversarial.py --data DIR --votes DIR --steps 2500 --answers 1000
    python benchmarks/adversarial.py --collect FILE ...                                                 rows, into the result
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

import result
from tutelage.codecs.votes import Votes
from tutelage.data import load
from tutelage.nets.inputs import pick_device
from tutelage.nets.networks import Factory, Perceptron
from tutelage.privacy.mechanisms import LNMax
from tutelage.privacy.sealed import Sealed
from tutelage.students.adversarial import AdversarialStudent
from tutelage.students.norms import begin, levelled, one_norm
from tutelage.students.perceptrons import Perceptrons, Shake
from tutelage.students.players import Discriminator, Players

GAMMA = 1 / 20
NAMES = ("answers", "steps", "lengths", "rate", "average", "note")  # of a setting; rows of other code carry a note


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Build perceptrons as the authors' code does: 500 inputs set the lengths of weights, and only the last layer's are free."""

    rate: float = 3e-3
    average: float = 0.9999
    usual: Perceptrons = field(default_factory=Perceptrons)

    def factory(self, shape: tuple[int, ...], classes: int) -> Perceptron:
        """Name the network that is published."""
        return self.usual.factory(shape, classes)

    def players(self, factory: Factory, shape: tuple[int, ...], some: Tensor, latent: Tensor) -> Players:
        """Build both for inputs of this shape."""
        network, parts, size = factory().to(some.device), [], latent.shape[1]
        for index, layer in enumerate(network):
            if isinstance(layer, nn.Linear):
                noise = self.usual.hidden_noise if index > 1 else self.usual.input_noise
                parts += [Shake(noise), one_norm(layer, 0.1, free=index + 1 == len(network))]
            else:
                parts.append(layer)
        begin(parts, some, last=1.0)
        critic = Discriminator(nn.Sequential(*parts[:-2]), nn.Sequential(*parts[-2:])).train()
        layers: list[nn.Module] = []
        for width in self.usual.generator:
            layers += [nn.Linear(size, width, bias=False), levelled(nn.BatchNorm1d(width)), nn.Softplus()]
            nn.init.xavier_uniform_(layers[-3].weight)
            size = width
        layers += [one_norm(nn.Linear(size, int(np.prod(shape))), 0.05, free=True), nn.Sigmoid(), nn.Unflatten(1, shape)]
        return Players(network, critic, nn.Sequential(*layers).to(some.device).train(), F.mse_loss)


@dataclass(frozen=True)
class Tried:
    """Stand for `Adversarial` with players that no recipe can name."""

    steps: int
    players: Perceptrons | Fixed
    batch: int = 100
    latent: int = 100


def told(votes: Path) -> np.ndarray:
    """Give the 100 labels that the paper's student got: (9000,), -1 where it was told nothing."""
    indices = np.load(votes / "mnist_250_teachers_100_indices_used_by_student.npy")
    labels = np.full(9000, -1)
    labels[indices] = np.load(votes / "mnist_250_student_labels_lap_20.npy")[indices]
    return labels


def drawn(votes: Path, count: int, kept: Path) -> np.ndarray:
    """Give answers about the first digits of the pool, through LNMax: (9000,), -1 where nothing was asked."""
    if not kept.exists():
        counts = np.load(votes / "mnist_250_teachers.npy")[:count].astype(int)  # (queries, classes)
        names = np.stack([np.repeat(np.arange(10), row) for row in counts], axis=1)  # (teachers, queries)
        np.save(kept, LNMax(10, gamma=GAMMA).contribute(Sealed(names).map(Votes(10).encode)))
    labels = np.full(9000, -1)
    labels[:count] = np.load(kept)
    return labels


def judged(parts: Any, labels: np.ndarray, seed: int, how: argparse.Namespace) -> dict[str, Any]:
    """Learn, and name the pool and the last 1,000 digits."""
    given = {name: value for name in ("rate", "average") if (value := getattr(how, name)) is not None}
    kind = {"free": Perceptrons, "fixed": Fixed}[how.lengths](**given)
    start, busy = time.perf_counter(), time.process_time()
    student = AdversarialStudent(settings=Tried(how.steps, kind), classes=10, device=how.device, seed=seed)
    student.fit(parts.public.unlabelled(), labels)
    names, truth, asked = student.predict(parts.public.inputs), np.asarray(parts.public.targets), labels >= 0
    pool, test = names == truth, student.predict(parts.test.inputs) == np.asarray(parts.test.targets)
    wrong = Counter(f"{a} called {b}" for a, b in zip(truth[~asked], names[~asked], strict=True) if a != b)
    return {
        "lengths": how.lengths,
        "rate": kind.rate,
        "average": kind.average,
        "steps": how.steps,
        "answers": int(asked.sum()),
        "wrong_answers": int((labels != truth)[asked].sum()),
        "seed": seed,
        "device": str(pick_device(how.device)),
        "pool": float(pool[~asked].mean()),
        "test": float(test.mean()),
        "most_often": dict(wrong.most_common(3)),
        "seconds": round(time.perf_counter() - start),
        "processor_seconds": round(time.process_time() - busy),
    }


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give mean and spread over the seeds, the best on the pool first."""
    kinds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(tuple(row.get(name) for name in NAMES), []).append(row)
    found = []
    for names, some in kinds.items():
        facts = {**dict(zip(NAMES, names, strict=True)), "seeds": len(some)}
        figures = {part: float(np.mean([row[part] for row in some])) for part in ("pool", "test")}
        found.append({**facts, **figures, "pool_lowest": min(row["pool"] for row in some)})
    return sorted(found, key=lambda row: (row["answers"], row["steps"], -row["pool"]))


def main() -> None:
    """Try one setting, or collect what was tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--votes", type=Path, help="folder of the votes that Papernot et al. published")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--lengths", choices=("free", "fixed"), default="free", help="of weights")
    parser.add_argument("--answers", type=int, choices=(100, 1000), default=100)
    parser.add_argument("--drawn", type=Path, default=Path("adversarial.npy"), help="where 1,000 drawn answers are kept")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--average", type=float)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--rows", type=Path, default=Path("adversarial.jsonl"))
    parser.add_argument("--collect", type=Path, nargs="+")
    how = parser.parse_args()
    if not how.collect:
        if how.data is None or how.votes is None:
            parser.error("the following arguments are required: --data, --votes")
        parts = load("mnist", how.data, split="votes")
        labels = told(how.votes) if how.answers == 100 else drawn(how.votes, how.answers, how.drawn)
        for seed in how.seeds:
            result.keep(how.rows, judged(parts, labels, seed, how))
        return
    rows = [json.loads(line) for path in how.collect for line in path.read_text(encoding="utf-8").splitlines()]
    result.write("adversarial", {"gamma": GAMMA, "table": table(rows), "rows": rows})


if __name__ == "__main__":
    main()
