from __future__ import annotations

import numpy as np
import pytest

from tutelage.data.records import Records, check_classes
from tutelage.privacy.errors import DataError


def test_prints_its_size_alone():
    assert repr(Records(np.array([[3.25]]), np.array([1]), np.array([77]))) == "Records(1)"


def test_rows_stay_together():
    records = Records(np.arange(6).reshape(3, 2), np.array([0, 1, 2]), np.array([7, 8, 9]))[[2, 0]]
    assert records.inputs.tolist() == [[4, 5], [0, 1]]
    assert records.targets.tolist() == [2, 0]
    assert records.units.tolist() == [9, 7]


@pytest.mark.parametrize(("targets", "units"), [([0], None), ([0, 1], [1])])
def test_refuses_unequal_lengths(targets, units):
    with pytest.raises(DataError, match="one entry per record"):
        Records(np.zeros((2, 1)), np.array(targets), None if units is None else np.array(units))


@pytest.mark.parametrize("label", [-1, 3])
def test_refuses_labels_outside_the_classes(label):
    with pytest.raises(DataError, match="3 classes"):
        check_classes("set", np.array([0, label]), 3)
