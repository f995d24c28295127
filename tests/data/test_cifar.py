from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from tutelage.data.cifar import read_cifar
from tutelage.privacy.errors import DataError, RecipeError

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)


def write_binary(path: Path, pixels: np.ndarray, *labels: list[int]) -> Path:
    path.write_bytes(np.concatenate([np.array(labels, np.uint8).T, pixels], axis=1).tobytes())
    return path


def test_binary_batches_are_joined_in_order(tmp_path):
    first = write_binary(tmp_path / "data_batch_1.bin", PIXELS[:3], [3, 0, 9])
    second = write_binary(tmp_path / "data_batch_2.bin", PIXELS[3:], [1])
    records = read_cifar([first, second], classes=10)
    assert records.inputs.shape == (4, 3, 32, 32)
    assert records.inputs.dtype == np.float32
    assert np.array_equal(np.round(records.inputs * 255).reshape(4, -1), PIXELS)  # red, then green, then blue, by rows
    assert records.targets.tolist() == [3, 0, 9, 1]


def test_binary_cifar_100_gives_the_fine_label(tmp_path):
    path = write_binary(tmp_path / "train.bin", PIXELS, [19, 0, 1, 2], [99, 5, 50, 0])
    assert read_cifar([path], classes=100).targets.tolist() == [99, 5, 50, 0]


@pytest.mark.parametrize("cut", [0, 100, 3072, 3074])
def test_refuses_a_truncated_binary_batch(tmp_path, cut):
    path = write_binary(tmp_path / "a.bin", PIXELS, [0, 1, 2, 3])
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match="whole rows of 3073"):
        read_cifar([path], classes=10)


def test_refuses_a_label_outside_the_classes(tmp_path, python_batch):
    binary = write_binary(tmp_path / "a.bin", PIXELS[:1], [10])
    pickled = tmp_path / "data_batch_1"
    pickled.write_bytes(python_batch(PIXELS[:1], [10]))
    for path in (binary, pickled):
        with pytest.raises(DataError, match="labels of 10 classes"):
            read_cifar([path], classes=10)


def test_refuses_another_number_of_classes(tmp_path):
    with pytest.raises(RecipeError, match="10 or 100"):
        read_cifar([tmp_path / "a.bin"], classes=20)


def test_python_2_batches_equal_binary_ones(tmp_path, python_batch):
    pickled = tmp_path / "data_batch_1"
    pickled.write_bytes(python_batch(PIXELS, [3, 0, 9, 1]))
    binary = write_binary(tmp_path / "data_batch_1.bin", PIXELS, [3, 0, 9, 1])
    ours, theirs = read_cifar([pickled], classes=10), read_cifar([binary], classes=10)
    assert np.array_equal(ours.inputs, theirs.inputs)
    assert np.array_equal(ours.targets, theirs.targets)


def test_python_cifar_100_reads_the_fine_labels(tmp_path, python_batch):
    path = tmp_path / "train"
    path.write_bytes(python_batch(PIXELS, [99, 5, 50, 0], key=b"fine_labels"))
    assert read_cifar([path], classes=100).targets.tolist() == [99, 5, 50, 0]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("order", ["C", "F"])
def test_batches_rewritten_by_python_3_are_read(tmp_path, protocol, order):
    path = tmp_path / "data_batch_1"
    batch = {"data": np.asarray(PIXELS, order=order), "labels": [3, 0, 9, 1]}
    path.write_bytes(pickle.dumps(batch, protocol=protocol))
    records = read_cifar([path], classes=10)
    assert np.array_equal(np.round(records.inputs * 255).reshape(4, -1), PIXELS)


class Evil:
    def __reduce__(self):
        return os.system, ("touch pwned",)


def build_on_function() -> bytes:
    # Calls BUILD with a slot state on an allowed callable, as an attack on its defaults would.
    return b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nN}U\x0c__defaults__Ns\x86b."


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Evil()),
        pickle.dumps({"data": Evil(), "labels": [0]}),
        b"cos\nsystem\n(S'touch pwned'\ntR.",
        b'cbuiltins\neval\n(S\'open("pwned", "w")\'\ntR.',
        b"\x80\x04\x8c\x05numpy\x8c\x04load\x93\x8c\x05pwned\x85R.",
        b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.tofile\x93.",  # a dotted name would reach an attribute
        b"\x80\x02cnumpy\nndarray\nK\x01\x85R.",  # ndarray may be named, never called
        b"\x80\x02ccodecs\nopen\nU\x05pwned\x85R.",
        b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00base64\x86R.",
        b"\x80\x02U\x05pwnedQ.",  # a persistent id
        build_on_function(),
        pickle.dumps({"data": np.array([Evil()], dtype=object), "labels": [0]}),
        pickle.dumps({"data": np.zeros((1, 3072)), "labels": [0]}),
        pickle.dumps({"data": PIXELS, "labels": [0]}),
        pickle.dumps({"data": PIXELS[:, :5], "labels": [0] * 4}),
        pickle.dumps({"data": PIXELS, "labels": [True] * 4}),
        pickle.dumps({"data": PIXELS, "labels": "0123"}),
        pickle.dumps({"data": b"bytes", "labels": [0]}),
        pickle.dumps([PIXELS]),
        pickle.dumps({"data": PIXELS, "fine_labels": [0] * 4}),
        b"",
        b"not a pickle",
    ],
)
def test_the_unpickler_refuses_everything_else(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_cifar([path], classes=10)
    assert not (tmp_path / "pwned").exists()
    assert caught.value.__suppress_context__ or caught.value.__cause__ is None


def test_refuses_a_truncated_pickle(tmp_path, python_batch):
    path = tmp_path / "data_batch_1"
    whole = python_batch(PIXELS, [3, 0, 9, 1])
    for keep in range(0, len(whole), 997):
        path.write_bytes(whole[:keep])
        with pytest.raises(DataError):
            read_cifar([path], classes=10)


def test_refuses_an_array_whose_bytes_do_not_fill_its_shape(tmp_path, python_batch):
    path = tmp_path / "data_batch_1"
    whole = python_batch(PIXELS, [3, 0, 9, 1])
    rows, body = b"J\x04\0\0\0", b"T" + len(PIXELS.tobytes()).to_bytes(4, "little") + PIXELS.tobytes()
    for old, new in ((rows, b"J\x05\0\0\0"), (rows, b"J\xfc\xff\xff\xff"), (body, b"N"), (body, b"]")):
        assert whole.count(old) == 1
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(DataError, match="Got ValueError"):
            read_cifar([path], classes=10)


def test_refuses_an_array_of_another_type(tmp_path, python_batch):
    path = tmp_path / "data_batch_1"
    path.write_bytes(python_batch(PIXELS, [3, 0, 9, 1], code=b"f8"))
    with pytest.raises(DataError, match="readable CIFAR batch"):
        read_cifar([path], classes=10)


def test_refuses_a_missing_file(tmp_path):
    for name in ("a.bin", "a"):
        with pytest.raises(DataError, match="FileNotFoundError"):
            read_cifar([tmp_path / name], classes=10)
