"""The data-dependent price: sealed, and never above what every vote would have cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.walk.tiny import CLASSES, TEACHERS, tiny_run

import tutelage as tt


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
