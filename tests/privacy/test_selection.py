"""The sparse vector technique at the door: positions first, then values, each charged before it reads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.privacy.bounds import Ball, Cube
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import BudgetExceeded, RecipeError
from tutelage.privacy.events import Gaussian, SparseVector
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.mechanisms import AboveThreshold, GNMax, NoisyMean
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Unit

TEACHERS, DIMENSION = 20, 6
BOUND = Ball(DIMENSION, 1.0)
SURE = 40.0  # so little noise that the positions are right: a wrong one has a chance below 1e-12


class Same:
    """Send codes as they are."""

    bound, key = BOUND, "same"

    def encode(self, predictions: Any) -> Any:
        return predictions

    def decode(self, codes: Any, inputs: Any) -> Any:
        return codes


class Agreed:
    """All teachers give the same vector: coordinates 1 and 4 are large."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger, self.spent = ledger, [0]

    def vote(self, inputs: Any) -> Sealed:
        if self.ledger is not None:
            self.spent.append(sum(count for _, count in self.ledger.totals()))
        one = np.zeros(DIMENSION)
        one[[1, 4]] = 0.6, -0.7
        return Sealed(np.broadcast_to(one, (TEACHERS, len(inputs), DIMENSION)).copy())


def curator(path: Path, epsilon: float = 1e4, sigma: float = 1.0, **more: Any) -> Curator:
    ledger = Ledger(path / "book.sqlite", Budget(epsilon, 1e-5))
    selection = AboveThreshold(BOUND, 0.3, SURE, SURE, 2, TEACHERS)
    given = {"selection": selection, **more}
    return Curator(Agreed(ledger), Same(), NoisyMean(BOUND, sigma, TEACHERS), ledger, **given)


def test_large_coordinates_are_let_out_with_noise_and_the_others_are_nothing(tmp_path: Path) -> None:
    door = curator(tmp_path)
    found = door.codes(np.arange(40.0)[:, None])
    right = found[(found[:, [1, 4]] != 0).all(axis=1)]
    assert len(right) == 40
    assert ((found != 0).sum(axis=1) <= 2).all()
    assert np.allclose(right[:, [1, 4]], [0.6, -0.7], atol=0.3)
    assert not np.allclose(right[:, [1, 4]], [0.6, -0.7], atol=1e-6)


def test_both_steps_are_charged_before_any_teacher_is_asked(tmp_path: Path) -> None:
    door = curator(tmp_path)
    door.codes(np.arange(7.0)[:, None])
    assert dict(door.ledger.totals()) == {
        SparseVector(SURE, SURE, 2): 7,
        Gaussian(2.0 * (1 + 2.0**-24), 1.0): 7,
    }
    assert door.teachers.spent == [0, 14]  # type: ignore[attr-defined]
    door.codes(np.arange(7.0)[:, None])  # again: free
    assert sum(count for _, count in door.ledger.totals()) == 14


def test_what_does_not_fit_is_refused_and_no_teacher_is_asked(tmp_path: Path) -> None:
    door = curator(tmp_path, epsilon=85.0)  # the positions fit, the values do not
    with pytest.raises(BudgetExceeded):
        door.codes(np.arange(1.0)[:, None])
    assert door.teachers.spent == [0]  # type: ignore[attr-defined]
    assert door.affordable() == 0
    assert door.ledger.totals() == []


def test_values_outside_the_selection_do_not_reach_the_release(tmp_path: Path) -> None:
    unselected = [0, 2, 3, 5]
    assert (curator(tmp_path).codes(np.arange(5.0)[:, None])[:, unselected] == 0).all()
    twin = NoisyMean(BOUND, 1.0, TEACHERS).contribute(Agreed().vote(np.zeros((5, 1))))  # lets out everything
    assert (twin[:, unselected] != 0).any()


def test_a_question_with_a_selection_is_another_question(tmp_path: Path) -> None:
    door = curator(tmp_path)
    door.codes(np.arange(3.0)[:, None])
    plain = Curator(Agreed(), Same(), NoisyMean(BOUND, 1.0, TEACHERS), door.ledger)
    assert not plain.known(np.arange(3.0)[:, None])


@pytest.mark.parametrize(
    "more",
    [
        {"selection": AboveThreshold(Ball(DIMENSION, 2.0), 0.3, 5.0, 5.0, 2, TEACHERS)},
        {"selection": AboveThreshold(Cube(DIMENSION), 0.3, 5.0, 5.0, 2, TEACHERS)},
        {"selection": AboveThreshold(BOUND, 0.3, 5.0, 5.0, 2, TEACHERS + 1)},
    ],
)
def test_a_selection_of_another_bound_or_other_teachers_is_refused(tmp_path: Path, more: Any) -> None:
    with pytest.raises(RecipeError, match="`selection` must come with a NoisyMean of the same bound and teachers"):
        curator(tmp_path, **more)


def test_a_selection_needs_a_mean_and_the_books_unit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book.sqlite", Budget(8.0, 1e-5))
    selection = AboveThreshold(BOUND, 0.3, 5.0, 5.0, 2, TEACHERS)
    with pytest.raises(RecipeError, match="`selection` must come with a NoisyMean"):
        Curator(Agreed(), Same(), GNMax(DIMENSION, 10.0, Unit(), TEACHERS), ledger, selection=selection)
    reaching = AboveThreshold(BOUND, 0.3, 5.0, 5.0, 2, TEACHERS, Unit("record", 2))
    with pytest.raises(RecipeError, match="`unit` must reach the 1 teachers"):
        Curator(Agreed(), Same(), NoisyMean(BOUND, 1.0, TEACHERS), ledger, selection=reaching)
