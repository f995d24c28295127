"""What a teacher of SiSI scenes should look at, and what it gains by each distortion: one thing changed at a time.

A few networks of each kind learn from shards of private scenes and choose the dog's region of public ones, without noise.
Kinds are those of scenes.py: one region at a time, cut out and scaled, or the whole scene.
Same scenes and steps, batches of 32 regions or 16 scenes.

    python benchmarks/views.py --templates DIR --only silhouettes --rows a        ten minutes on one core, rows as JSON lines
    python benchmarks/views.py --templates DIR --only unet --networks 2 --rows b  most of an hour
    python benchmarks/views.py --collect a b                                      rows of runs, into the result
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import result
import scenes
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.crops import SILHOUETTES
from tutelage.nets.training import Training
from tutelage.nets.warps import SCENES, Warp

Case = tuple[str, int, Any]  # what is done to the scenes, how many of them a teacher has, and the distortion itself
CASES: dict[str, tuple[Case, ...]] = {
    "silhouettes": (
        ("all", 131, SILHOUETTES),
        ("mirrors alone", 131, Augmentation(flip=True)),
        ("none", 131, None),
        ("all", 512, SILHOUETTES),
    ),
    "unet": (
        ("all", 512, SCENES),
        ("greys stay as they are", 512, replace(SCENES, greys=())),
        ("greys and mirrors alone", 512, Warp(flips=(-1,), greys=SCENES.greys, nearest=True)),
        ("mirrors alone", 512, Warp(flips=(-1,), nearest=True)),
    ),
}


def tried(way: Any, how: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Teach networks in every way, and score their choices on public scenes."""
    most = how.networks * max(size for _, size, _ in CASES[way.name])
    private, public = (
        scenes.drawn(how.templates, part, count, workers=1) for part, count in (("private", most), ("public", how.public))
    )
    training = Training(steps=how.steps, batch=32, rate=2e-3)
    for name, size, distorted in CASES[way.name]:
        begin = time.monotonic()
        shards = [np.arange(size * number, size * (number + 1)) for number in range(how.networks)]
        votes = way.votes(way.teach(private, shards, training, distorted), public)  # (networks, scenes)
        scores = [public.scored(vote.astype(np.int64))["dice"] for vote in votes]
        yield {
            "network": way.name,
            "scenes": size,
            "distortions": name,
            "networks": how.networks,
            "steps": how.steps,
            "right": round(float((votes == public.truth).mean()), 4),
            "dice": round(float(np.mean(scores)), 4),
            "deviation": round(float(np.std(scores, ddof=1)), 4),
            "empty": round(float((public.truth == scenes.NONE).mean()), 4),
            "seconds": round(time.monotonic() - begin, 1),
        }


def main() -> None:
    """Try every case, or collect what was tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--templates", help="a folder with bird/, cat/ and dog/; without, they are drawn")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cpu")
    parser.add_argument("--only", choices=tuple(CASES))
    parser.add_argument("--networks", type=int, default=3)
    parser.add_argument("--public", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--rows", type=Path, help="write rows here as they come, and no result")
    parser.add_argument("--collect", type=Path, nargs="+")
    how = parser.parse_args()
    if how.collect:
        result.write(
            "views", {"rows": [json.loads(line) for path in how.collect for line in path.read_text("utf-8").splitlines()]}
        )
        return
    rows = []
    for name in (how.only,) if how.only else CASES:
        for row in tried(scenes.WAYS[name](how.device), how):
            rows.append(row)
            print(row, flush=True)
            if how.rows:
                how.rows.write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    if not how.rows:
        result.write("views", {"rows": rows})


if __name__ == "__main__":
    main()
