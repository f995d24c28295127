"""The game on a mechanism: it comes close to the truth, and what is broken in it is caught."""

from typing import Any

import numpy as np
import pytest

from tutelage.audits.game import play
from tutelage.privacy import mechanisms
from tutelage.privacy.bounds import Ball, Binary, Cube, OneHot, Orthant, Simplex
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import AboveThreshold, GNMax, LNMax, NoisyMean
from tutelage.privacy.units import Unit

CASES: dict[str, Any] = {
    "votes": GNMax(10, 12.0, teachers=100),
    "votes of an institution": GNMax(10, 24.0, Unit("institution", 2), teachers=100),
    "ball": NoisyMean(Ball(3000, 1.0), 20.0, 100),
    "orthant": NoisyMean(Orthant(5, 2.0), 30.0, 100),
    "shares": NoisyMean(OneHot(10), 15.0, 100),
    "simplex": NoisyMean(Simplex(3), 15.0, 100),
    "cube": NoisyMean(Cube(4, 0.5), 20.0, 100),
    "binary": NoisyMean(Binary(4), 20.0, 100),
}


def halved(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rounded_gaussian", "rounded_laplace"):
        real = getattr(mechanisms, name)
        monkeypatch.setattr(mechanisms, name, lambda scale, shape, real=real: real(scale / 2, shape))


@pytest.mark.parametrize("name", CASES)
def test_a_promise_that_is_kept_is_close_and_not_refuted(name: str) -> None:
    game = play(CASES[name], 100, 1e-5, releases=4000)
    assert game is not None
    assert not game.refuted
    assert game.charged.mu is not None
    assert 0.35 * game.charged.mu < game.mu


@pytest.mark.parametrize("name", CASES)
def test_half_the_noise_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    halved(monkeypatch)
    game = play(CASES[name], 100, 1e-5, releases=4000)
    assert game is not None
    assert game.refuted


@pytest.mark.parametrize("name", ["ball", "orthant", "cube"])
def test_no_clip_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(CASES[name].bound), "clip", lambda self, given: np.asarray(given, dtype=np.float64))
    game = play(CASES[name], 50, 1e-5, releases=2000)
    assert game is not None
    assert game.refuted


def test_a_charge_that_is_forgotten_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Ledger.charge
    monkeypatch.setattr(Ledger, "charge", lambda self, event, *, count=1: real(self, event, count=max(1, count // 16)))
    game = play(CASES["votes"], 100, 1e-5, releases=4000)
    assert game is not None
    assert game.refuted


def test_pure_noise_is_played_too_and_what_is_unknown_is_not() -> None:
    game = play(LNMax(10, 0.4, teachers=100), 10, 1e-5, releases=4000)
    assert game is not None
    assert not game.refuted
    assert 0 < game.epsilon < game.charged.epsilon
    assert play(AboveThreshold(Cube(8), 2 / 3, 1.0, 1.0, 1, 3), 10, 1e-5) is None


def test_so_many_answers_that_nothing_could_be_mistaken_are_not_all_played() -> None:
    game = play(NoisyMean(Ball(8), 2.0, 10), 400, 1e-5, releases=1000)
    assert game is not None
    assert game.queries == 3  # of μ a little above 1 each
    assert 0.6 < game.mu < game.charged.mu
