from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest

from tutelage.data import dataset
from tutelage.data.dataset import Public


@pytest.mark.parametrize(
    "inputs",
    [
        np.random.default_rng(0).normal(size=(50, 3, 4)),
        np.asfortranarray(np.random.default_rng(0).normal(size=(50, 7))),
        np.arange(100, dtype=np.uint8)[::3],
        np.zeros((0, 4)),
        np.zeros((4, 0)),
        np.array(["a", "bcd"]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_the_hash_is_that_of_all_bytes(inputs: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = hashlib.sha256(np.ascontiguousarray(inputs).tobytes()).hexdigest()
    assert Public(inputs).sha256 == expected
    monkeypatch.setattr(dataset, "_BYTES", 100)  # many passes
    assert Public(inputs).sha256 == expected


def test_inputs_on_disk_are_not_read_whole(tmp_path) -> None:
    big = np.lib.format.open_memmap(
        tmp_path / "big.npy", mode="w+", dtype=np.float32, shape=(200, 400, 1000)
    )  # 305 MiB, of holes
    tracemalloc.start()
    Public(big)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < big.nbytes / 4
