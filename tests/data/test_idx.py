from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from tutelage.data.idx import read_digits, read_idx
from tutelage.privacy.errors import DataError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("name", ["a.gz", "a"])
def test_reads_what_was_written_zipped_or_plain(tmp_path, write_idx, name):
    assert np.array_equal(read_idx(write_idx(tmp_path / name, IMAGES), dims=3), IMAGES)


def test_the_gzip_header_does_not_matter(tmp_path, write_idx):
    bare = write_idx(tmp_path / "bare.gz", IMAGES, mtime=0)
    named = tmp_path / "named.gz"
    with named.open("wb") as raw, gzip.GzipFile("train-images-idx3-ubyte", "wb", fileobj=raw, mtime=845_000_000) as out:
        out.write(gzip.decompress(bare.read_bytes()))
    assert bare.read_bytes() != named.read_bytes()
    assert np.array_equal(read_idx(bare, dims=3), read_idx(named, dims=3))


def test_digits_are_floats_in_the_unit_range_with_one_channel(tmp_path, write_idx):
    pixels = np.array([0, 51, 255, 1], np.uint8).reshape(2, 2, 1)
    records = read_digits(write_idx(tmp_path / "i.gz", pixels), write_idx(tmp_path / "l.gz", np.array([7, 3])))
    assert records.inputs.dtype == np.float32
    assert records.inputs.shape == (2, 1, 2, 1)
    assert records.inputs.ravel().tolist() == [0.0, np.float32(0.2), 1.0, np.float32(1 / 255)]
    assert records.targets.dtype == np.int64
    assert records.targets.tolist() == [7, 3]


def test_refuses_another_number_of_labels(tmp_path, write_idx):
    images, labels = write_idx(tmp_path / "i.gz", IMAGES), write_idx(tmp_path / "l.gz", np.array([7]))
    with pytest.raises(DataError, match=r"one label per image, 2\. Got 1"):
        read_digits(images, labels)


def plain(magic: bytes, *sizes: int, body: bytes = b"") -> bytes:
    return magic + struct.pack(f">{len(sizes)}I", *sizes) + body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "magic 00000803. Got  instead"),
        (plain(b"\0\0\x08\x01", 2, body=b"ab"), "Got 00000801"),
        (plain(b"\0\0\x0d\x03", 1, 1, 1, body=b"abcd"), "Got 00000d03"),
        (plain(b"\0\0\x08\x03", 2, 2), "3 sizes"),
        (plain(b"\0\0\x08\x03", 2, 2, 2, body=b"1234567"), "8 bytes for the shape .* Got 7"),
        (plain(b"\0\0\x08\x03", 2, 2, 2, body=b"123456789"), "Got more"),
        (plain(b"\0\0\x08\x03", 0, 2, 2), "between 1 and"),
        (plain(b"\0\0\x08\x03", 2**31, 2**31, 2**31), "between 1 and"),
    ],
)
def test_refuses_damaged_content(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(path, dims=3)


def test_refuses_a_truncated_or_corrupt_gzip(tmp_path, write_idx):
    path = write_idx(tmp_path / "a.gz", np.random.default_rng(0).integers(0, 256, (50, 4, 4)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="readable idx file"):
        read_idx(path, dims=3)
    path.write_bytes(whole[:-8] + bytes(4) + whole[-4:])  # the gzip checksum
    with pytest.raises(DataError):
        read_idx(path, dims=3)
    path.write_bytes(b"\x1f\x8b" + b"nonsense" * 5)
    with pytest.raises(DataError, match="readable idx file"):
        read_idx(path, dims=3)


def test_refuses_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="FileNotFoundError"):
        read_idx(tmp_path / "none", dims=1)
