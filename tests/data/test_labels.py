from __future__ import annotations

import numpy as np
import pytest

from tutelage.data.dataset import Private, Public


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int32, bool])
def test_labels_are_whole_numbers_that_may_be_below_zero(kind: type) -> None:
    labels, inputs = np.asarray([0, 1, 1, 0]).astype(kind), np.zeros((4, 2))
    for data in (Private.of(inputs, labels), Public.of(inputs, labels), Public(inputs, labels), Private.of(inputs, labels)[1:]):
        assert data.targets is not None
        assert data.targets.dtype == np.int64
    assert np.where([True, False, True, True], Public.of(inputs, labels).targets, -1).min() == -1


def test_a_number_that_is_no_label_does_not_become_one() -> None:
    huge = np.asarray([2**64 - 1, 1], dtype=np.uint64)
    assert Public.of(np.zeros((2, 2)), huge).targets.tolist() == [2**63 - 1, 1]  # type: ignore[union-attr]


def test_masks_and_measurements_stay_as_they_are() -> None:
    for targets in (np.zeros((4, 8, 8), np.uint8), np.zeros((4, 2), np.float32)):
        assert Private.of(np.zeros((4, 8, 8)), targets).targets.dtype == targets.dtype
    assert Public.of(np.zeros((4, 2)), [0.5, 1, 2, 3]).targets.tolist() == [0.5, 1, 2, 3]  # type: ignore[union-attr]
    assert Private.of(np.zeros((4, 2)), [0.5, 1, 2, 3]).targets.tolist() == [-1, 1, 2, 3]
