"""The ROC: known curves, honest intervals, and figures that are not given."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tutelage.audits.roc import Roc, picture
from tutelage.report.plots import svg


def test_figures_are_scikit_learns_with_ties() -> None:
    rng = np.random.default_rng(0)
    members, others = rng.integers(0, 12, 300) + 2, rng.integers(0, 12, 500)
    roc = Roc.of(members, others)
    wanted = roc_auc_score(np.r_[np.ones(300), np.zeros(500)], np.r_[members, others])
    assert roc.auc == pytest.approx(wanted, abs=1e-12)
    assert roc.tpr[0] == roc.fpr[0] == 0
    assert roc.tpr[-1] == roc.fpr[-1] == 1


def test_a_rate_has_clopper_and_pearsons_interval() -> None:
    members, others = np.r_[np.full(30, 5.0), np.zeros(70)], np.r_[np.full(1, 9.0), np.zeros(999)]
    rate = Roc.of(members, others).at(1e-3)
    assert rate.tpr == 0.3  # one of a thousand lies above
    assert rate.low == pytest.approx(0.2124, abs=1e-3)
    assert rate.high == pytest.approx(0.3998, abs=1e-3)
    assert "30.00%" in str(rate)


def test_a_rate_that_the_samples_cannot_give_says_what_it_needs() -> None:
    roc = Roc.of(np.ones(50), np.zeros(160))
    assert roc.at(1e-2).tpr == 1.0
    assert roc.at(1e-3).tpr is None
    assert str(roc.at(1e-3)) == "needs 1,000 non-members"
    assert roc.document()["tpr_at_fpr"]["0.001"]["needed"] == 1000


def test_the_picture_has_log_axes_and_every_curve() -> None:
    rng = np.random.default_rng(0)
    figure = picture({"LiRA": Roc.of(rng.normal(1, 1, 99), rng.normal(0, 1, 99))}, ceiling=lambda rates: np.minimum(1, 3 * rates))
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert {line.get_label() for line in axes.lines[1:]} == {"guessing", "best attack that the claim allows"}
    assert svg(figure).startswith("<svg")
