"""What a figure's noise costs, beside the numbers that the papers and PRIVACY's arithmetic give."""

from __future__ import annotations

import math

import pytest

from tutelage.privacy import accounting
from tutelage.reproduction import prices
from tutelage.reproduction.prices import FIRST, LATER, THESIS, Price
from tutelage.reproduction.thesis import radius, spread


def test_the_published_noise_costs_what_it_costs() -> None:
    assert FIRST.epsilon(0.075) == pytest.approx(404.55, abs=0.01)  # 125.94 is claimed
    assert THESIS.epsilon(1.46 / radius(16)) == pytest.approx(1188, abs=2)  # (2, 1e-7) is claimed
    assert FIRST.epsilon(0.0) == math.inf
    assert FIRST.epsilon(100.0) == 0.0


@pytest.mark.parametrize("price", [LATER, THESIS, FIRST])
def test_an_honest_noise_is_that_of_the_budget(price: Price) -> None:
    epsilon, delta = price.honest
    mu = 2 * math.sqrt(price.answers) / (price.teachers * price.sigma)  # one record moves a code of length 1 by 2
    assert accounting.mu_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)
    assert price.sigma <= price.point <= 1.01 * price.sigma
    assert price.budget in price.told
    assert price.named(price.point).endswith(f"honest {price.budget}")


def test_the_thesis_gave_both_codecs_the_same_price() -> None:
    for kept in (4, 16, 64, 256):
        assert 1 / radius(kept) == pytest.approx((0.5 * math.sqrt(4096 / kept)) / spread(4096))


def test_epsilon_is_written_for_people() -> None:
    assert [prices.written(one) for one in (math.inf, 1187.6, 99.94, 0.8381)] == ["∞", "1,188", "99.9", "0.838"]
    assert FIRST.heading == "ε, δ = 0.01"
    assert THESIS.budget == "(2, 1e-7)"
    assert FIRST.ticks([0.0, 0.1, 0.2, 0.3], most=2) == {0.1: "239", 0.3: FIRST.column([0.3])[0]}
