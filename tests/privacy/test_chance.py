"""Steps on private values leave the process's random generators where they were."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from tutelage.privacy.errors import DataError
from tutelage.privacy.sealed import Sealed, quietly


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002


def moved(_: object = None) -> np.ndarray:
    drawn()
    return np.zeros(1)


def failing(_: object = None) -> np.ndarray:
    drawn()
    raise ValueError("private")


@pytest.mark.parametrize("step", [moved, failing])
def test_a_step_on_private_values_moves_no_generator(step) -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    expected = drawn()
    for run in (lambda: quietly("step", step), lambda: Sealed([1.0]).map(step)):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)
        try:
            run()
        except DataError:
            assert step is failing
        assert drawn() == expected
