"""The recipe `brats` on heads of BraTS' size and layout, drawn by code: that it runs whole, and what each part of it takes.

BraTS itself may not be passed on. Heads are 240×240×155 in four modalities with a mask each, in a folder a patient; the recipe
reads, crops, trains, asks, aligns nothing, learns and scores as it would of real ones. Fewer people are drawn, and networks
learn for a part of their steps: `seconds` of "learning" grow with both. Its Dice says nothing about tumours.

python benchmarks/brats.py --device cuda             44 people, a quarter of the steps, then results/brats.json
python benchmarks/brats.py --folder DIR              draw into DIR, or take what was drawn there
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nibabel
import numpy as np
import torch

import result
from parts.memory import peak
from parts.tumours import SHAPE, head, tumour
from tutelage.data.volumes import MODALITIES
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import run
from tutelage.verification import verify

GAINS = dict(zip(MODALITIES, (1.0, 0.6, 1.2, 0.8), strict=True))  # how clearly each modality shows the same folds
PUBLIC, TEST = 12, 8
LABEL = 2  # of BraTS' three, the one that most of a tumour has


def draw(folder: Path, number: int, shape: tuple[int, ...]) -> None:
    """Write one patient: four modalities and a mask, whole numbers as scanners write them."""
    name = f"BraTS2021_{number:05d}"
    place, mask = folder / name, tumour(number, 0, shape)
    image, rng = head(number, mask), np.random.default_rng((number, 1))
    place.mkdir(parents=True, exist_ok=True)
    for modality, gain in GAINS.items():
        seen = np.where(image == 0, 0, 600 + 200 * (gain * image + rng.normal(0, 0.1, shape)))
        nibabel.save(nibabel.Nifti1Image(np.clip(seen, 0, None).astype(np.int16), np.eye(4)), place / f"{name}_{modality}.nii")
    nibabel.save(nibabel.Nifti1Image((LABEL * mask).astype(np.uint8), np.eye(4)), place / f"{name}_seg.nii")


def drawn(folder: Path, people: int, shape: tuple[int, ...], processes: int) -> None:
    """Draw those who are not there yet, and list them all: the recipe's roster."""
    names = [f"BraTS2021_{number:05d}" for number in range(people)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "roster.txt").write_text("\n".join(names), encoding="utf-8")
    missing = [number for number, name in enumerate(names) if not (folder / name / f"{name}_seg.nii").exists()]
    with ProcessPoolExecutor(processes) as pool:
        for _ in pool.map(draw, [folder] * len(missing), missing, [shape] * len(missing)):
            pass


def lesser(text: str, people: int, part: float) -> str:
    """Take the packaged recipe for so many people, and a part of every number of steps."""
    asked = {"public": PUBLIC, "test": TEST, "shards": people - PUBLIC - TEST, "queries": PUBLIC}
    for key, count in asked.items():
        text, times = re.subn(rf"(?m)^{key} = \d+", f"{key} = {count}", text)
        assert times == 1, key
    return re.sub(r"(?m)^steps = (\d+)", lambda found: f"steps = {max(1, round(int(found[1]) * part))}", text)


class Clock:
    """Add up seconds by what is going on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.perf_counter()
        self.seconds[what] = self.seconds.get(what, 0.0) + now - self._last
        self._last = now
        if done in (0, total):
            print(f"{what} {done}/{total} after {self.seconds[what]:.0f} s", flush=True)


def measured(folder: Path, told: argparse.Namespace, shape: tuple[int, ...] = SHAPE) -> dict[str, Any]:
    """Draw, run the recipe, verify its book, and say what it took."""
    start = time.perf_counter()
    drawn(folder / "brats", told.people, shape, told.processes)
    drawing = time.perf_counter() - start
    text = resources.files("tutelage.recipes").joinpath("segmentation/brats.toml").read_text(encoding="utf-8")
    recipe, clock, start = parse(lesser(text, told.people, told.part)), Clock(), time.perf_counter()
    done = run(recipe, folder / "run", data=folder / "brats", public_data=True, device=told.device, progress=clock)
    whole = time.perf_counter() - start
    claim = verify(done.folder.root)
    scores = json.loads(done.folder.scores.read_text(encoding="utf-8"))
    held = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None
    return {
        "people": told.people,
        "teachers": recipe.teachers.shards,
        "queries": recipe.aggregation.queries,
        "scan": shape,
        "size": recipe.data.size,
        "part of the steps": told.part,
        "seconds to draw": round(drawing),
        "seconds of the run": round(whole),
        "seconds by what went on": {what: round(spent, 1) for what, spent in clock.seconds.items()},
        "host gib": peak(),
        "gpu gib": held and round(held, 2),
        "epsilon claimed": claim.claimed_epsilon,
        "dice": scores,
    }


def main() -> None:
    """Draw into a folder that is given, or into one that goes when all is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--people", type=int, default=44, help=f"{PUBLIC} of them are public and {TEST} are tested on")
    parser.add_argument("--part", type=float, default=0.25, help="of every number of steps")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that draw")
    parser.add_argument("--folder", type=Path, help="where scans and run are kept")
    told = parser.parse_args()
    with TemporaryDirectory() as temporary:
        figures = measured(told.folder or Path(temporary), told)
    result.write("brats", figures)


if __name__ == "__main__":
    main()
