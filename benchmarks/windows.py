"""Teachers of mapped brain volumes that learn through windows: what they hold and how long it takes, read against copied.

*read* is what `Segmenter` does; *copied* cuts all windows out first, as it did before. Each runs in a process of its own, and
both must end in the same weights. Memory is the most that a process held (GiB), and that before it fitted.

python benchmarks/windows.py                         writes results/windows.json; 1.3 GB of disk, minutes on one core
python benchmarks/windows.py --way read --folder DIR one fit in this process, as JSON on stdout
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import result
from parts.memory import peak
from tutelage.data.dataset import Private
from tutelage.data.mapped import forget
from tutelage.nets.masks import windows
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import VOLUMES
from tutelage.teachers.ensemble import Ensemble
from tutelage.teachers.segmenter import Segmenter

SCANS, CHANNELS, SIZE = 16, 4, (160, 192, 155)  # of the recipe "brats"
WINDOW = (80, 96, 80)
TEACHERS, STEPS = 4, 8


def write(folder: Path) -> None:
    """Write noise with brighter boxes in it, and the boxes."""
    inputs = np.lib.format.open_memmap(folder / "inputs.npy", mode="w+", dtype=np.float32, shape=(SCANS, CHANNELS, *SIZE))
    targets = np.lib.format.open_memmap(folder / "targets.npy", mode="w+", dtype=np.uint8, shape=(SCANS, *SIZE))
    for scan, (image, mask) in enumerate(zip(inputs, targets, strict=True)):
        rng = np.random.default_rng(scan)
        corner = [int(rng.integers(0, size // 2)) for size in SIZE]
        mask[tuple(slice(low, low + size // 3) for low, size in zip(corner, SIZE, strict=True))] = 1
        image[...] = rng.standard_normal(image.shape, dtype=np.float32) + mask
        for array in (inputs, targets):
            forget(array)


def copied(private: Private, places: list[tuple[slice, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Cut all windows of all scans out, and hold them."""
    records, masks = np.ascontiguousarray(private.inputs).copy(), np.asarray(private.targets)  # torch wants what may be written
    inputs = np.stack([records[(slice(None), slice(None), *place)] for place in places], axis=1)
    targets = np.stack([masks[(slice(None), *place)] for place in places], axis=1)
    return inputs.reshape(-1, *inputs.shape[2:]), targets.reshape(-1, *targets.shape[2:])


def fit(way: str, folder: Path) -> dict[str, Any]:
    """Train the teachers, and say what it took."""
    private = Private.of(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("inputs", "targets")))
    shards, network = private.split(TEACHERS), UNet(shape=(CHANNELS, *WINDOW), widths=(4, 8, 8), groups=2)
    given: dict[str, Any] = {
        "training": Training(steps=STEPS, batch=2, augmentation=VOLUMES), "engine": "sequential", "device": "cpu", "seed": 0,
    }  # fmt: skip
    before, start = peak(), time.process_time()
    teachers = Segmenter(network, **given).through(WINDOW)
    if way == "read":
        trained = teachers.fit(private, shards).ensemble
    else:
        places = list(windows(SIZE, WINDOW, overlap=False))
        _, _, rows = teachers.material(private, shards)
        trained = Ensemble.fit(network, *copied(private, places), rows, **given)
    weights = hashlib.sha256(b"".join(trained.state[name].numpy().tobytes() for name in sorted(trained.state))).hexdigest()
    return {"core_s": round(time.process_time() - start, 1), "peak_gib_before": before, "peak_gib": peak(), "weights": weights}


def main() -> None:
    """Fit both ways, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=("read", "copied"), help="one fit in this process")
    parser.add_argument("--folder", type=Path, help="where its scans lie")
    told = parser.parse_args()
    if told.way:
        print(json.dumps(fit(told.way, told.folder)))
        return
    found = {}
    with TemporaryDirectory() as folder:
        write(Path(folder))
        for way in ("copied", "read"):
            words = [sys.executable, __file__, "--way", way, "--folder", folder]
            said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
            found[way] = json.loads(said.splitlines()[-1])
            print(way, found[way], flush=True)
    weights = {one.pop("weights") for one in found.values()}
    held = {way: one["peak_gib"] - one["peak_gib_before"] for way, one in found.items()}
    figures = {
        "scans": [SCANS, CHANNELS, *SIZE],
        "scans_gib": round(SCANS * CHANNELS * int(np.prod(SIZE)) * 4 / 2**30, 2),
        "window": WINDOW,
        "teachers": TEACHERS,
        "steps": STEPS,
        **found,
        "memory copied over read": round(held["copied"] / max(0.01, held["read"]), 1),
        "time read over copied": round(found["read"]["core_s"] / found["copied"]["core_s"], 3),
        "same weights": len(weights) == 1,
    }
    result.write("windows", figures)


if __name__ == "__main__":
    main()
