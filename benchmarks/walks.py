"""From a folder of one's own to a model in use: the commands, counted, and how long they take.

python benchmarks/walks.py --data DIR [--only KIND]     prints, and writes results/walks.json

Real files: UCI Adult as a clinic's CSV, MNIST as folders of class PNGs, and the Decathlon's hippocampi as PNG pairs (one slice
each), as DICOM series in the exact format (with the scans' own spacing), and as NIfTI. Training of U-Nets is cut short, as in
docs/start: these are walks, and no results.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from PIL import Image

import result
from decisions import adult, slices
from tutelage.data.idx import read_digits

COUNTS = {"nifti": (10, 5, 4), "dicom": (8, 4, 3)}


def classes(data: Path, folder: Path) -> None:
    """Write MNIST's twos and sevens as PNGs."""
    home = data / "mnist"
    records = read_digits(home / "train-images-idx3-ubyte.gz", home / "train-labels-idx1-ubyte.gz")
    kept = np.flatnonzero(np.isin(records.targets, (2, 7)))[:2000]
    for place, row in enumerate(kept):
        part = "private" if place < 1200 else "public" if place < 1600 else "test"
        path = folder / part / f"digit {records.targets[row]}" / f"case{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.rint(records.inputs[row, 0] * 255).astype(np.uint8)).save(path)


def scans(kind: str) -> Any:
    """Write hippocampi as NIfTI, or as DICOM series with NIfTI masks."""

    def make(data: Path, folder: Path) -> None:
        home, number = data / "hippocampus", 0
        names = sorted(path.name for path in (home / "labelsTr").glob("hippocampus_*.nii.gz"))
        for part, count in zip(("private", "public", "test"), COUNTS[kind], strict=True):
            for name in names[number : number + count]:
                image, mask = nibabel.load(home / "imagesTr" / name), nibabel.load(home / "labelsTr" / name)
                goal = folder / part / ("labelsTr" if kind == "nifti" else "labels") / name
                goal.parent.mkdir(parents=True, exist_ok=True)
                nibabel.save(mask, goal)
                if kind == "nifti":
                    (folder / part / "imagesTr").mkdir(exist_ok=True)
                    nibabel.save(image, folder / part / "imagesTr" / name)
                else:
                    from tests.data.made import series

                    voxels = np.rint(np.asarray(image.dataobj, np.float32))
                    voxels = voxels / max(1.0, float(voxels.max()) / 4000)
                    case = name.removesuffix(".nii.gz")
                    series(folder / part / "images" / case, voxels, image.affine, patient=case, shuffle=number)
                number += 1

    return make


WALKS: dict[str, Any] = {
    "CSV": adult(8000, 2),
    "class PNGs": classes,
    "PNG pairs": slices(24),
    "DICOM series": scans("dicom"),
    "NIfTI": scans("nifti"),
}
FILES = {"CSV": "test.csv", "class PNGs": "test", "PNG pairs": "test/images", "NIfTI": "test/imagesTr"}


def walked(kind: str, data: Path, home: Path) -> dict[str, Any]:
    """Take one walk: init, run, export, predict; the recipe is confirmed in between."""
    folder = home / "clinic"
    folder.mkdir()
    WALKS[kind](data, folder)
    seconds: dict[str, float] = {}

    def call(*words: str) -> None:
        started = time.monotonic()
        root = Path(__file__).parents[1]
        given = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-m", "tutelage.cli", *words], cwd=home, env=given, check=True, stdout=subprocess.DEVNULL)
        seconds[words[0]] = round(time.monotonic() - started, 1)

    call("init", "clinic", "--epsilon", "8", "--out", "own.toml")
    recipe = home / "own.toml"
    text = recipe.read_text(encoding="utf-8").replace("declared = false", "declared = true")
    drawing = 'kind = "unet"' in text
    recipe.write_text(re.sub(r"steps = \d+", "steps = 40", text), encoding="utf-8")
    call("run", "own.toml", "--out", "run")
    call("export", "run", "--out", "model")
    files = (
        [FILES[kind]]
        if kind in FILES
        else [str(path.relative_to(folder)) for path in sorted((folder / "test" / "images").iterdir())]
    )
    call("predict", "model", *(f"clinic/{one}" for one in files), "--out", "drawn" if drawing else "drawn.csv")
    scores = json.loads((home / "run" / "release" / "scores.json").read_text(encoding="utf-8"))
    found = {"walk": kind, "commands": len(seconds), "seconds": seconds, "minutes": round(sum(seconds.values()) / 60, 2)}
    if kind in ("NIfTI", "DICOM series"):
        found["affines kept"] = _affines(folder, home / "drawn", kind)
    if not drawing:
        rows = list(csv.reader((home / "drawn.csv").open(encoding="utf-8")))
        found["predictions"] = len(rows) - 1
    return {**found, "score": round(scores["private student"], 3)}


def _affines(folder: Path, drawn: Path, kind: str) -> bool:
    """Tell whether every predicted mask lies where its scan lies."""
    home = folder / "test" / ("labelsTr" if kind == "NIfTI" else "labels")
    pairs = [(nibabel.load(path), nibabel.load(home / path.name)) for path in sorted(drawn.iterdir())]
    same = [one.shape == other.shape and np.allclose(one.affine, other.affine, atol=1e-3) for one, other in pairs]
    return bool(pairs) and all(same)


def main() -> None:
    """Take every walk, or one of them; walks that were taken before are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=list(WALKS))
    given = parser.parse_args()
    path = result.RESULTS / "walks.json"
    before = {row["walk"]: row for row in json.loads(path.read_text())["figures"]["walks"]} if path.is_file() else {}
    for kind in [given.only] if given.only else list(WALKS):
        home = Path(tempfile.mkdtemp())
        try:
            before[kind] = walked(kind, given.data, home)
        finally:
            shutil.rmtree(home, ignore_errors=True)
        print(before[kind], flush=True)
        result.write("walks", {"walks": [before[one] for one in WALKS if one in before]}, "python benchmarks/walks.py --data DIR")


if __name__ == "__main__":
    main()
