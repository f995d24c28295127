from __future__ import annotations

import numpy as np
import pytest

from tutelage.data.columns import OneHot, Scaled
from tutelage.privacy.errors import DataError


def test_one_hot_has_a_column_for_missing_and_for_other():
    column = OneHot("colour", ("red", "blue"), missing="?", other=True)
    assert column.features == ("colour=red", "colour=blue", "colour=missing", "colour=other")
    encoded = column.encode(["blue", "?", "green", "red"])
    assert encoded.dtype == np.float32
    assert encoded.argmax(axis=1).tolist() == [1, 2, 3, 0]
    assert (encoded.sum(axis=1) == 1).all()


def test_one_hot_does_not_depend_on_the_other_rows():
    column = OneHot("colour", ("red", "blue"), missing="?")
    assert np.array_equal(column.encode(["blue", "red", "?"])[:1], column.encode(["blue"]))


def test_one_hot_refuses_an_undocumented_category_without_showing_it():
    with pytest.raises(DataError, match="`colour` must be one of its 2 documented") as caught:
        OneHot("colour", ("red", "blue")).encode(["red", "secret"])
    assert "secret" not in str(caught.value)


def test_scaled_is_a_fixed_map_into_the_unit_range():
    encoded = Scaled("age", 100).encode(["0", "39", "100", "250"])
    assert encoded.dtype == np.float32
    assert encoded.shape == (4, 1)
    assert encoded.ravel().tolist() == [0.0, np.float32(0.39), 1.0, 1.0]
    gain = Scaled("gain", 99, log=True).encode(["0", "9", "99"]).ravel()
    assert gain == pytest.approx([0.0, 0.5, 1.0])


@pytest.mark.parametrize("cell", ["secret", "", "-1", "nan", "inf", "-inf"])
def test_scaled_refuses_anything_but_a_number_from_zero(cell):
    with pytest.raises(DataError, match="`age` must be a number") as caught:
        Scaled("age", 100).encode(["1", cell])
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "secret" not in str(caught.value)
