"""How long masks' deviations are in code, over in pixels: what a latent student is told of a rescaled codec, and what is so.

Codecs are fitted on 40 public hippocampi; deviations are those of 40 scans of other patients from their mean. *told* is
`Measurement.stretch`, *is* what these masks say, *mean shape* what their mean itself would say; all are squares.

python benchmarks/stretch.py --data Task04_Hippocampus       writes results/stretch.json; a minute on one core
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import result
from tutelage.codecs.blocks import Blocks
from tutelage.codecs.dct import DCT
from tutelage.codecs.pca import PCA
from tutelage.codecs.rescaled import Rescaled
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public
from tutelage.data.volumes import Volumes

SIZE, WIDE = (32, 48, 32), 1e6  # a clip that clips nothing
PUBLIC, OTHERS = slice(0, 40), slice(100, 140)


def squares(codec: Any, masks: np.ndarray) -> tuple[float, float]:
    """Give the mean square length of deviations in code, and the square length of the mean."""
    codes = codec.measured(codec.encode(masks[None])[0]).values
    middle = codes.mean(axis=0)
    return float(np.square(codes - middle).sum(axis=1).mean()), float(middle @ middle)


def row(inner: Any, public: Public, others: np.ndarray) -> dict[str, float]:
    """Compare a codec with itself, rescaled."""
    scaled = replace(Rescaled.fit(inner, public), norm=WIDE)
    plain, stretched = squares(inner, others), squares(scaled, others)
    told = scaled.measured(np.zeros((1, scaled.bound.dimension))).stretch ** 2
    return {
        "told": round(told, 3),
        "is": round(stretched[0] / plain[0], 3),
        "mean shape": round(stretched[1] / plain[1], 3),
    }


def main() -> None:
    """Measure all codecs that can be rescaled and measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the Decathlon's folder of hippocampi")
    scans = Volumes.decathlon(parser.parse_args().data, size=SIZE)
    public, others = scans[PUBLIC].public(), scans[OTHERS].public().targets
    codecs = {
        "dct, 300": DCT(SIZE, 300, WIDE),
        "dct, 3000": DCT(SIZE, 3000, WIDE),
        "wavelet, 1000": Wavelet.fit(public, kept=1000, norm=WIDE),
        "pca, 16": PCA.fit(public, components=16, norm=WIDE),
        "blocks of 8, 8 each": Blocks.fit(public, block=(8, 8, 8), components=8, norm=WIDE),
    }
    figures = {name: row(inner, public, np.asarray(others)) for name, inner in codecs.items()}
    result.write("stretch", figures)


if __name__ == "__main__":
    main()
