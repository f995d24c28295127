from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.io import savemat

from tutelage.data import svhn
from tutelage.data.svhn import read_svhn
from tutelage.privacy.errors import DataError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
Y = np.array([[1], [10], [9], [10]], np.uint8)


def test_records_come_first_then_channels_and_ten_is_zero(tmp_path):
    path = tmp_path / "train_32x32.mat"
    savemat(path, {"X": X, "y": Y}, do_compression=True)
    records = read_svhn(path)
    assert records.inputs.shape == (4, 3, 32, 32)
    assert records.inputs.dtype == np.float32
    assert records.inputs.flags.c_contiguous
    assert records.inputs[2, 1, 5, 7] == np.float32(X[5, 7, 1, 2]) / np.float32(255)
    assert records.targets.tolist() == [1, 0, 9, 0]


def test_several_files_are_one_set_of_records_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(svhn, "_ROWS", 2)
    names = [tmp_path / f"{name}.mat" for name in ("train", "extra", "more")]
    for name, content in zip(names, (X, X[..., :3][..., ::-1], X[..., 3:]), strict=True):
        savemat(name, {"X": content, "y": RNG.integers(1, 11, (content.shape[3], 1))})
    alone = [read_svhn(name) for name in names]
    together = read_svhn(*names)
    assert np.array_equal(together.inputs, np.concatenate([part.inputs for part in alone]))
    assert together.targets.tolist() == np.concatenate([part.targets for part in alone]).tolist()
    assert np.array_equal(alone[0].inputs, X.transpose(3, 2, 0, 1).astype(np.float32) / np.float32(255))


def test_all_records_are_floats_only_once(tmp_path):
    many = np.zeros((32, 32, 3, 3000), dtype=np.uint8)
    for name in ("a", "b"):
        savemat(tmp_path / f"{name}.mat", {"X": many, "y": np.ones((3000, 1), np.uint8)})
    tracemalloc.start()
    records = read_svhn(tmp_path / "a.mat", tmp_path / "b.mat")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.7 * records.inputs.nbytes  # the bytes are a quarter of it, and a file is read in two copies


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"X": X}, "variables X and y"),
        ({"X": X.astype(np.float64), "y": Y}, "must be bytes of shape"),
        ({"X": X[:31], "y": Y}, "must be bytes of shape"),
        ({"X": X, "y": Y[:3]}, "one label per image, 4. Got 3"),
        ({"X": X, "y": np.array([[0], [1], [2], [3]], np.uint8)}, "labels 1..10"),
        ({"X": X, "y": np.array([[1.5], [1], [2], [3]])}, "labels 1..10"),
    ],
)
def test_refuses_other_content(tmp_path, content, message):
    path = tmp_path / "a.mat"
    savemat(path, content)
    with pytest.raises(DataError, match=message):
        read_svhn(path)


@pytest.mark.parametrize("keep", [0, 60, 200, 0.5, 0.95])
def test_refuses_a_truncated_file(tmp_path, keep):
    path = tmp_path / "a.mat"
    savemat(path, {"X": X, "y": Y}, do_compression=True)
    whole = path.read_bytes()
    path.write_bytes(whole[: keep if isinstance(keep, int) else int(len(whole) * keep)])
    with pytest.raises(DataError):
        read_svhn(path)


def test_refuses_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="FileNotFoundError"):
        read_svhn(tmp_path / "none.mat")
