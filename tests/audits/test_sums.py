"""The game on sums: every form, and its broken twins."""

from typing import Any

import pytest

from tutelage.audits.sums import play_sum
from tutelage.privacy import mechanisms
from tutelage.privacy.mechanisms import NoisySum
from tutelage.privacy.queries import Form
from tutelage.privacy.sums import GridSum

CASES: dict[str, Any] = {
    "sum": NoisySum(Form.SUM, 50, 1.0, 2.0, 100),
    "sum of nothing negative": NoisySum(Form.SUM, 50, 1.0, 1.5, 100, nonnegative=True),
    "grouped": NoisySum(Form.GROUPED, 50, 2.0, 4.0, 100, groups=10),
    "gram": NoisySum(Form.GRAM, 50, 1.5, 3.0, 100),
    "gram by class": NoisySum(Form.GRAM, 50, 1.5, 3.0, 100, groups=10),
    "outer": NoisySum(Form.OUTER, 50, 1.0, 2.0, 100, right=5),
}


@pytest.mark.parametrize("name", CASES)
def test_a_sum_keeps_its_promise_closely(name: str) -> None:
    game = play_sum(CASES[name], 1e-5, releases=1200)
    assert not game.refuted
    assert game.charged.mu is not None
    assert 0.2 * game.charged.mu < game.mu


@pytest.mark.parametrize("name", CASES)
def test_half_the_noise_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mechanisms.rounded_gaussian
    monkeypatch.setattr(mechanisms, "rounded_gaussian", lambda scale, shape: real(scale / 2, shape))
    assert play_sum(CASES[name], 1e-5, releases=1200).refuted


def test_the_same_noise_twice_for_one_price_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four answers are charged as one."""
    from tutelage.audits import sums

    real = sums._charged
    monkeypatch.setattr(sums, "_charged", lambda mechanism, given, answers, delta: real(mechanism, given, 1, delta))
    assert play_sum(CASES["sum"], 1e-5, answers=4, releases=1000).refuted


def test_rows_that_are_not_clipped_together_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that lets ten times the norm through."""
    import dataclasses

    real = GridSum.__init__
    monkeypatch.setattr(
        GridSum, "__init__", lambda self, shape, *more: real(self, dataclasses.replace(shape, norm=10 * shape.norm), *more)
    )
    assert play_sum(CASES["sum"], 1e-5, releases=600).refuted
