"""A codec's repr names the question in the book: the same fit has one name, on any number of threads; another has another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.codecs.conftest import ellipses

from tutelage.codecs import spectrum
from tutelage.codecs.blocks import Blocks
from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.regions import Regions
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.codecs.rescaled import Rescaled
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public

FITS: dict[str, Callable[[Public], Any]] = {
    "pca": lambda public: PCA.fit(public, components=9),
    "pca, folds": lambda public: PCA.fit(public, components=9, folds=4),
    "blocks": lambda public: Blocks.fit(public, block=(4, 4), components=3),
    "flips": lambda public: Flips.fit(PCA.fit(public, components=9), public),
    "rescaled": lambda public: Rescaled.fit(PCA.fit(public, components=9), public),
}

PROGRAM = """
import numpy as np
from tests.codecs.conftest import ellipses
from tests.codecs.test_names import FITS
from tutelage.data.dataset import Public
public = Public.of(np.zeros((1200, 1)), ellipses(1200, (20, 20)))
print(*(repr(FITS[name](public)) for name in ("pca", "blocks", "rescaled")), sep="\\n")
"""


def test_threads_do_not_change_a_name() -> None:
    said = []
    for threads in ("1", "2"):
        settings = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        words = [sys.executable, "-c", PROGRAM]
        root = Path(__file__).parents[2]
        said.append(subprocess.run(words, env=settings, cwd=root, check=True, capture_output=True, text=True).stdout)
    assert said[0] == said[1]
    assert said[0].count("fitted=") == 4


def solving(monkeypatch: pytest.MonkeyPatch, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Let both ways of finding directions find others."""
    for way in (spectrum.Sketch, spectrum._Moments):

        def solve(self: Any, *given: Any, found: Any = way.solve) -> Any:
            values, vectors = found(self, *given)
            return values * (1 + 1e-14), change(vectors)

        monkeypatch.setattr(way, "solve", solve)


@pytest.mark.parametrize("name", FITS)
def test_rounding_does_not_change_a_name(name: str, public: Public, monkeypatch: pytest.MonkeyPatch) -> None:
    before, rng = repr(FITS[name](public)), np.random.default_rng(0)
    solving(monkeypatch, lambda vectors: vectors * (1 + rng.uniform(-1e-14, 1e-14, vectors.shape)))
    assert repr(FITS[name](public)) == before


@pytest.mark.parametrize("name", FITS)
def test_other_directions_have_another_name(name: str, public: Public, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of two directions with equal variance a solver may give any turn: codes along one pair must not be decoded along another.
    before = repr(FITS[name](public))
    solving(monkeypatch, lambda vectors: np.vstack([np.array([[0.8, 0.6], [-0.6, 0.8]]) @ vectors[:2], vectors[2:]]))
    after = repr(FITS[name](public))
    assert after.split("fitted=", 1)[1] != before.split("fitted=", 1)[1]  # and not by the clip alone


def test_what_was_asked_of_a_fit_is_in_its_name(public: Public) -> None:
    plain: dict[str, Any] = {"components": 4, "norm": 9.0}
    asked: list[dict[str, Any]] = [{}, {"centre": False}, {"rank": 100}, {"folds": 3}, {"noise": 0.1}, {"components": 5}]
    assert len({repr(PCA.fit(public, **{**plain, **more})) for more in asked}) == 6
    asked = [
        {},
        {"centre": False},
        {"rank": 9},
        {"block": (8, 4)},
        {"noise": 0.1},
        {"clip": "block"},
        {"components": 5},
        {"folds": 3},
    ]
    assert len({repr(Blocks.fit(public, **{"block": (4, 4), **plain, **more})) for more in asked}) == 8
    codec = DCT((16, 12), 9, 100.0)
    assert repr(Flips.fit(codec, public, norm=3.0)) != repr(Flips.fit(codec, public, norm=3.0, reference="nothing"))
    assert repr(Rescaled.fit(codec, public)) != repr(Rescaled.fit(codec, public, floor=0.5))
    assert repr(PCA.fit(public, components=4)) != repr(PCA.fit(public, components=4, quantile=0.5))
    other = Public.of(np.zeros((200, 1)), ellipses(200, (16, 12), seed=1))
    assert repr(PCA.fit(public, **plain)) != repr(PCA.fit(other, **plain))


@pytest.mark.parametrize("name", FITS)
def test_without_provenance_the_numbers_name_it(name: str, public: Public) -> None:
    other = Public.of(np.zeros((200, 1)), ellipses(200, (16, 12), seed=1))
    one, two, again = (replace(FITS[name](data), provenance=None, norm=2.0) for data in (public, other, public))
    assert repr(one) != repr(two)
    assert repr(one) == repr(again)


def test_a_number_of_numpy_has_the_same_name(public: Public) -> None:
    pca, blocks = FITS["pca"](public), FITS["blocks"](public)
    for make in (
        lambda whole, real: DCT((16, 12), whole(3), real(2)),
        lambda whole, real: Pixels((16, 12), real(2), "orthant"),
        lambda whole, real: Regions((16, 12), whole(3), real(2)),
        lambda whole, real: RegionVotes((16, 12), whole(3), share=real(0.5)),
        lambda whole, real: Wavelet((16, 12), np.arange(3), real(2), "haar", whole(1)),
        lambda whole, real: PCA((16, 12), pca.spectrum, whole(3), real(2), real(0.5)),
        lambda whole, real: replace(blocks, norm=real(2), noise=real(0.5)),
        lambda whole, real: Flips(DCT((16, 12), 3, 1.0), np.zeros((16, 12)), real(2)),
        lambda whole, real: replace(FITS["rescaled"](public), norm=real(2), noise=real(0.5)),
        lambda whole, real: PCA.fit(public, components=whole(3), rank=whole(50)),
    ):
        assert repr(make(int, float)) == repr(make(np.int64, np.float64))


def test_arrays_of_the_caller_stay_the_callers(public: Public) -> None:
    base = np.zeros((2, 192))
    codec = replace(FITS["blocks"](public), mean=base[0], provenance=None)
    base[:] = 1.0
    assert not codec.mean.any()
    assert not codec.mean.flags.writeable
