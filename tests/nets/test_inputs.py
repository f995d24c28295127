"""Arrays become what a network wants, whatever they look like in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tutelage.nets.inputs import as_inputs
from tutelage.privacy.errors import DataError


@pytest.mark.parametrize(
    ("given", "shape"),
    [((5, 8, 8), (5, 1, 8, 8)), ((5, 8, 8, 3), (5, 3, 8, 8)), ((5, 3, 8, 8), (5, 3, 8, 8)), ((5, 1, 4, 8, 8), (5, 1, 4, 8, 8))],
)
def test_channels_come_first(given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    assert as_inputs(np.zeros(given, np.float32)).shape == shape


def test_bytes_stay_bytes_and_the_rest_is_narrowed() -> None:
    assert as_inputs(np.zeros((2, 4, 4), np.uint8)).dtype == torch.uint8
    assert as_inputs(np.zeros((2, 4, 4), np.float64)).dtype == torch.float32


@pytest.mark.parametrize("rows", [slice(None), slice(2, 3)], ids=["all", "one"])
def test_records_in_reverse_and_such_as_must_not_be_written_are_copied(rows: slice) -> None:
    records = np.arange(4 * 64, dtype=np.float32).reshape(4, 8, 8)
    for one in (records[::-1][rows], np.frombuffer(records.tobytes(), np.float32).reshape(4, 8, 8)[rows]):
        found = as_inputs(one)
        assert np.array_equal(found[:, 0], one)
        found += 1  # nobody else's
    assert records[0, 0, 0] == 0


def test_a_row_of_numbers_is_no_record() -> None:
    with pytest.raises(DataError, match="`inputs` must have at least two dimensions"):
        as_inputs(np.zeros(3))
