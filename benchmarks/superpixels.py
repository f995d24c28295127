"""Superpixels of whole brain volumes: centres found by some of the pixels, against all of them, in one run.

Images are drawn: heads of two tissues in noise with a tumour, and bare masks. *loss* is what k-means makes small, the mean square
distance of a pixel to its region's centre; *dice* is the best that whole regions can do for the tumour.

python benchmarks/superpixels.py                 writes results/superpixels.json; ten minutes on one core
"""

from __future__ import annotations

import argparse
import math
import time
from statistics import mean
from typing import Any

import numpy as np

import result
from parts.tumours import SHAPE, Array, head, tumour
from tutelage.codecs.segments import sampled, superpixels
from tutelage.metrics import dice

REGIONS, VOLUMES = 500, 3
COMPACTNESS = 0.5  # as superpixels have it


def loss(image: Array, labels: Array) -> float:
    """Measure the mean square distance of a pixel to the centre of its region."""
    cell = (math.prod(SHAPE) / REGIONS) ** (1 / len(SHAPE))
    places = [np.arange(size).reshape(-1, *(1,) * after) for size, after in zip(SHAPE, (2, 1, 0), strict=True)]
    columns = [image / image.std(), *(np.broadcast_to(place * (COMPACTNESS / cell), SHAPE) for place in places)]
    return sum(float((column.reshape(-1) - _means(column, labels)).var()) for column in columns)


def reachable(labels: Array, mask: Array) -> float:
    """Give the Dice of the regions that are mostly tumour."""
    return float(dice((_means(mask, labels) > 0.5).reshape(1, *SHAPE), mask[None])[0])


def _means(column: Array, labels: Array) -> Array:
    """Give every pixel its region's mean: (pixels,)."""
    flat = labels.reshape(-1)
    return (np.bincount(flat, column.reshape(-1)) / np.maximum(np.bincount(flat), 1))[flat]


def measured(image: Array, mask: Array, every: int) -> dict[str, float]:
    """Cut one image, and say how many seconds of a core it took and how good the regions are."""
    start = time.process_time()
    labels = superpixels(image[None], REGIONS, every=every)
    took = time.process_time() - start
    return {"seconds": took, "loss": loss(image, labels), "dice": reachable(labels, mask), "regions": len(np.unique(labels))}


def main() -> None:
    """Cut every image both ways, one after the other."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    every = sampled(SHAPE, REGIONS)
    figures: dict[str, Any] = {"shape": SHAPE, "regions": REGIONS, "volumes": VOLUMES, "every": every}
    for kind in ("heads", "masks"):
        rows: dict[int, list[dict[str, float]]] = {1: [], every: []}
        for volume in range(VOLUMES):
            mask = tumour(volume, 0)
            image = head(volume, mask) if kind == "heads" else mask.astype(np.float32)
            for stride, found in rows.items():
                found.append(measured(image, mask, stride))
                print(kind, volume, stride, found[-1], flush=True)
        means = {stride: {key: round(mean(row[key] for row in found), 4) for key in found[0]} for stride, found in rows.items()}
        ratio = means[1]["seconds"] / means[every]["seconds"]
        figures[kind] = {"by all pixels": means[1], f"by every {every}rd": means[every], "times faster": round(ratio, 1)}
    result.write("superpixels", figures)


if __name__ == "__main__":
    main()
