"""Codecs on whole brain volumes: time to encode and decode one, and the memory of labelling many through a curator.

python benchmarks/codecs.py                      writes results/codecs.json
python benchmarks/codecs.py --times              times alone; what was labelled before is kept
python benchmarks/codecs.py --times regions      times of some codecs alone; all else is kept
python benchmarks/codecs.py --door dct           one labelling run in this process, as JSON on stdout
python benchmarks/codecs.py --collect door/*     runs kept in files take the place of earlier ones; all else is kept
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import result
from parts.memory import peak
from parts.tumours import SHAPE, tumour
from tutelage.codecs.blocks import Blocks
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.regions import Regions
from tutelage.codecs.rescaled import Rescaled
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public
from tutelage.data.mapped import each, forget
from tutelage.metrics import dice
from tutelage.planning import Aggregation
from tutelage.privacy.curator import Curator
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.sealed import Sealed
from tutelage.runs import RunFolder
from tutelage.tasks.masks.task import Masking
from tutelage.tasks.task import Learning, Plan

MASKS = 16  # public ones, to fit on
NAMES = (
    "pixels",
    "dct",
    "flips of dct",
    "rescaled dct",
    "wavelet",
    "blocks 24x24x24",
    "blocks 24x24x16",
    "blocks 24x24x16, block clip at the public quantile",
    "pca",
    "autoencoder",
    "regions",
)
DOOR = ("dct", "flips of dct", "rescaled dct", "wavelet", "blocks 24x24x24", "blocks 24x24x16", "pca", "autoencoder", "regions")
TRUTH = 99  # a teacher that nobody asks
BUDGET = Budget(1e5, 1e-2)  # eight teachers cannot hide anybody: this is about memory and time, and Dice says that masks arrive


def public(folder: Path) -> Public:
    """Write public masks to a file and map it: a fit must not need them all in memory."""
    masks = np.lib.format.open_memmap(folder / "masks.npy", mode="w+", dtype=np.uint8, shape=(MASKS, *SHAPE))
    for number in range(MASKS):
        masks[number] = tumour(10_000 + number, 0, SHAPE)
    return Public(np.zeros((MASKS, 1)), np.load(folder / "masks.npy", mmap_mode="r"), "synthetic")


def fitted(name: str, data: Public) -> Any:
    """Fit one of the codecs."""
    if name == "pixels":
        return Pixels.fit(data)
    if name == "dct":
        return DCT.fit(data, kept=4096)
    if name == "flips of dct":
        return Flips.fit(DCT(SHAPE, 4096, 1.0), data)
    if name == "rescaled dct":
        return Rescaled.fit(DCT.fit(data, kept=4096), data)
    if name == "wavelet":
        return Wavelet.fit(data, kept=4096, levels=4)
    if name == "pca":
        return PCA.fit(data[:8], components=7)  # about a mean, eight masks have no more
    if name == "autoencoder":
        from tutelage.codecs.autoencoder import Autoencoder

        return Autoencoder.fit(data[:8], dim=64, steps=2, batch=1, widths=(4, 8, 8, 16, 16, 16), device="cpu")
    if name == "regions":
        return Regions(SHAPE, 500, 400.0)
    block = (24, 24, 24) if name.endswith("24") else (24, 24, 16)
    if "block clip" in name:
        return Blocks.fit(data, block=block, components=16, centre=False, clip="block", rank=64)
    return Blocks.fit(data, block=block, components=16, noise=1.0, rank=64)


def timed(name: str, data: Public) -> dict[str, Any]:
    """Measure one codec on one volume, five times."""
    start = time.perf_counter()
    codec = fitted(name, data)
    fit = time.perf_counter() - start
    mask, encode, decode = tumour(0, 0, SHAPE)[None, None], [], []
    image = mask.astype(np.float32)
    for _ in range(5):
        start = time.perf_counter()
        seen = codec.seeing(image) if hasattr(codec, "seeing") else codec
        codes = seen.encode(mask)
        middle = time.perf_counter()
        answer = seen.decode(codes[0], image)
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


class Drawing:
    """Teachers that draw: the last channel of an image says which volume is meant."""

    def __init__(self, teachers: int) -> None:
        self.teachers, self.spent = teachers, 0.0

    def vote(self, inputs: np.ndarray) -> Sealed:
        """Give masks as networks do: (teachers, queries, *shape) float16."""
        start = time.perf_counter()
        masks = np.empty((self.teachers, len(inputs), *SHAPE), dtype=np.float16)
        for teacher in range(self.teachers):
            for query, image in enumerate(inputs):
                masks[teacher, query] = tumour(int(image[-1, 0, 0, 0]), teacher, SHAPE)
        self.spent += time.perf_counter() - start
        return Sealed(masks)


class Silent:
    """A student that learns nothing and sees nothing: this is about the door."""

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Give empty masks."""
        return np.zeros((len(inputs), *SHAPE), dtype=np.uint8)


def pool(folder: Path, volumes: int) -> Public:
    """Write images of four channels and their masks to files, and map them."""
    inputs = np.lib.format.open_memmap(folder / "inputs.npy", mode="w+", dtype=np.float32, shape=(volumes, 4, *SHAPE))
    targets = np.lib.format.open_memmap(folder / "targets.npy", mode="w+", dtype=np.uint8, shape=(volumes, *SHAPE))
    for volume in range(volumes):
        targets[volume] = tumour(volume, TRUTH, SHAPE)
        inputs[volume, 0] = targets[volume]
        inputs[volume, -1, 0, 0, 0] = volume
        for array in (inputs, targets):
            forget(array)
    return Public(inputs, targets, "synthetic")


def door(name: str, volumes: int, teachers: int) -> dict[str, Any]:
    """Ask a curator about mapped volumes as a run does, write what a run writes, and open the book again as a report does."""
    with TemporaryDirectory() as place:
        codec = fitted(name, public(Path(place)))
        after_fit, data = peak(), pool(Path(place), volumes)
        folder, crowd, spent, start = RunFolder(Path(place) / "run").create(), Drawing(teachers), {}, time.perf_counter()
        task = Masking(Plan(data, volumes, codec, Aggregation("mean"), shards=teachers))
        mechanism, _ = task.how.built(BUDGET, volumes, teachers, codec.bound)
        with folder.locked(), Ledger(folder.book, BUDGET) as ledger:
            curator = Curator(crowd, codec, mechanism, ledger, private=folder.private)
            learning = Learning(Silent, Silent(), folder, lambda what, done, total: print(what, done, total, file=sys.stderr))
            answers = task.ask(curator, learning)
        spent["draw"], spent["ask and decode"] = crowd.spent, time.perf_counter() - start - crowd.spent
        start = time.perf_counter()
        task.publish(folder, Silent(), answers)
        spent["publish"], start = time.perf_counter() - start, time.perf_counter()
        Ledger(folder.book).close()
        spent["open the book again"] = time.perf_counter() - start
        truths = (data.targets[[number]] for number in answers.chosen)
        scores = [dice(mask[None], truth)[0] for mask, truth in zip(each(answers.values), truths, strict=True)]
        return {
            "volumes": volumes,
            "teachers": teachers,
            "dimension": codec.bound.dimension,
            "peak_gib_after_fit": after_fit,
            "peak_gib": peak(),
            "book_gib": round(folder.book.stat().st_size / 2**30, 2),
            "seconds": {step: round(seconds, 1) for step, seconds in spent.items()},
            "mean_dice": round(float(np.mean(scores)), 3),
        }


def main() -> None:
    """Measure every codec, then the runs through a curator in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--door", choices=DOOR, help="one run in this process")
    parser.add_argument("--volumes", type=int, default=62)
    parser.add_argument("--teachers", type=int, default=8)
    parser.add_argument("--times", nargs="*", choices=NAMES, help="nothing is labelled; of these codecs, or of all")
    parser.add_argument("--collect", type=Path, nargs="+", help="files that hold what --door printed, named after their codec")
    parser.add_argument("--note", help="what else ran on the machine, kept beside the figures")
    given = parser.parse_args()
    note = {} if given.note is None else {"note": given.note}
    if given.door:
        print(json.dumps(door(given.door, given.volumes, given.teachers)))
        return
    path = result.RESULTS / "codecs.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["figures"] if path.exists() else {"per_volume": {}, "door": {}}
    if given.collect:
        found = {file.stem.replace("_", " "): json.loads(file.read_text().splitlines()[-1]) for file in given.collect}
        through = {**kept["door"], **found}
        figures = {
            "shape": SHAPE,
            "per_volume": kept["per_volume"],
            "door": {name: through[name] for name in DOOR if name in through},
        }
        result.write("codecs", {**figures, **note}, "python benchmarks/codecs.py")
        return
    with TemporaryDirectory() as folder:
        data = public(Path(folder))
        times = {name: timed(name, data) for name in given.times or NAMES}
    if given.times is not None:
        figures = {"shape": SHAPE, "per_volume": {**kept["per_volume"], **times}, "door": kept["door"]}
        result.write("codecs", {**figures, **note}, "python benchmarks/codecs.py")
        return
    through = {}
    for name in DOOR:
        words = [sys.executable, __file__, "--door", name, "--volumes", str(given.volumes), "--teachers", str(given.teachers)]
        said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        through[name] = json.loads(said.splitlines()[-1])
        print(name, through[name], flush=True)
    result.write("codecs", {"shape": SHAPE, "per_volume": times, "door": through, **note})


if __name__ == "__main__":
    main()
