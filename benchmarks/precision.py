"""What bfloat16 gains a CPU that has instructions for it: a teacher's step against the same one in float32, and its Dice.

python benchmarks/precision.py                     the steps of three networks, on one core
python benchmarks/precision.py --data DIR          and teachers of a patient each, scored on test patients of split 0

DIR holds the Decathlon's hippocampi, as for hippocampus.py. Same patients, batches, warps and first weights both ways.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hippocampus
import result
from tutelage.metrics import dice
from tutelage.nets.inputs import narrow
from tutelage.nets.networks import ConvNet
from tutelage.nets.training import Training, train_one
from tutelage.nets.unet import UNet
from tutelage.nets.warps import SCENES, VOLUMES
from tutelage.privacy.units import Roster
from tutelage.teachers.segmenter import Segmenter

STEPS = 8
WAYS = ("float32", "bfloat16")
NETWORKS = {
    "U-Net, 1×32×48×32, batch 2": (UNet(shape=(1, 32, 48, 32)), Training(batch=2, augmentation=VOLUMES)),
    "U-Net, 1×64×64, batch 8": (UNet(shape=(1, 64, 64)), Training(batch=8, augmentation=SCENES)),
    "ConvNet, 1×28×28, batch 32": (ConvNet(shape=(1, 28, 28), classes=10), Training(batch=32)),
}


def milliseconds(factory: Any, training: Training) -> float:
    """Time a step of one teacher; the first call pays for memory and kernels, and building a network is taken off."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(8, *factory.shape, generator=generator)
    targets = torch.arange(8) % 10 if isinstance(factory, ConvNet) else (inputs[:, 0] > 1).to(torch.uint8)
    took = {}
    for steps in (2, 2, 2 + STEPS):
        begin = time.perf_counter()
        given = {"training": replace(training, steps=steps), "seed": 0, "teacher": 0}
        train_one(factory, inputs, targets, **given, tick=lambda _: None)
        took[steps] = time.perf_counter() - begin
    return 1e3 * (took[2 + STEPS] - took[2]) / STEPS


def scores(data: Path, count: int) -> dict[str, list[float]]:
    """Train some patients' teachers both ways, and score each by itself."""
    private, _, test = hippocampus.divided(hippocampus.read(data), 0)
    roster = Roster.of(np.unique(private.units)[:count])
    patients = replace(private[roster.find(private.units) >= 0], roster=roster)
    found = {}
    for way in WAYS:
        how = replace(hippocampus.training(300, 3e-3, batch=2, augmentation=VOLUMES), precision=way)
        teachers = Segmenter(UNet(shape=(1, *hippocampus.SIZE)), training=how, engine="processes", device="cpu", seed=0)
        votes = teachers.fit(patients, patients.split(count, seed=0)).vote(test.inputs)
        looked = hippocampus.Opened.look(votes.map(lambda masks: np.stack([dice(mask, test.targets).mean() for mask in masks])))
        found[way] = [round(score, 4) for score in looked]
    return found


def main() -> None:
    """Measure both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--patients", type=int, default=8)
    how = parser.parse_args()
    if not narrow(torch.device("cpu")):
        parser.error("this processor has no instructions for bfloat16: there is nothing to compare")
    torch.set_num_threads(1)
    rows = []
    for name, (factory, training) in NETWORKS.items():
        took = {way: milliseconds(factory, replace(training, precision=way)) for way in WAYS}
        rows.append(
            {"network": name, **{way: round(ms, 1) for way, ms in took.items()}, "gain": round(took[WAYS[0]] / took[WAYS[1]], 2)}
        )
        print(rows[-1], flush=True)
    figures: dict[str, Any] = {"milliseconds a step": rows}
    if how.data:
        figures["dice of one teacher"] = found = scores(how.data, how.patients)
        figures["mean dice"] = {way: round(float(np.mean(one)), 4) for way, one in found.items()}
        print(figures["mean dice"])
    result.write("precision", figures)


if __name__ == "__main__":
    main()
