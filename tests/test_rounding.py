"""Figures that are promised are never written smaller than they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tutelage.console import promised
from tutelage.rounding import percent, rounded_up

WRITTEN = [
    (7.617058, 4, "7.618"),
    (1.00049, 4, "1.001"),
    (7.62, 3, "7.62"),
    (7.6200001, 3, "7.63"),
    (8.0, 4, "8"),
    (8.000000000000002, 4, "8"),  # what a plan for ε = 8 costs after its own rounding
    (9999.5, 4, "1e+04"),
    (1187.6, 3, "1.19e+03"),
    (1.0000004e-5, 6, "1.00001e-05"),
    (1e-5, 6, "1e-05"),
    (0, 4, "0"),
    (math.inf, 4, "∞"),
    ("infinity", 4, "∞"),
]


@pytest.mark.parametrize(("value", "digits", "text"), WRITTEN)
def test_a_bound_is_rounded_up(value: float, digits: int, text: str) -> None:
    assert rounded_up(value, digits) == text


def test_a_bound_is_never_below_its_figure_and_one_step_above_at_most() -> None:
    for value in 10 ** np.random.default_rng(0).uniform(-12, 6, 2000):
        for digits in (3, 4, 6):
            text = rounded_up(value, digits)
            assert value * (1 - 1e-12) <= float(text) <= value * (1 + 10 ** (1 - digits))
            assert rounded_up(float(text), digits) == text
            assert float(text) >= float(f"{value:.{digits}g}") * (1 - 1e-12)


def test_an_attack_is_told_no_weaker_than_it_may_be() -> None:
    assert [percent(share) for share in (0.0772, 0.077201, 0.9999, 1.0, 0.001)] == ["7.72 %", "7.73 %", "100 %", "100 %", "0.1 %"]
    assert [promised(value) for value in (None, "infinity", 7.6170581)] == ["", "∞", "7.61706"]
    assert promised(7.61706012) == "7.61707"
