"""The figures of the papers that need no vote file: what was printed, how it came about, and what is true (PRIVACY.md)."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.privacy import accounting
from tutelage.privacy.bounds import Ball, Cube, OneHot
from tutelage.privacy.events import Gaussian
from tutelage.privacy.units import Adjacency, Unit

FACTS = json.loads((Path(__file__).parents[1] / "fixtures" / "accounting.json").read_text(encoding="utf-8"))
VECTORS = FACTS["published_vector_pate_figures"]
CLOSED, TIGHT, EXACT = (
    "RDP closed form a+2sqrt(ab) (= zCDP)",
    "RDP->DP improved (Canonne-Kamath-Steinke), optimal real order",
    "analytic Gaussian (exact for composed Gaussians)",
)
DIAMETERS = {name: {"1/K": 1.0, "2/K": 2.0, "sqrt2/K": math.sqrt(2)}[name.split(" ")[0]] for name in VECTORS["at_K8"]}


def renyi_closed_form(mu: float, delta: float) -> float:
    """Classic conversion at its best real order: our own curve at α = 1 + √(b/a)."""
    a, b = mu**2 / 2, math.log(1 / delta)
    order = 1 + math.sqrt(b / a)
    return float(accounting.event_rdp(Gaussian(mu, 1.0), order)[0] + b / (order - 1))


def vector_mu(diameter: float, teachers: int) -> float:
    """Paper 003: the mean of vectors over K teachers, N answers, one Gaussian."""
    return diameter / teachers * math.sqrt(VECTORS["N"]) / VECTORS["sigma"]


def single_digit_from(price: Any, diameter: float) -> int:
    return next(teachers for teachers in range(2, 200) if price(vector_mu(diameter, teachers), VECTORS["delta"]) < 10)


@pytest.mark.parametrize("setting", DIAMETERS)
@pytest.mark.parametrize(("table", "teachers"), [("at_K8", 8), ("eps_at_K36", 36), ("eps_at_K37", 37)])
def test_paper_003_prices(setting: str, table: str, teachers: int) -> None:
    mu, facts = vector_mu(DIAMETERS[setting], teachers), VECTORS[table][setting]
    assert renyi_closed_form(mu, 1e-2) == pytest.approx(facts[CLOSED], rel=1e-12)
    assert accounting.mu_epsilon(mu, 1e-2) == pytest.approx(facts[EXACT], rel=1e-10)
    orders = 1 + np.geomspace(1e-4, 1e3, 200_001)
    tight, _ = accounting.rdp_to_epsilon(accounting.event_rdp(Gaussian(mu, 1.0), orders), orders, 1e-2)
    assert tight == pytest.approx(facts[TIGHT], rel=1e-8)
    whole = np.arange(2, 513)
    coarse, _ = accounting.rdp_to_epsilon(accounting.event_rdp(Gaussian(mu, 1.0), whole), whole, 1e-2)
    assert coarse == pytest.approx(facts["RDP improved, integer orders 2..512"], rel=1e-12)
    assert accounting.mu_epsilon(mu, 1e-2) < tight < renyi_closed_form(mu, 1e-2)


@pytest.mark.parametrize("setting", DIAMETERS)
def test_paper_003_teachers_for_a_single_digit(setting: str) -> None:
    facts = VECTORS["min_K_for_eps_below_10"][setting]
    assert single_digit_from(renyi_closed_form, DIAMETERS[setting]) == facts[CLOSED]
    assert single_digit_from(accounting.mu_epsilon, DIAMETERS[setting]) == facts[EXACT]


def test_paper_003_as_printed_and_as_it_is() -> None:
    as_printed, true = vector_mu(1.0, 8), vector_mu(2.0, 8)
    assert renyi_closed_form(as_printed, 1e-2) == pytest.approx(125.94, abs=5e-3)
    assert accounting.mu_epsilon(as_printed, 1e-2) == pytest.approx(115.72, abs=5e-3)
    assert accounting.mu_epsilon(true, 1e-2) == pytest.approx(404.55, abs=5e-3)
    assert renyi_closed_form(true, 1e-2) == pytest.approx(424.10, abs=5e-3)
    assert single_digit_from(accounting.mu_epsilon, 1.0) == 37
    assert single_digit_from(renyi_closed_form, 1.0) == 45
    assert single_digit_from(accounting.mu_epsilon, 2.0) == 74
    assert accounting.mu_epsilon(vector_mu(1.0, 37), 1e-2) == pytest.approx(9.904, abs=5e-4)


def test_paper_003_from_the_bound_to_the_price() -> None:
    """The same figure by the way a run goes: bound, event, count, price."""
    event = Gaussian(Ball(16).sensitivity() / 8, VECTORS["sigma"])
    priced = accounting.cost([(event, VECTORS["N"])], 1e-2)
    assert priced.epsilon == pytest.approx(404.5456290040288, rel=1e-10)
    whole = Ball(16).sensitivity(Adjacency.ADD_REMOVE, unit=Unit("institution"))
    assert accounting.cost([(Gaussian(whole / 8, 0.075), 62)], 1e-2).epsilon == pytest.approx(115.72120099439223, rel=1e-10)


def test_paper_002_has_no_signal_at_its_own_price() -> None:
    """Table 4.1: 16 teachers, 16 values in [-1, 1], 16,384 answers, (2, 1e-7)."""
    sensitivity = Cube(16).sensitivity() / 16
    assert sensitivity == 0.5
    total, log = sensitivity * math.sqrt(16_384), math.log(1e7)
    sigma = total / (math.sqrt(2) * (math.sqrt(log + 2) - math.sqrt(log)))  # a + 2√(ab) = 2, solved for σ
    assert sigma == pytest.approx(187, abs=0.5)
    assert renyi_closed_form(total / sigma, 1e-7) == pytest.approx(2.0, rel=1e-9)
    assert accounting.gaussian_sigma(total, 2.0, 1e-7) == pytest.approx(157, abs=0.5)  # exact, and still no signal
    per_query = sigma / math.sqrt(16_384)
    assert per_query == pytest.approx(1.46, abs=5e-3)
    assert accounting.gaussian_epsilon(total, per_query, 1e-7) == pytest.approx(1186, abs=3)


@pytest.mark.parametrize(
    ("epsilon", "mu", "percent"), [(1, "0.268", "0.24"), (3, "0.719", "0.89"), (8, "1.666", "7.7"), (10, "2.00", "13.8")]
)
def test_what_large_epsilons_mean(epsilon: float, mu: str, percent: str) -> None:
    found = accounting.epsilon_mu(epsilon, 1e-5)
    assert f"{found:.{len(mu) - 2}f}" == mu
    assert f"{100 * accounting.implied_tpr(found, 1e-3):.{len(percent.split('.')[1])}f}" == percent


def test_sensitivities_as_stated() -> None:
    teachers = 8
    assert OneHot(10).sensitivity() / teachers == pytest.approx(math.sqrt(2) / 8)
    assert Cube(9).sensitivity() / teachers == pytest.approx(2 * 3 / 8)
    assert Ball(9, 3.0).sensitivity(unit=Unit("institution", 2)) / teachers == pytest.approx(2 * 2 * 3 / 8)
