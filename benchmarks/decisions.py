"""Does each row of docs/start/which-method.md do what the page says? Every row is one small run that `tutelage init` wrote.

python benchmarks/decisions.py --data DIR [--only ROW]     prints, and writes results/decisions.json

Private, public and test records are parts of public sets: UCI Adult as a clinic's table, MNIST as arrays, the Decathlon's
hippocampi as pictures (the slice of each scan that shows most of it). Nothing was tuned on them: the rules of
tutelage/drafting/method.py were written before the first of these runs. For objects anywhere: docs/start/first-run.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import result
from tutelage.data.idx import read_digits
from tutelage.drafting.advice import advice
from tutelage.drafting.draft import draft
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import bound, run

CONSTANT = {"labels": "control: public only, no answers (ε = 0)", "masks": "control: mean shape, as the student's label"}
NAMES = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race", "sex",
    "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip


def adult(units: int, per_unit: int = 1) -> Callable[[Path, Path], None]:
    """Write a clinic's three tables: so many people with so many rows each."""

    def make(data: Path, folder: Path) -> None:
        lines = [line for name in ("adult.data", "adult.test") for line in (data / "adult" / name).read_text().splitlines()]
        rows = [[cell.strip().rstrip(".") for cell in line.split(",")] for line in lines if line.strip() and line[0] != "|"]
        parts = {"private": rows[: units * per_unit], "public": rows[34_000:37_000], "test": rows[40_000:]}
        for name, some in parts.items():
            with (folder / f"{name}.csv").open("w", newline="") as file:
                table = csv.writer(file)
                table.writerow(["patient", *NAMES])
                table.writerows([f"{name}{place // per_unit}", *row] for place, row in enumerate(some))

    return make


def digits(units: int) -> Callable[[Path, Path], None]:
    """Write MNIST as arrays: so many private images, a pool of 2,000 and 4,000 to test on."""

    def make(data: Path, folder: Path) -> None:
        home = data / "mnist"
        train = read_digits(home / "train-images-idx3-ubyte.gz", home / "train-labels-idx1-ubyte.gz")
        test = read_digits(home / "t10k-images-idx3-ubyte.gz", home / "t10k-labels-idx1-ubyte.gz")
        parts = {"private": train[:units], "public": test[:2000], "test": test[5000:9000]}
        for name, some in parts.items():
            np.savez(folder / f"{name}.npz", inputs=np.rint(some.inputs * 255).astype(np.uint8), targets=some.targets)

    return make


def slices(units: int) -> Callable[[Path, Path], None]:
    """Write pictures with masks: of each hippocampus the slice that shows most of it."""

    def make(data: Path, folder: Path) -> None:
        import nibabel
        from PIL import Image

        scans = sorted((data / "hippocampus" / "labelsTr").glob("hippocampus_*.nii.gz"))
        for place, path in enumerate(scans[: units + 60]):
            part = "private" if place < units else "public" if place < units + 36 else "test"
            mask = np.asarray(nibabel.load(path).dataobj) > 0
            image = np.asarray(nibabel.load(data / "hippocampus" / "imagesTr" / path.name).dataobj, dtype=np.float64)
            level = int(mask.sum(axis=(0, 1)).argmax())
            low, high = np.percentile(image, (1, 99))
            pictures = {"images": np.clip((image - low) / (high - low), 0, 1) * 255, "masks": mask * 255.0}
            for name, volume in pictures.items():
                (folder / part / name).mkdir(parents=True, exist_ok=True)
                Image.fromarray(_square(volume[..., level]).astype(np.uint8)).save(folder / part / name / f"s{place}.png")

    return make


def _square(picture: np.ndarray) -> np.ndarray:
    side = max(picture.shape)
    made = np.zeros((side, side))
    first = [(side - have) // 2 for have in picture.shape]
    made[first[0] : first[0] + picture.shape[0], first[1] : first[1] + picture.shape[1]] = picture
    return made


#: What the page says of each: whether the student beats what costs no privacy, and by how much at least.
ROWS: dict[str, dict[str, Any]] = {
    "table, 10,000 patients": {"make": adult(10_000, 2), "epsilon": 3, "least": 0.05},
    "table, 1,500 patients": {"make": adult(1_500, 4), "epsilon": 8, "least": 0.02},
    "table, 60 patients": {"make": adult(60), "epsilon": 3, "least": None},
    "images, 1,500 units": {"make": digits(1_500), "epsilon": 8, "least": 0.3},
    "images, 10,000 units": {"make": digits(10_000), "epsilon": 3, "least": 0.5},
    "masks at one place, 60 patients": {"make": slices(60), "epsilon": 8, "least": -0.05, "small": True},
    "masks at one place, 8 patients": {"make": slices(8), "epsilon": 3, "least": None, "small": True},
}


def tried(name: str, data: Path, home: Path) -> dict[str, Any]:
    """Write the data, let `init` write a recipe, confirm it, and run it."""
    row, folder = ROWS[name], home / "clinic"
    folder.mkdir()
    row["make"](data, folder)
    text = draft(folder, epsilon=row["epsilon"], size=32 if "small" in row else None).text.replace(
        "declared = false", "declared = true"
    )
    if "small" in row:  # two busy cores: networks learn for less long than `init` says
        text = re.sub(r"steps = \d+", "steps = 60", text).replace("begin]\nsteps = 60", "begin]\nsteps = 100")
    recipe = parse(text)
    started = time.monotonic()
    outcome = run(recipe, home / "run", device="cpu")
    task = "masks" if outcome.guarantee["task"] == "masks" else "labels"
    student, constant = outcome.scores["private student"], outcome.scores[CONSTANT[task]]
    size, known = bound(recipe)
    kept = None if row["least"] is None else bool(student - constant >= row["least"])
    return {
        "row": name,
        "teachers": f"{recipe.teachers.shards} × {recipe.teachers.kind}",
        "method": recipe.aggregation.method,
        "queries": recipe.aggregation.queries,
        "student": recipe.student.learner,
        "epsilon": outcome.guarantee["epsilon"],
        "score": round(student, 4),
        "costs no privacy": round(constant, 4),
        "expected at least": row["least"],
        "as the page says": kept if kept is not None else bool(student - constant < 0.05),
        "advice": advice(recipe, size, known=known),
        "seconds": round(time.monotonic() - started, 1),
    }


def main() -> None:
    """Try every row, or one of them; rows that were tried before are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=list(ROWS))
    given = parser.parse_args()
    path = result.RESULTS / "decisions.json"
    before = {row["row"]: row for row in json.loads(path.read_text())["figures"]["rows"]} if path.is_file() else {}
    for name in [given.only] if given.only else list(ROWS):
        home = Path(tempfile.mkdtemp())
        try:
            before[name] = tried(name, given.data, home)
        finally:
            shutil.rmtree(home, ignore_errors=True)
        print(before[name], flush=True)
        result.write(
            "decisions", {"rows": [before[one] for one in ROWS if one in before]}, "python benchmarks/decisions.py --data DIR"
        )


if __name__ == "__main__":
    main()
