"""The data-dependent price: sealed, and never above what every vote would have cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.walk.tiny import CLASSES, TEACHERS, tiny_run

import tutelage as tt
from tutelage.planning import Aggregation, Sanitise
from tutelage.privacy.account import VoteAccount
from tutelage.privacy.errors import DataError
from tutelage.sharing import owned


class Divided:
    """Teachers of whom every class has as many."""

    def fit(self, private: tt.Private, shards: tt.Shards, *, progress: Any = None) -> Divided:
        return self

    def vote(self, inputs: np.ndarray) -> tt.Sealed:
        return tt.Sealed(np.arange(TEACHERS)[:, None] % CLASSES + np.zeros((1, len(inputs)), dtype=int))


@pytest.mark.parametrize("method", ["gnmax", "lnmax", "confident-gnmax"])
def test_votes_that_disagree_never_cost_more_than_any_votes(tmp_path: Path, method: str) -> None:
    outcome = tiny_run(tmp_path / "run", teachers=Divided(), aggregation=tt.Aggregation(method, threshold=0.1))
    raw = float(np.load(tmp_path / "run" / "private" / "data_dependent_epsilon.npy"))
    assert 0 < raw <= outcome.guarantee["data_independent_epsilon"]
    assert str(raw)[:8] not in (tmp_path / "run" / "release" / "labels.csv").read_text(encoding="utf-8")


def test_votes_that_agree_cost_less_and_only_the_inside_knows(tmp_path: Path) -> None:
    outcome = tiny_run(tmp_path / "run", budget=tt.Budget(20.0, 1e-5))
    path = tmp_path / "run" / "private" / "data_dependent_epsilon.npy"
    raw = float(np.load(path))
    assert raw < 0.9 * outcome.guarantee["data_independent_epsilon"]
    assert path.stat().st_mode & 0o077 == 0
    told = (tmp_path / "run" / "release" / "guarantee.json").read_text(encoding="utf-8")
    assert repr(raw) not in told


def test_a_price_of_votes_is_published_for_a_run_alone_and_left_out_beside_others(tmp_path: Path) -> None:
    ledger = tmp_path / "patients.sqlite"
    owned(ledger, tt.Budget(30.0, 1e-5)).close()
    planned = Aggregation("gnmax", sanitise=Sanitise(order=3.0, beta=0.02, sigma=20.0))
    one, two = (
        tiny_run(tmp_path / name, purpose=name, ledger=ledger, aggregation=planned, budget=tt.Budget(12.0, 1e-5))
        for name in ("one", "two")
    )
    assert one.guarantee["sanitised_epsilon"] is not None
    assert two.guarantee["sanitised_epsilon"] is None
    assert tt.verify(two.folder).quotes == "budget"


def test_a_private_figure_that_fails_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(account: VoteAccount, orders: object) -> tt.Sealed:
        raise DataError("`rows` must be 98765.")

    monkeypatch.setattr(VoteAccount, "data_dependent_rdp", failing)
    outcome = tiny_run(tmp_path / "run")
    assert outcome.guarantee["epsilon"] == pytest.approx(8.0)
    assert not any("98765" in path.read_text(errors="ignore") for path in outcome.folder.release.rglob("*") if path.is_file())
