"""Are two neighbouring files of the Decathlon's hippocampus one patient? The names do not say; the volumes do.

python benchmarks/pairs.py --data DIR      prints, and writes results/pairs.json

If hippocampus_001 and _002, _003 and _004 ... are the two sides of one head, their intensities and sizes go together, and
those of _002 and _003, _004 and _005 ... do not. Its authors speak of 195 people and 394 volumes, training and test part.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nibabel
import numpy as np

import result


def figures(root: Path) -> dict[int, np.ndarray]:
    """Give log mean intensity and log volume of every hippocampus, by the file's number."""
    found = {}
    for path in sorted((root / "labelsTr").glob("hippocampus_*.nii.gz")):
        inside = np.asarray(nibabel.load(path).dataobj) > 0
        image = np.asarray(nibabel.load(root / "imagesTr" / path.name).dataobj, dtype=np.float64)
        found[int(path.name.removesuffix(".nii.gz")[-3:])] = np.log([image[inside].mean(), inside.sum()])
    return found


def together(found: dict[int, np.ndarray], first: int) -> dict[str, float]:
    """Correlate neighbours whose lower number leaves `first` over when it is halved."""
    pairs = np.array([(found[number], found[number + 1]) for number in found if number % 2 == first and number + 1 in found])
    intensity, volume = (float(np.corrcoef(pairs[:, 0, which], pairs[:, 1, which])[0, 1]) for which in (0, 1))
    return {"pairs": len(pairs), "intensity": round(intensity, 3), "volume": round(volume, 3)}


def main() -> None:
    """Compare pairs with shifted pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    found = figures(parser.parse_args().data)
    patients = len({(number + 1) // 2 for number in found})
    shown = {
        "1-2, 3-4, ...": together(found, 1),
        "2-3, 4-5, ...": together(found, 0),
        "volumes": len(found),
        "patients": patients,
    }
    print(shown)
    result.write("pairs", shown)


if __name__ == "__main__":
    main()
