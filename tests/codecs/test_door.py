"""Masks through the real door: charged, noised, kept, decoded; asked again they are free."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tests.codecs.conftest import ellipses

from tutelage.codecs.dct import DCT
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.data.dataset import Public
from tutelage.metrics import dice
from tutelage.privacy import accounting
from tutelage.privacy.curator import Curator
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.privacy.sealed import Sealed

TEACHERS, QUERIES, SHAPE = 300, 4, (16, 12)


class Painters:
    """Teachers who know the mask of every question but for some pixels."""

    def __init__(self) -> None:
        self.masks, self.calls = ellipses(QUERIES, SHAPE, seed=5), 0

    def vote(self, inputs: np.ndarray) -> Sealed:
        self.calls += 1
        wrong = np.random.default_rng(0).random((TEACHERS, len(inputs), *SHAPE)) < 0.05
        return Sealed(self.masks[inputs[:, 0].astype(int)] ^ wrong)


@pytest.mark.parametrize("name", ["pca", "flips", "pixels"])
def test_masks_through_the_door(name: str, public: Public, tmp_path: Path) -> None:
    budget = Budget(8.0, 1e-5)

    def codec_at(noise: float):
        if name == "pixels":
            return Pixels.fit(public)
        return PCA.fit(public, noise=noise) if name == "pca" else Flips.fit(DCT.fit(public, kept=30), public)

    sensitivity = codec_at(0.3).bound.sensitivity()
    sigma = 1.0001 * accounting.gaussian_sigma(sensitivity * math.sqrt(QUERIES), budget.epsilon, budget.delta)
    codec = codec_at(sigma / TEACHERS)
    sigma *= codec.bound.sensitivity() / sensitivity  # the choice of components may have moved the clip
    teachers, inputs = Painters(), np.arange(QUERIES, dtype=np.float64)[:, None]
    with Ledger(tmp_path / "book.sqlite", budget) as ledger:
        curator = Curator(teachers, codec, NoisyMean(codec.bound, sigma, TEACHERS), ledger)
        assert curator.affordable() == QUERIES
        answers = curator.answer(inputs)
        assert answers.shape == (QUERIES, *SHAPE)
        assert np.array_equal(curator.answer(inputs[::-1]), answers[::-1])
        assert teachers.calls == 1
        assert curator.affordable() == 0
    if name != "pixels":
        assert dice(answers, teachers.masks).mean() > 0.85
