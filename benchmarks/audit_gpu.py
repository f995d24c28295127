"""Train 16 and 64 shadow models at once on a GPU, attack each with the help of the others (LiRA), and time the loop beside it.

Every model learns from its own half of the same images, each image from half of the models, as in the LiRA authors' demo; their
network (WRN28-2, 100 epochs) is replaced by this package's small residual network and stacked trainer. CIFAR-10's files, in
either published form, are read where `--set cifar-10`; MNIST's idx files otherwise; `--set noise` has CIFAR-10's shape and is
for speed alone. Scores come from an image as it is and mirrored (CIFAR-10), in float64 from float32 logits.

    python benchmarks/audit_gpu.py --set mnist --data DIR --device cuda
    python benchmarks/audit_gpu.py --set cifar-10 --data DIR --device cuda --steps 4000 --batch 128
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
import torch

import result
from tutelage.audits import lira, scores
from tutelage.audits.bounds import two_sample
from tutelage.audits.roc import Roc
from tutelage.data.cifar import read_cifar
from tutelage.data.idx import read_idx
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.networks import ConvNet, ResidualNet
from tutelage.nets.training import Training
from tutelage.teachers.ensemble import Ensemble

SETS = ("mnist", "cifar-10", "noise")
#: What the LiRA authors' demo prints for CIFAR-10 with 16 models of about 91 %: online, fixed variance.
PUBLISHED = {"auc": 0.6856, "tpr_at_0.001": 0.0593}
COLOUR = Augmentation(shift=4.0, flip=True, padding="reflection")


def images(name: str, folder: Path | None, count: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Read the records that shadow models share, and others for their accuracy."""
    if name == "noise":
        rng = np.random.default_rng(0)
        pixels, labels = rng.integers(0, 256, (count + 1000, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, count + 1000)
        return (pixels[:count], labels[:count]), (pixels[count:], labels[count:])
    assert folder is not None, "--data must be the folder with the files"
    if name == "mnist":
        place = folder / "mnist" if (folder / "mnist").is_dir() else folder
        parts = []
        for part in ("train", "t10k"):
            given = [place / f"{part}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
            parts.append((read_idx(given[0], dims=3), read_idx(given[1], dims=1).astype(np.int64)))
        train, test = parts
    else:
        found = [sorted(folder.rglob(f"{part}*")) for part in ("data_batch", "test_batch")]
        read = [read_cifar([path for path in paths if path.suffix in ("", ".bin")], classes=10) for paths in found]
        train, test = ((np.asarray(one.inputs), np.asarray(one.targets)) for one in read)
    order = np.random.default_rng(0).permutation(len(train[0]))[:count]
    return (train[0][order], train[1][order]), test


def trained(arguments: argparse.Namespace, data: Any, rows: list[np.ndarray], engine: str) -> tuple[Ensemble, float]:
    """Train one model per list of rows, and say how long it took."""
    factory: Any = ConvNet() if arguments.set == "mnist" else ResidualNet(shape=(3, 32, 32), widths=tuple(arguments.widths))
    training = Training(steps=arguments.steps, batch=arguments.batch, augmentation=None)
    if arguments.set == "cifar-10":
        training = replace(training, augmentation=COLOUR)
    if arguments.device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    made = Ensemble.fit(factory, *data, rows, training=training, seed=arguments.seed, device=arguments.device, engine=engine)
    if arguments.device == "cuda":
        torch.cuda.synchronize()
    return made, time.perf_counter() - began


def asked(models: Ensemble, inputs: np.ndarray, *, mirrored: bool) -> list[np.ndarray]:
    """Give every model's class probabilities, (models, records, classes) in float64, one array per query."""
    queries = [inputs, inputs[..., ::-1].copy()] if mirrored else [inputs]
    found = []
    for query in queries:
        said = np.empty((len(models), len(query), 10), dtype=np.float64)
        for some, part, logits in models.stream(query, 64, 512, half=False):
            said[some, part] = logits.double().softmax(dim=2).cpu().numpy()
        found.append(said)
    return found


def attack(said: list[np.ndarray], labels: np.ndarray, inside: np.ndarray, count: int) -> dict[str, Any]:
    """Attack the first `count` models, each with the others' help, and pool all scores."""
    logits = np.stack([np.stack([scores.logit(one, labels) for one in query[:count]]) for query in said], axis=-1)
    within, figures = inside[:count], {}
    ways = {
        "LiRA": {},
        "LiRA, fixed variance": {"fixed": True},
        "LiRA, offline, fixed variance": {"mode": "offline", "fixed": True},
    }
    found = {name: lira.leave_one_out(logits, within, **way) for name, way in ways.items()}
    found["loss"] = logits.mean(axis=-1)
    for name, given in found.items():
        roc = Roc.of(given[within], given[~within])
        bounds = two_sample(given[within], given[~within], 1e-5)
        each = [Roc.of(row[kept], row[~kept]) for row, kept in zip(given, within, strict=True)]
        spread = {"auc_per_target": [min(one.auc for one in each), max(one.auc for one in each)]}
        low = [one.at(1e-3).tpr for one in each]
        spread |= {"tpr_at_0.001_per_target": None if None in low else [min(low), max(low)]}  # type: ignore[type-var]
        figures[name] = {**roc.document(), **spread, "bounds": {one.method: one.epsilon for one in bounds}}
        print(count, name, f"AUC {roc.auc:.4f}", *(f"TPR {roc.at(rate)}" for rate in (1e-3, 1e-2)), flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--set", choices=SETS, default="mnist")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--loop", type=int, default=2, help="models that are trained one after the other, for the ratio")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default=None)
    arguments = parser.parse_args()
    (inputs, labels), test = images(arguments.set, arguments.data, arguments.records)
    rng = np.random.default_rng(arguments.seed)
    # In pairs, one with an image and one without: the first 16 are balanced as all are.
    coins = rng.random((arguments.models // 2, len(inputs))) < 0.5
    inside = np.stack([coins, ~coins], axis=1).reshape(arguments.models, -1)
    rows = [np.flatnonzero(one) for one in inside]
    models, seconds = trained(arguments, (inputs, labels), rows, "stacked" if arguments.device == "cuda" else "auto")
    print(f"{arguments.models} models at once: {seconds:.1f} s", flush=True)
    trained(arguments, (inputs, labels), rows[:1], "sequential")  # warm
    _, alone = trained(arguments, (inputs, labels), rows[: arguments.loop], "sequential")
    ratio = alone / arguments.loop * arguments.models / seconds
    print(f"one after the other {alone / arguments.loop:.1f} s each: {ratio:.1f} times as long", flush=True)
    figures: dict[str, Any] = {name: getattr(arguments, name) for name in ("set", "models", "steps", "batch")}
    figures |= {"records": len(inputs), "seconds_at_once": seconds, "seconds_each_in_a_loop": alone / arguments.loop}
    figures |= {"speedup": ratio, "published": PUBLISHED}
    if arguments.set != "noise":
        votes = models.predict(test[0])
        figures["test_accuracy"] = [float(one) for one in np.mean(votes == test[1], axis=1)[[0, -1]]]
        print("accuracy", float(np.mean(votes == test[1])), flush=True)
        figures["test_accuracy_mean"] = float(np.mean(votes == test[1]))
        said = asked(models, inputs, mirrored=arguments.set == "cifar-10")
        for count in sorted({min(16, arguments.models), arguments.models}):
            figures[f"{count} models"] = attack(said, labels, inside, count)
    result.write(arguments.name or f"audit_gpu.{arguments.set}", figures)


if __name__ == "__main__":
    main()
