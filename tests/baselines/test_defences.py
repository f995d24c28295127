"""Defences without a guarantee: each charges ε = ∞ before it reads, learns something, and does what it is known for."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tutelage as tt
from tutelage.baselines.defences.adversarial import AdversarialRegularisation
from tutelage.baselines.defences.memguard import MemGuard
from tutelage.baselines.defences.regularised import Regularised
from tutelage.baselines.defences.transfer import DMP, KCD, SELENA
from tutelage.data.digits import digits
from tutelage.distillation.lessons import Lesson
from tutelage.nets.classics import NormedConvNet
from tutelage.privacy.errors import RecipeError

NET = NormedConvNet(shape=(1, 8, 8), width=8, depth=2)
LESSON = Lesson(steps=100, batch=32, rate=0.05)
GIVEN = {"network": NET, "classes": 10, "lesson": LESSON, "device": "cpu"}
ALL = {
    "weight decay and label smoothing": Regularised(**GIVEN),
    "adversarial regularisation": AdversarialRegularisation(**GIVEN),
    "MemGuard": MemGuard(**GIVEN),
    "DMP": DMP(**GIVEN),
    "SELENA": SELENA(networks=5, without=2, **GIVEN),
    "KCD": KCD(folds=3, **GIVEN),
}


@pytest.fixture(scope="module")
def data():
    private, pool, test = digits()
    return private[:300], pool, test


@pytest.fixture
def ledger(tmp_path):
    with tt.Ledger(tmp_path / "book.sqlite", tt.Budget(1.0, 1e-5)) as ledger:
        yield ledger


@pytest.mark.parametrize("name", ALL)
def test_defence_learns_and_its_ledger_says_that_there_is_no_guarantee(name, data, ledger):
    private, pool, test = data
    model = ALL[name].fit(private, ledger=ledger, public=pool)
    assert math.isinf(ledger.spent().epsilon)
    assert any(name in str(row.body) and "no guarantee" in str(row.body) for row in ledger.entries())
    shares = model.probabilities(test.inputs[:200])
    assert np.allclose(shares.sum(axis=1), 1, atol=1e-4)
    assert np.mean(model.predict(test.inputs) == test.targets) > 0.5


def test_smoothing_makes_a_network_less_sure(data, ledger):
    private, _, _ = data
    plain = Regularised(**GIVEN, decay=0.0, smoothing=0.0).fit(private, ledger=ledger)
    smooth = Regularised(**GIVEN, smoothing=0.5).fit(private, ledger=ledger)
    sure = [model.probabilities(private.inputs).max(axis=1).mean() for model in (plain, smooth)]
    assert sure[1] < sure[0] - 0.1


def test_memguard_keeps_labels_and_its_budget(data, ledger):
    private, pool, test = data
    guarded = MemGuard(**GIVEN, budget=0.3).fit(private, ledger=ledger, public=pool)
    before, after = guarded.inner.probabilities(test.inputs), guarded.probabilities(test.inputs)
    assert (before.argmax(axis=1) == after.argmax(axis=1)).all()
    assert np.abs(before - after).sum(axis=1).max() <= 0.3 + 1e-4
    assert np.abs(before - after).max() > 0
    assert np.allclose(guarded.probabilities(test.inputs[:1]), after[:1], atol=1e-5)  # an answer depends on its input alone


def test_reference_set_is_asked_for_before_anything_is_charged(data, ledger):
    private, pool, _ = data
    for method in ("DMP", "MemGuard", "adversarial regularisation"):
        with pytest.raises(RecipeError, match="public"):
            ALL[method].fit(private, ledger=ledger)
    with pytest.raises(RecipeError, match="public"):
        ALL["adversarial regularisation"].fit(private, ledger=ledger, public=pool.unlabelled())
    assert ledger.spent().epsilon == 0


@pytest.mark.parametrize(("kind", "wrong"), [(SELENA, {"without": 25}), (KCD, {"folds": 1}), (Regularised, {"stop": 0.0})])
def test_settings_that_make_no_sense_are_refused(kind, wrong):
    with pytest.raises(RecipeError):
        kind(**GIVEN, **wrong)
