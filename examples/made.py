"""Write small made-up data in the exact public formats, to try the walks without data of one's own.

python examples/made.py table|images|masks|volumes FOLDER

FOLDER gets private/, public/ and test/ (of a table: private.csv, public.csv and test.csv). Nobody is in it.
"""

import csv
import sys
from pathlib import Path

import numpy as np

PARTS = {"private": 0, "public": 1, "test": 2}
SIZES = {"table": (900, 300, 200), "images": (600, 160, 120), "masks": (60, 24, 12), "volumes": (40, 16, 8)}


def table(folder: Path, part: str, count: int) -> None:
    """Write visits of patients: the old with a high marker are mostly ill."""
    rng = np.random.default_rng(PARTS[part])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{part}.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["patient", "age", "sex", "smoker", "marker", "diagnosis"])
        for patient in range(count):
            for _ in range(int(rng.integers(1, 4))):
                age, marker, smoker = int(rng.integers(20, 90)), float(rng.normal(5, 2)), bool(rng.random() < 0.3)
                ill = age / 10 + marker + 2 * smoker + rng.normal(0, 1) > 11.5
                sex = ("f", "m", "")[int(rng.integers(0, 20)) % 3]
                rows.writerow([f"{part}{patient}", age, sex, ("no", "yes")[smoker], f"{marker:.2f}", ("healthy", "sick")[ill]])


def blob(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Draw a bright ellipse near the middle of noise; give image and mask."""
    axes = np.meshgrid(*(np.linspace(-1, 1, side) for side in shape), indexing="ij")
    moved, wide = rng.uniform(-0.2, 0.2, len(shape)), rng.uniform(0.3, 0.6, len(shape))
    mask = sum(((axis - move) / reach) ** 2 for axis, move, reach in zip(axes, moved, wide, strict=True)) < 1
    return (60 + 80 * mask + rng.normal(0, 15, shape)).clip(1, 250), mask.astype(np.uint8)


def images(folder: Path, part: str, count: int) -> None:
    """Write class folders: a bar that lies, and a bar that stands."""
    from PIL import Image

    rng = np.random.default_rng(PARTS[part])
    for place in range(count):
        standing = bool(rng.random() < 0.5)
        image, start = rng.normal(60, 25, (16, 16)), int(rng.integers(3, 10))
        image[(slice(None), slice(start, start + 3)) if standing else (slice(start, start + 3), slice(None))] += 90
        path = folder / part / ("lying", "standing")[standing] / f"case{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(path)


def masks(folder: Path, part: str, count: int) -> None:
    """Write pictures and masks of the same names."""
    from PIL import Image

    rng = np.random.default_rng(PARTS[part])
    for place in range(count):
        for name, picture in zip(("images", "masks"), blob(rng, (32, 32)), strict=True):
            path = folder / part / name / f"{part}{place}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((picture * (255 if name == "masks" else 1)).astype(np.uint8)).save(path)


def volumes(folder: Path, part: str, count: int) -> None:
    """Write NIfTI volumes in the folders of the Decathlon, two for every fourth patient."""
    import nibabel

    rng, lines = np.random.default_rng(PARTS[part]), ["name,patient"]
    for place in range(count):
        image, mask = blob(rng, (16, 20, 16))
        for name, voxels in (("imagesTr", image.astype(np.float32)), ("labelsTr", mask)):
            path = folder / part / name / f"scan{part}{place}.nii.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(voxels, np.diag([1.0, 1.0, 1.5, 1.0])), path)
        lines.append(f"scan{part}{place},{part}{place - (place % 4 == 3)}")
    (folder / part / "patients.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    kind, target = sys.argv[1], Path(sys.argv[2])
    for name, number in zip(PARTS, SIZES[kind], strict=True):
        {"table": table, "images": images, "masks": masks, "volumes": volumes}[kind](target, name, number)
    print(f"wrote {target}")
