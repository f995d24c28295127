"""What the hippocampus student's settings were chosen on: patients who are private in all three splits of hippocampus.py.

40 volumes of some of them play the public pool, those of the others the test part; true masks with simulated noise play the
teachers. No public or test patient of any split is among them. Two questions: how finely scans are laid over each other, and how
long the student looks at the mean shape and at its own masks. A third one by itself: how many frequencies answers have.

    python benchmarks/chosen.py --data DIR --device cuda
    python benchmarks/chosen.py --data DIR --device cuda --frequencies 300 1000 3000      what was measured before is kept
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hippocampus
import result
from tutelage.answers import Answers
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.data.dataset import Private, Public
from tutelage.features.alignment import Aligning, aligned
from tutelage.metrics import dice
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.nets.warps import VOLUMES
from tutelage.students.latent import Latent, LatentStudent, clearness, measured, patience

Row = dict[str, Any]
TEACHERS = 130  # for whom the noise is
FIELDS: tuple[dict[str, Any], ...] = (
    {},
    {"knots": 7, "stiffness": 0.01},
    {"knots": 7, "stiffness": 0.003, "steps": 100},
    {"knots": 9, "stiffness": 0.003, "steps": 100},
)
LENGTHS = (
    (1.0, 4, ((100, 400), (200, 200), (200, 400), (400, 400), (400, 1200), (1200, 400))),
    (3.0, 2, ((200, 400), (400, 400), (400, 1200), (800, 400), (1200, 400))),
    (8.0, 2, ((200, 400), (400, 400), (400, 1200), (800, 400), (1200, 400))),
)  # ε, draws of noise, and steps on the mean shape and on its own masks


def divided(everyone: Private, seed: int) -> tuple[Public, Public]:
    """Give a pool of 40 volumes, and all volumes of the patients who have none in it."""
    always = set.intersection(*(set(hippocampus.divided(everyone, split)[0].units) for split in range(3)))
    rows = np.array([row for row, patient in enumerate(everyone.units) if patient in always])
    pool = np.random.default_rng(seed).permutation(rows)[: hippocampus.PUBLIC]
    rest = np.array([row for row in rows if everyone.units[row] not in set(everyone.units[pool])])
    pair = (everyone[pool], everyone[rest])
    return tuple(Public.of(some.inputs, some.targets, source="development") for some in pair)  # type: ignore[return-value]


def answered(pool: Public, pairs: list[tuple[float, int]], frequencies: int = hippocampus.FREQUENCIES) -> list[Answers]:
    """Let the truth answer, with the noise of every ε and draw."""
    assert pool.targets is not None
    codec = Flips(DCT(hippocampus.SIZE, frequencies, 1.0), np.zeros(pool.targets[0].size, bool), hippocampus.NORM)
    clean, sets = codec.encode(pool.targets[None].astype(np.float32))[0], []
    for epsilon, draw in pairs:
        sigma = hippocampus.built(epsilon, len(pool), TEACHERS, codec.bound).sigma / TEACHERS
        codes = clean + np.random.default_rng(draw).normal(0, sigma, clean.shape)
        sets.append(Answers(np.arange(len(pool)), codec.decode(codes, pool.inputs), codes, sigma, codec))
    return sets


def students(
    laid: Public,
    test: Public,
    pairs: list[tuple[float, int]],
    how: argparse.Namespace,
    *,
    faint: float = 1.0,
    frequencies: int = hippocampus.FREQUENCIES,
    **told: int,
) -> list[Row]:
    """Train a student for every ε and draw, of these many steps whatever the noise unless `faint` is less, and score it."""
    begin, again = (
        Training(steps=told[name], batch=4, rate=rate, augmentation=VOLUMES) for name, rate in (("begin", 2e-3), ("again", 1e-3))
    )
    settings = Latent(begin=begin, faint=faint, free="auto", steps=300, rate=1e-2, again=again)
    student = LatentStudent(UNet(shape=(1, *hippocampus.SIZE)), settings=settings, device=how.device, seed=told["pool"])
    sets, found = answered(laid, pairs, frequencies), []
    both = list(zip(sets, measured(sets), strict=True))
    # By what the rule goes, and how long it lets a student look at the mean shape.
    clear = [{"clearness": round(clearness(*one), 3), "began": patience(*one, settings)} for one in both]
    for (epsilon, draw), by, model in zip(pairs, clear, student.fit_all(laid.unlabelled(), sets), strict=True):
        score = float(dice(model.predict(test.inputs), test.targets).mean())
        found.append({**told, "epsilon": epsilon, "draw": draw, "dice": round(score, 4), **by})
    return found


def spectra(everyone: Private, how: argparse.Namespace) -> Iterator[Row]:
    """Give students of answers with few and with many frequencies; pools, noise and everything else are the same."""
    pairs = [(epsilon, 300 + draw) for epsilon, draws in ((1.0, 4), (3.0, 2), (8.0, 2)) for draw in range(draws)]
    for number in range(how.pools):
        pool, test = divided(everyone, number)
        laid = aligned(pool, device=how.device)
        for frequencies in how.frequencies:
            told = {"frequencies": frequencies, "faint": 0.5, "pool": number, "begin": 400, "again": 400}
            for row in students(laid, test, pairs, how, **told):
                yield {"frequencies": frequencies, **row}


def main() -> None:
    """Try everything on every pool, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pools", type=int, default=2)
    parser.add_argument("--frequencies", type=int, nargs="+", help="this question alone, under today's rule for faint shapes")
    how = parser.parse_args()
    before = result.RESULTS / "chosen.json"
    kept = json.loads(before.read_text(encoding="utf-8"))["figures"] if before.exists() else {}
    everyone, rows, start = hippocampus.read(how.data), [], time.perf_counter()
    if how.frequencies:
        for row in spectra(everyone, how):
            rows.append(row)
            print(json.dumps(row), round(time.perf_counter() - start), flush=True)
            result.write("chosen", {**kept, "frequencies": rows})
        return
    for number in range(how.pools):
        pool, test = divided(everyone, number)
        assert pool.targets is not None
        for field in FIELDS:
            laid = aligned(pool, settings=Aligning(**field), device=how.device)
            assert laid.targets is not None
            constant = dice(np.broadcast_to(laid.targets.mean(axis=0), laid.targets.shape), laid.targets).mean()
            rows.append({"pool": number, "field": field, "constant": round(float(constant), 4)})
            tried = [([(1.0, 100), (1.0, 101), (1.0, 102), (3.0, 100)], (400, 400))]
            for epsilon, draws, lengths in LENGTHS if not field else ():
                tried += [([(epsilon, 200 + draw) for draw in range(draws)], steps) for steps in lengths]
            for pairs, (begin, again) in tried:
                found = students(laid, test, pairs, how, pool=number, begin=begin, again=again)
                rows += [{**row, "field": field} for row in found]
                print(json.dumps(rows[-1]), round(time.perf_counter() - start), flush=True)
                result.write("chosen", {**kept, "rows": rows})


if __name__ == "__main__":
    main()
