"""What a run promises: the figure to quote, and what an attacker can make of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage import __version__
from tutelage.guarantee import attack_bound, guarantee, intended, write
from tutelage.planning import Aggregation
from tutelage.privacy import accounting
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.events import Event, NoisyMax, SmoothRelease, Threshold
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Unit

Make = Callable[..., dict[str, Any]]
VOTE, TEST, LAPLACE = NoisyMax("gaussian", 40.0), Threshold(150.0), NoisyMax("laplace", 20.0)


def about(**facts: Any) -> dict[str, Any]:
    """Describe a run, as far as a test does not."""
    fields = {"task": "labels", "adaptive": False, "units": 1000, "roster": "0" * 64, "shards": "given", "ledger": "own"}
    return intended(**{**fields, **facts})


@pytest.fixture
def promise(tmp_path: Path) -> Make:
    """Describe a book with these charges."""

    def make(*charges: tuple[Event, int], budget: Budget | None = None, look: bool = False, **facts: Any) -> dict[str, Any]:
        more, beside = (
            facts.pop("more", ()),
            {name: facts.pop(name) for name in ("excepted", "sanitised_epsilon") if name in facts},
        )
        with Ledger(tmp_path / "book.sqlite", budget or Budget(2.0, 1e-5)) as ledger:
            ledger.begin("run", plan="plan")
            for event, count in charges:
                ledger.charge(event, count=count)
            if look:
                ledger.reveal(Sealed([1.0]), reason="curious")
            for run in more:
                ledger.begin(run[0], plan=run[1])
                ledger.charge(VOTE)
            return guarantee(ledger.entries(), run="run", about=about(**facts), **beside)

    return make


def test_gaussian_answers_are_quoted_exactly(promise: Make) -> None:
    said = promise((VOTE, 100))
    assert said["epsilon"] == said["data_independent_epsilon"] == accounting.gaussian_epsilon(math.sqrt(200), 40.0, 1e-5)
    assert said["mu"] == pytest.approx(math.sqrt(200) / 40)
    assert said["mu_is_exact"] is True
    assert said["accountant"] == "exact Gaussian"
    assert said["implied_tpr_at_fpr_0.001"] == accounting.implied_tpr(said["mu"], 1e-3)
    assert said["events"] == [{"kind": "NoisyMax", "noise": "gaussian", "scale": 40.0, "votes": 1, "count": 100}]


def test_an_adaptive_run_quotes_its_budget(promise: Make) -> None:
    said = promise((TEST, 100), (VOTE, 20), adaptive=True)
    assert said["epsilon"] == said["budget_epsilon"] == 2.0
    assert said["data_independent_epsilon"] < 1.0
    assert said["mu"] == pytest.approx(accounting.epsilon_mu(2.0, 1e-5))  # the filter's own μ
    assert said["mu_is_exact"] is True


def test_what_an_adaptive_mixed_run_spent_bounds_no_attack(promise: Make) -> None:
    mixed = (TEST, 10), (VOTE, 2), (SmoothRelease(0.01, 50.0), 1)
    said = promise(*mixed, adaptive=True)
    assert said["mu_is_exact"] is False
    assert said["implied_tpr_at_fpr_0.001"] == accounting.tpr_bound(2.0, 1e-5, 1e-3)


def test_laplace_answers_are_bounded_by_their_own_curve(promise: Make) -> None:
    said = promise((LAPLACE, 2))
    assert said["epsilon"] == pytest.approx(2 * 0.1, rel=0.01)  # at most 2γ each
    assert said["mu_is_exact"] is False
    assert said["mu"] == pytest.approx(accounting.epsilon_mu(said["epsilon"], 1e-5))
    assert 1e-3 < said["implied_tpr_at_fpr_0.001"] <= accounting.tpr_bound(said["epsilon"], 0.0, 1e-3) * 1.01
    rates = np.geomspace(1e-4, 0.9, 9)
    assert (attack_bound(said, rates) >= rates).all()
    assert (np.diff(attack_bound(said, rates)) >= 0).all()


def test_a_look_is_infinite(promise: Make) -> None:
    said = promise((VOTE, 1), look=True)
    assert said["epsilon"] == said["data_independent_epsilon"] == said["mu"] == "infinity"
    assert said["implied_tpr_at_fpr_0.001"] == 1.0
    assert said["statement"] == "No guarantee: a private value was looked at without noise."
    assert "practically no guarantee" in said["warnings"][0]
    assert attack_bound(said, np.asarray([0.1, 0.2])).tolist() == [1.0, 1.0]


def test_an_empty_book_promises_everything(promise: Make) -> None:
    said = promise()
    assert (said["epsilon"], said["mu"], said["events"]) == (0.0, 0.0, [])
    assert said["implied_tpr_at_fpr_0.001"] == pytest.approx(1e-3)


def test_the_statement_names_the_unit_and_what_is_excepted(promise: Make) -> None:
    budget = Budget(2.0, 1e-5, Unit("patient", 2))
    said = promise((VOTE, 1), budget=budget, excepted=("controls",))
    assert said["statement"].startswith("Changing all data of one patient")
    assert "anything in this release but what `excepted` names" in said["statement"]
    assert said["excepted"] == ["controls"]
    assert (said["unit"], said["unit_teachers"], said["adjacency"]) == ("patient", 2, "replace-one")


def test_the_statement_promises_no_less_than_the_figures(promise: Make) -> None:
    said = promise((VOTE, 100), budget=Budget(3.0, 1.0000004e-5))
    _, factor, addend = re.split(r"e\^| and an addend of ", said["statement"].removesuffix("."))
    assert f"{said['epsilon']:.4g}" < factor  # the nearest would be smaller
    assert said["epsilon"] <= float(factor) <= said["epsilon"] + 1e-3
    assert float(addend) == 1.00001e-5


def test_a_calibrated_run_promises_its_budget(promise: Make) -> None:
    budget = Budget(0.5, 1e-5)
    said = promise(*Aggregation("gnmax").planned(budget, 30, 100, OneHot(10)), budget=budget)
    assert said["epsilon"] > 0.5  # by its own rounding alone
    assert " e^0.5 and" in said["statement"]


def test_whole_institutions_may_come_and_go(promise: Make) -> None:
    said = promise(budget=Budget(2.0, 1e-5, Unit("institution"), adjacency="add-remove"))  # type: ignore[arg-type]
    assert said["statement"].startswith("Adding or removing one institution")
    assert said["adjacency"] == "add-remove"


def test_a_large_delta_is_warned_of(promise: Make) -> None:
    assert promise((VOTE, 1), budget=Budget(2.0, 0.01))["warnings"][0].startswith("δ = 0.01 is not below 1/n = 0.001")


def test_the_document_names_its_origin(promise: Make) -> None:
    said = promise((VOTE, 1), recipe_sha256="ab", tuned_on="simulated data")
    assert (said["recipe_sha256"], said["tuned_on"], said["run"]) == ("ab", "simulated data", "run")
    assert said["versions"]["tutelage"] == __version__
    assert {"python", "numpy", "scipy", "dp-accounting"} <= set(said["versions"])
    assert len(said["ledger_head"]) == 64


@pytest.mark.parametrize("more", [("run", "other plan"), ("other run", "plan")])
def test_a_second_plan_or_run_costs_the_right_to_quote_the_cost(promise: Make, more: tuple[str, str]) -> None:
    run, plan = more
    said = promise((VOTE, 100), more=[(run, plan)])
    assert (said["quotes"], said["epsilon"], said["mu_is_exact"]) == ("budget", 2.0, False)
    assert said["data_independent_epsilon"] < 2.0
    assert said["implied_tpr_at_fpr_0.001"] == accounting.tpr_bound(2.0, 1e-5, 1e-3)


def test_the_document_says_whom_it_protects_and_whom_not(promise: Make) -> None:
    listed, private = promise((VOTE, 1)), promise(units=None, roster=None, budget=None)
    assert "The roster of 1,000 places is public: being on it is not protected." in listed["protects"]
    assert "How many records there are is private." in private["protects"]
    for said in (listed, private):
        assert "comes back under another id counts as two" in said["protects"]
        assert "share a record with the public pool or the test part are refused" in said["protects"]  # it depends on the data
        assert "cover this run alone" in said["protects"]
    shared = promise(ledger="shared")["protects"]
    assert "The budget covers all runs that share this ledger." in shared


def test_a_document_is_written_as_plain_json(promise: Make, tmp_path: Path) -> None:
    said = promise((VOTE, 1), look=True)
    write(said, tmp_path / "guarantee.json")
    text = (tmp_path / "guarantee.json").read_text(encoding="utf-8")
    assert json.loads(text) == said
    assert "Infinity" not in text
    assert "NaN" not in text
    with pytest.raises(ValueError, match="not JSON compliant"):
        write({"epsilon": math.nan}, tmp_path / "guarantee.json")
    assert json.loads((tmp_path / "guarantee.json").read_text(encoding="utf-8")) == said  # the old one still stands
