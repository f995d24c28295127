"""Small real images, unequal shards, one torch thread."""

import pytest
import torch
from tests.nets.training_tasks import masks, task  # noqa: F401 (fixtures)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
