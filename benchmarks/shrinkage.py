"""What Wiener's shrinkage is worth: noisy codes of masks, decoded as they are and with each deviation shrunk by its noise.

Principal components are fitted on public masks, true masks of others are encoded, clipped and given the noise of an honest
(ε, δ), as an ensemble that agrees would be. Nothing else differs between the two columns: codes and noise are the same.

    python benchmarks/shrinkage.py --data DIR        scenes drawn by the package, and DIR/hippocampus; one minute on one core
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import hippocampus
import result
from tutelage.codecs.pca import PCA
from tutelage.data.dataset import Public
from tutelage.data.scenes import Scenes
from tutelage.metrics import dice
from tutelage.planning import Aggregation
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Unit

COMPONENTS = (8, 32, 128)


def shapes(masks: np.ndarray) -> Public:
    """Let masks stand without their images."""
    return Public.of(np.zeros((len(masks), 1)), masks, source="masks alone")


def rows(name: str, known: np.ndarray, fresh: np.ndarray, *, teachers: int, unit: str, delta: float) -> list[dict[str, Any]]:
    """Decode the same noisy codes twice, for every number of components and ε."""
    found = []
    for components in (count for count in COMPONENTS if count < len(known)):
        codec = PCA.fit(shapes(known), components=components, folds=5)
        clean = codec.bound.clip(codec.encode(fresh[None].astype(np.float32))[0])
        for epsilon in (1.0, 3.0, 8.0):
            mechanism, _ = Aggregation("mean").built(Budget(epsilon, delta, Unit(unit)), len(fresh), teachers, codec.bound)
            sigma = mechanism.sigma / teachers
            codes = clean + np.random.default_rng(0).normal(0, sigma, clean.shape)  # a simulation on public masks: it has a seed
            row: dict[str, Any] = {"set": name, "components": components, "epsilon": epsilon, "sigma": round(sigma, 4)}
            for way, one in (("as they are", codec), ("shrunk", replace(codec, noise=sigma))):
                masks = one.decode(codes, np.zeros((len(codes), 1)))
                error = float(np.square(masks - fresh).reshape(len(fresh), -1).sum(axis=1).mean())
                row[way] = {"dice": round(float(dice(masks, fresh).mean()), 4), "squared_error": round(error, 2)}
            found.append(row)
            print(row, flush=True)
    return found


def main() -> None:
    """Measure scenes and hippocampi."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    how = parser.parse_args()
    drawn = Scenes(size=32).public(4000, seed=0).targets
    assert drawn is not None
    drawn = drawn[drawn.any(axis=(1, 2))]
    everyone = hippocampus.read(how.data / "hippocampus")
    private, public, _ = hippocampus.divided(everyone, 0)  # of other people: the private ones stand in for a public atlas here
    assert public.targets is not None
    figures = [
        *rows("scenes of 32×32", drawn[:1500], drawn[1500:1628], teachers=1000, unit="record", delta=1e-7),
        *rows("hippocampus", private.targets, public.targets, teachers=130, unit="patient", delta=1e-5),
    ]
    result.write("shrinkage", {"rows": figures})


if __name__ == "__main__":
    main()
