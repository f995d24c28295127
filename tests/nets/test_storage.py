"""Tensors on disk: the format's own bytes, without holding them."""

import json
import stat
import tracemalloc

import pytest
import torch
from safetensors.torch import save

from tutelage.nets import storage
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.privacy.errors import DataError, Unsealed

TENSORS = {
    "weights": torch.arange(12.0).reshape(3, 4),
    "turned": torch.arange(12.0).reshape(3, 4).T,
    "empty": torch.zeros(0, 3),
    "one": torch.tensor(3.0),
    'named "é"': torch.arange(3, dtype=torch.int16),
    "half": torch.ones(5).bfloat16(),
    "also": torch.ones(5).half(),
    "double": torch.ones(2, dtype=torch.float64),
    "whole": torch.arange(5),
    "small": torch.arange(5, dtype=torch.int32),
    "tiny": torch.arange(5, dtype=torch.int8),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "bits": torch.tensor([True, False]),
}
TOLD = {"kind": "test/1", "note": "é"}


def test_the_file_is_what_the_format_s_own_writer_gives(tmp_path, monkeypatch) -> None:
    expected = save({name: tensor.contiguous() for name, tensor in TENSORS.items()}, {"tutelage": json.dumps(TOLD)})
    for most in (storage._BYTES, 7):  # in many parts, too
        monkeypatch.setattr(storage, "_BYTES", most)
        write_tensors(tmp_path / "file", TENSORS, TOLD, private=False)
        assert (tmp_path / "file").read_bytes() == expected
    tensors, told = read_tensors(tmp_path / "file", kind="test/1")
    assert told == TOLD
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())


def test_nothing_is_held_twice(tmp_path) -> None:
    big = {"weights": torch.zeros(1 << 23)}  # 32 MiB
    tracemalloc.start()
    write_tensors(tmp_path / "file", big, TOLD, private=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 22


def test_what_is_private_stays_in_its_folder(tmp_path) -> None:
    with pytest.raises(Unsealed):
        write_tensors(tmp_path / "file", TENSORS, TOLD, private=True)
    write_tensors(tmp_path / "private" / "file", TENSORS, TOLD, private=True)
    assert stat.S_IMODE((tmp_path / "private" / "file").stat().st_mode) == 0o600


def test_kinds_that_the_format_has_no_name_for_are_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="`tensors` must be of"):
        write_tensors(tmp_path / "file", {"turning": torch.zeros(2, dtype=torch.complex64)}, TOLD, private=False)
    assert not any(tmp_path.iterdir())
