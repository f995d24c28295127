"""Train K small networks at once against the same networks one after the other.

One run, same network, batch, steps and random streams on both sides. The loop is plain PyTorch (autograd, fused AdamW) in the
faster of float32 and bfloat16. Training is timed twice: with distortions (as teachers are trained) and bare. Seconds of ours
include everything; `steady` leaves out what is paid once, however long the training: measuring, starting workers, compiling.
A loop of hours need not be waited for: with `--loop N` the first N teachers are timed and the others taken to need as long.
On a GPU each training has a process and a compiler's cache of its own, and ours is timed in a second process once more: `again`
is what everything takes on a machine that trained such teachers before.

    python benchmarks/ensemble.py --device cuda --data DIR            DIR holds MNIST's idx files; digits or noise otherwise
    python benchmarks/ensemble.py --device cuda --data DIR --steps 1500 --loop 20       as long as teachers are trained
    python benchmarks/ensemble.py --device cpu --data DIR --teachers 250 --steps 20
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np
import torch

import result
from tutelage.data.idx import read_idx
from tutelage.nets.inputs import as_inputs
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training, train_one, train_stack
from tutelage.teachers.engines import Material
from tutelage.teachers.ensemble import Ensemble

SHARD = 240  # records per teacher: 60,000 over 250
AIMS = {"cuda": 60.0, "cpu": 1.0}


def images(folder: Path | None, count: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Find images: MNIST, else scikit-learn's digits enlarged, else noise; repeated where there are too few."""
    names = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    places = [] if folder is None else [place for place in (folder, folder / "mnist") if (place / names[0]).exists()]
    if places:
        pixels, labels, source = read_idx(places[0] / names[0], dims=3), read_idx(places[0] / names[1], dims=1), "mnist"
    else:
        try:
            from sklearn.datasets import load_digits

            digits = load_digits()
            pixels = np.pad(np.kron(digits.images, np.ones((3, 3))) * 15, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
            labels, source = digits.target, "scikit-learn digits, enlarged"
        except ImportError:
            generator = np.random.default_rng(0)
            pixels = generator.integers(0, 256, (1_000, 28, 28), dtype=np.uint8)
            labels, source = generator.integers(0, 10, 1_000), "noise"
    rows = np.random.default_rng(0).permutation(max(count, len(pixels)))[:count] % len(pixels)
    return pixels[rows], labels[rows].astype(np.int64), source


def wait(device: str) -> float:
    """Let the device finish and read the clock."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def loop(network: ConvNet, training: Training, material: Material, device: str, *, teachers: int) -> float:
    """Time the sequential loop."""
    begin = wait(device)
    for k in range(teachers):
        rows = material.shards[k]
        train_one(
            network, material.inputs[rows], material.targets[rows], training=training, seed=0, teacher=k, tick=lambda _: None
        )
    return wait(device) - begin


def stack(
    training: Training, arguments: argparse.Namespace, data: tuple[np.ndarray, np.ndarray]
) -> tuple[float, list[tuple[float, int]], Ensemble]:
    """Time ours: seconds in all, when how many steps were done, and the teachers."""
    marks: list[tuple[float, int]] = []
    begin = wait(arguments.device)
    trained = Ensemble.fit(
        ConvNet(widths=tuple(arguments.widths)),
        *data,
        [np.arange(k * SHARD, (k + 1) * SHARD) for k in range(arguments.teachers)],
        training=training,
        device=arguments.device,
        engine=arguments.engine,
        progress=lambda done, _: marks.append((wait(arguments.device), done)),
    )
    return wait(arguments.device) - begin, marks, trained


def apart(name: str) -> dict[str, Any]:
    """Compare in a process of its own, and time ours in another one that finds what the first compiled."""
    with tempfile.TemporaryDirectory() as cache:
        found = []
        for part in ("both", "ours"):
            words = [sys.executable, __file__, *sys.argv[1:], "--training", name, "--part", part]
            told = subprocess.run(words, env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache}, check=True, stdout=subprocess.PIPE)
            found.append(json.loads(told.stdout.decode().splitlines()[-1]))
    figures, again = found[0], found[1]["ours_seconds"]
    figures |= {"ours_seconds_again": again, "speedup_again": figures["sequential_seconds"] / again}
    print(name, json.dumps(figures, indent=1), flush=True)
    return figures


def compare(name: str, training: Training, arguments: argparse.Namespace, data: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """Time the loop and ours on one training."""
    device, count, network = arguments.device, arguments.teachers, ConvNet(widths=tuple(arguments.widths))
    shards = [np.arange(k * SHARD, (k + 1) * SHARD) for k in range(count)]
    inputs, targets = as_inputs(data[0]).to(device), torch.from_numpy(data[1]).to(device)
    material = Material(inputs, targets, tuple(torch.from_numpy(shard).to(device) for shard in shards))
    few = min(3, count)
    options = [replace(training, precision=precision) for precision in ("float32", "bfloat16")[: 1 + (device == "cuda")]]
    loop(network, options[-1], material, device, teachers=1)  # pays for the first use of everything
    tried = [loop(network, option, material, device, teachers=few) for option in options]
    fastest = options[int(np.argmin(tried))]
    timed = min(arguments.loop or count, count)
    sequential = loop(network, fastest, material, device, teachers=timed) / timed * count
    figures: dict[str, Any] = {"sequential_seconds": sequential, "sequential_precision": fastest.precision}
    if timed < count:
        figures["sequential_seconds_estimated_from_teachers"] = timed
    if device == "cpu" and torch.get_num_threads() == 1:
        cores = torch.multiprocessing.cpu_count()
        torch.set_num_threads(cores)
        share = loop(network, fastest, material, device, teachers=few) / few * count
        torch.set_num_threads(1)
        figures[f"sequential_seconds_with_{cores}_threads_estimated_from_{few}_teachers"] = share
    ours, marks, trained = stack(training, arguments, data)
    settled = [mark for mark in marks if mark[1] > 0.3 * marks[-1][1]]  # after compiling, and with every worker at work
    steady = (settled[-1][0] - settled[0][0]) / (settled[-1][1] - settled[0][1]) * marks[-1][1]
    figures |= {
        "ours_seconds": ours,
        "ours_seconds_steady": steady,
        "speedup": sequential / ours,
        "speedup_steady": sequential / steady,
        "engine": trained.plan.engine,
        "chunk": trained.plan.chunk,
        "workers": trained.plan.workers,
        "why": trained.plan.reason,
    }
    if device == "cuda":
        figures["gpu_memory_peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    if arguments.variants and device == "cuda":
        for label, compiled, products in (("compiled, grouped convolutions", True, False), ("uncompiled, products", False, True)):
            times: list[float] = []
            train_stack(
                network, inputs, targets, material.shards, training=training, seed=0, teachers=range(count),
                tick=lambda _, times=times: times.append(wait(device)), compiled=compiled, products=products,
            )  # fmt: skip
            steps = training.steps - 16 * (len(times) // 3 + 1)
            figures[f"speedup_steady: {label}"] = sequential / ((times[-1] - times[len(times) // 3]) / steps * training.steps)
    print(name, json.dumps(figures), flush=True)
    return figures


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--loop", type=int, help="teachers of the loop that are timed; all of them without it")
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--variants", action="store_true", help="also time uncompiled and grouped-convolution stacks (CUDA)")
    parser.add_argument("--bare-only", action="store_true", help="leave out the training with distortions")
    parser.add_argument("--training", choices=("bare", "distorted"), help="one of them, as JSON, in this process")
    parser.add_argument("--part", choices=("both", "ours"), default="both", help="with --training")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    pixels, labels, source = images(arguments.data, arguments.teachers * SHARD)
    figures: dict[str, Any] = {"data": source, "teachers": arguments.teachers, "steps": arguments.steps, "batch": arguments.batch}
    figures |= {"aim": AIMS[arguments.device], "torch_threads": torch.get_num_threads()}
    if arguments.device == "cuda":
        figures["gpu"] = torch.cuda.get_device_name()
    full = Training(steps=arguments.steps, batch=arguments.batch)
    trainings = {"bare": replace(full, augmentation=None), "distorted": full}
    if arguments.training:
        training, data = trainings[arguments.training], (pixels, labels)
        ours = {"ours_seconds": stack(training, arguments, data)[0]} if arguments.part == "ours" else None
        print(json.dumps(ours or compare(arguments.training, training, arguments, data)))
        return
    for name, training in trainings.items():
        if name == "bare" or not arguments.bare_only:
            alone = arguments.device == "cpu"
            figures[name] = compare(name, training, arguments, (pixels, labels)) if alone else apart(name)
    result.write(f"ensemble.{arguments.device}", figures)


if __name__ == "__main__":
    main()
