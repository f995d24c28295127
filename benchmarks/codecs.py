"""Codecs on whole brain volumes: time to encode and decode one, and the memory of labelling many, streamed.

python benchmarks/codecs.py                      writes results/codecs.json
python benchmarks/codecs.py --stream blocks      one streamed labelling run in this process, as JSON on stdout
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import result
from tutelage.codecs.blocks import Blocks
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public
from tutelage.metrics import dice
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.privacy.sealed import Sealed

SHAPE = (240, 240, 155)  # BraTS
MASKS = 16  # public ones, to fit on
NAMES = (
    "pixels",
    "dct",
    "flips of dct",
    "wavelet",
    "blocks 24x24x24",
    "blocks 24x24x16",
    "blocks 24x24x16, block clip at the public quantile",
)
STREAMED = ("blocks 24x24x24", "dct", "flips of dct")


def tumour(volume: int, teacher: int) -> np.ndarray:
    """Draw a mask of two overlapping ellipsoids; teachers agree about a volume up to a little."""
    ours, mine = np.random.default_rng(volume), np.random.default_rng((volume, 1 + teacher))
    mask = np.zeros(SHAPE, dtype=bool)
    for _ in range(2):
        centre = np.array(SHAPE) * (0.5 + ours.uniform(-0.15, 0.15, 3) + mine.uniform(-0.01, 0.01, 3))
        radius = ours.uniform(15, 40, 3) * mine.uniform(0.93, 1.07, 3)
        squares = [((np.arange(size, dtype=np.float32) - c) / r) ** 2 for size, c, r in zip(SHAPE, centre, radius, strict=True)]
        mask |= squares[0][:, None, None] + squares[1][:, None] + squares[2] <= 1
    return mask


def public(folder: Path) -> Public:
    """Write public masks to a file and map it: a fit must not need them all in memory."""
    masks = np.lib.format.open_memmap(folder / "masks.npy", mode="w+", dtype=np.uint8, shape=(MASKS, *SHAPE))
    for number in range(MASKS):
        masks[number] = tumour(10_000 + number, 0)
    return Public(np.zeros((MASKS, 1)), np.load(folder / "masks.npy", mmap_mode="r"), "synthetic")


def fitted(name: str, data: Public) -> Any:
    """Fit one of the codecs."""
    if name == "pixels":
        return Pixels.fit(data)
    if name == "dct":
        return DCT.fit(data, kept=4096)
    if name == "flips of dct":
        return Flips.fit(DCT(SHAPE, 4096, 1.0), data)
    if name == "wavelet":
        return Wavelet.fit(data, kept=4096, levels=4)
    block = (24, 24, 24) if name.endswith("24") else (24, 24, 16)
    if "block clip" in name:
        return Blocks.fit(data, block=block, components=16, centre=False, clip="block", rank=64)
    return Blocks.fit(data, block=block, components=16, noise=1.0, rank=64)


def timed(name: str, data: Public) -> dict[str, Any]:
    """Measure one codec on one volume, five times."""
    start = time.perf_counter()
    codec = fitted(name, data)
    fit = time.perf_counter() - start
    mask, encode, decode = tumour(0, 0)[None, None], [], []
    for _ in range(5):
        start = time.perf_counter()
        codes = codec.encode(mask)
        middle = time.perf_counter()
        answer = codec.decode(codes[0], mask[0])
        encode.append(middle - start)
        decode.append(time.perf_counter() - middle)
    figures = {
        "dimension": codec.bound.dimension,
        "fit_s": round(fit, 1),
        "encode_s": round(median(encode), 2),
        "decode_s": round(median(decode), 2),
        "dice_without_noise": round(float(dice(answer, mask[0])[0]), 3),
    }
    print(name, figures, flush=True)
    return figures


def stream(name: str, volumes: int, teachers: int) -> dict[str, Any]:
    """Label volumes one by one: every teacher's mask is encoded alone, and only codes are held."""
    with TemporaryDirectory() as folder:
        codec = fitted(name, public(Path(folder)))
    after_fit = peak()
    mechanism = NoisyMean(codec.bound, 0.01 * codec.bound.sensitivity(), teachers)
    spent, scores = {"draw": 0.0, "encode": 0.0, "aggregate": 0.0, "decode": 0.0}, []
    for volume in range(volumes):
        codes = np.empty((teachers, 1, codec.bound.dimension))
        for teacher in range(teachers):
            start = time.perf_counter()
            mask = tumour(volume, teacher)[None, None]
            spent["draw"] += time.perf_counter() - start
            start = time.perf_counter()
            codes[teacher] = codec.encode(mask)[0]
            spent["encode"] += time.perf_counter() - start
        start = time.perf_counter()
        released = mechanism.contribute(Sealed(codes))
        spent["aggregate"] += time.perf_counter() - start
        start = time.perf_counter()
        answer = codec.decode(released, mask[0])
        spent["decode"] += time.perf_counter() - start
        scores.append(float(dice(answer, mask[0])[0]))
    return {
        "volumes": volumes,
        "teachers": teachers,
        "dimension": codec.bound.dimension,
        "peak_gib_after_fit": after_fit,
        "peak_gib": peak(),
        "seconds": {step: round(seconds, 1) for step, seconds in spent.items()},
        "mean_dice": round(float(np.mean(scores)), 3),
    }


def peak() -> float:
    """Give the most memory this process has held, in GiB (Linux counts KiB, macOS bytes)."""
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 2)


def main() -> None:
    """Measure every codec, then the streamed runs in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", choices=STREAMED, help="one streamed run in this process")
    parser.add_argument("--volumes", type=int, default=62)
    parser.add_argument("--teachers", type=int, default=8)
    given = parser.parse_args()
    if given.stream:
        print(json.dumps(stream(given.stream, given.volumes, given.teachers)))
        return
    with TemporaryDirectory() as folder:
        data = public(Path(folder))
        times = {name: timed(name, data) for name in NAMES}
    streamed = {}
    for name in STREAMED:
        words = [sys.executable, __file__, "--stream", name, "--volumes", str(given.volumes), "--teachers", str(given.teachers)]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        streamed[name] = json.loads(said.splitlines()[-1])
        print(name, streamed[name], flush=True)
    result.write("codecs", {"shape": SHAPE, "per_volume": times, "streamed": streamed})


if __name__ == "__main__":
    main()
