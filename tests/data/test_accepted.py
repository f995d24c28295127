from __future__ import annotations

import numpy as np
import pytest

from tutelage.data.accepted import Accepted, numbers, taken
from tutelage.data.dataset import Public
from tutelage.data.pixels import scale
from tutelage.privacy.errors import DataError

RNG = np.random.default_rng(0)
RAW = RNG.integers(0, 256, (20, 1, 6, 6), dtype=np.uint8)
IMAGES = scale(RAW)


def test_bytes_are_scaled_as_the_pool_was() -> None:
    takes = Accepted.of(IMAGES)
    assert takes.scaled
    for given in (IMAGES, IMAGES.astype(np.float64), RAW, RAW[:, 0], RAW.reshape(20, 36), IMAGES[:, 0]):
        np.testing.assert_allclose(takes(given), IMAGES, atol=1e-7)
    colour = Accepted.of(RNG.random((5, 3, 6, 6)))
    last = RNG.integers(0, 256, (4, 6, 6, 3), dtype=np.uint8)
    np.testing.assert_array_equal(colour(last), scale(last.transpose(0, 3, 1, 2)))


@pytest.mark.parametrize(
    ("pool", "given", "rule"),
    [
        (IMAGES, RAW.astype(np.float32), r"scaled as the pool was, whose values lie in \[0, 1\]. Got values in \[0, 255\]"),
        (IMAGES, RAW.astype(np.int64), r"must be float \(or bytes, which are divided by 255\).* Got int64"),
        (IMAGES, RAW[:, :, :5], r"records of shape \(1, 6, 6\), as the model learned from. Got \(1, 5, 6\)"),
        (IMAGES, RAW[0, 0], r"records of shape"),
        (RAW, IMAGES, "must be uint8, as the model learned from. Got float"),
        (6 * IMAGES - 3, RAW, "must be float, as the model learned from. Got uint8"),
        (6 * IMAGES - 3, 400 * IMAGES, "scaled as the pool was"),
        (RNG.random((5, 7)), RNG.integers(0, 9, (5, 7)), "must be float, as the model learned from. Got int64"),
        (RNG.random((5, 7)), RNG.random((5, 8)), r"records of shape \(7,\)"),
    ],
)
def test_other_inputs_are_refused(pool: np.ndarray, given: np.ndarray, rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        Accepted.of(pool)(given)


def test_a_table_of_whole_numbers_is_one_of_floats() -> None:
    given = RNG.integers(0, 9, (5, 7), dtype=np.uint8)
    for kind in (np.uint8, np.int64):
        taken_ = taken(Public.of(given.astype(kind)))(given)
        assert taken_.dtype == np.float64
        assert np.array_equal(taken_, given)
    assert np.array_equal(taken(Public.of(given > 4))(given > 4), given > 4)


def test_tables_may_have_gaps_and_outliers() -> None:
    rows = RNG.random((5, 7))
    rows[0, 0], rows[1, 1] = np.nan, 1e6
    assert Accepted.of(RNG.random((50, 7)))(rows) is rows


def test_only_the_sides_may_be_others_where_windows_are_looked_through() -> None:
    takes, larger = Accepted.of(IMAGES), IMAGES.repeat(2, axis=2)
    assert takes(larger, any_size=True).shape == (20, 1, 12, 6)
    with pytest.raises(DataError, match="records of shape"):
        takes(larger.repeat(3, axis=1), any_size=True)
    volumes = Accepted.of(RNG.random((3, 1, 4, 4, 4)))
    assert volumes(RNG.random((2, 1, 8, 4, 4)), any_size=True).shape == (2, 1, 8, 4, 4)


def test_it_is_stored_as_one_line() -> None:
    takes = Accepted.of(IMAGES)
    assert Accepted.read(takes.plain()) == takes
    assert taken(Public.of(IMAGES)) == taken(IMAGES) == takes
    for damaged in ("", "{}", "[]", '{"shape": 3}', "[" * 100_000):
        with pytest.raises(DataError, match="says what it takes"):
            Accepted.read(damaged)


def test_floats_of_any_width_are_one_kind() -> None:
    assert numbers(np.float32) == numbers("float64") == "float"
    assert len({numbers(kind) for kind in (np.uint8, np.int16, np.float16, bool)}) == 4
