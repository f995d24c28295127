"""Pieces give what a copy would give, read when asked for, and keep nothing of what is mapped."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tutelage.nets import pieces as module
from tutelage.nets.inputs import as_inputs
from tutelage.nets.masks import windows
from tutelage.nets.pieces import Pieces, finite, images_of, laid, with_blank

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64, np.int16])
@pytest.mark.parametrize("shape", [(5, 9, 11), (5, 2, 9, 11), (5, 9, 11, 3), (5, 2, 6, 9, 7)])
def test_windows_are_those_of_a_copy(shape: tuple[int, ...], kind: Any) -> None:
    array = (np.random.default_rng(0).random(shape) * 200).astype(kind)
    copied = as_inputs(array)
    places = list(windows(tuple(copied.shape[2:]), (4,) * (copied.ndim - 2), overlap=False))
    cut = torch.stack([copied[(slice(None), slice(None), *place)] for place in places], dim=1).flatten(0, 1)
    read = Pieces.inputs(array, places)
    assert (read.shape, read.dtype, read.ndim, len(read)) == (tuple(cut.shape), cut.dtype, cut.ndim, len(cut))
    assert read.nbytes == cut.nbytes
    rows = torch.randint(0, len(cut), (3, 4))
    assert torch.equal(read[rows], cut[rows])
    assert torch.equal(read[rows[0].numpy()], cut[rows[0]])
    assert torch.equal(read[:3], cut[:3])
    assert torch.equal(read.whole(), cut)
    assert all(torch.equal(one, other) for one, other in zip(read.each(), cut, strict=True))
    whole = Pieces.inputs(array)
    assert torch.equal(whole.whole(), copied)
    assert "array" not in repr(read)


def test_masks_are_bytes_or_shares_and_are_cut_where_asked() -> None:
    values = np.random.default_rng(0).normal(0.5, 1, (4, 5, 6))
    read = Pieces.masks(values, clip=True)
    assert torch.equal(read.whole(), torch.from_numpy(np.clip(values, 0, 1).astype(np.float32)))
    assert not torch.equal(Pieces.masks(values).whole(), read.whole())
    assert Pieces.masks(values > 0.5).dtype == Pieces.masks((values > 0.5).astype(np.int64)).dtype == torch.uint8


def test_some_records_of_a_pool_are_a_tensor_or_pieces_of_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, chosen = np.random.default_rng(0).random((6, 1, 5, 4)), np.array([4, 0, 5])
    held = images_of(pool, chosen, CPU)
    assert isinstance(held, torch.Tensor)
    monkeypatch.setattr(module, "HELD", held.nbytes - 1)
    read = images_of(pool, chosen, CPU)
    assert isinstance(read, Pieces)
    assert torch.equal(read.whole(), held)
    assert torch.equal(read[torch.tensor([2, 2])], held[[2, 2]])


def test_material_is_laid_out_where_there_is_room_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device of no data stands for a GPU; what is wanted is which of them are tensors."""
    inputs, masks = Pieces.inputs(np.zeros((3, 1, 4, 4), np.float32)), Pieces.masks(np.zeros((3, 4, 4), np.uint8))
    assert all(isinstance(one, Pieces) for one in laid(inputs, masks, CPU))
    for room, kind in ((inputs.nbytes + masks.nbytes, torch.Tensor), (inputs.nbytes, Pieces)):
        monkeypatch.setattr(module, "_fits", lambda nbytes, _, room=room: nbytes <= room)
        both = laid(inputs, masks, torch.device("meta"))
        assert [type(one) for one in both] == [kind, kind]
        assert [one.device.type for one in both] == ["meta", "meta"]
    tensors = laid(torch.zeros(3, 1), torch.zeros(3), CPU)
    assert all(isinstance(one, torch.Tensor) for one in tensors)


def test_a_blank_row_stands_behind_the_others_of_tensors_and_of_pieces() -> None:
    array = np.random.default_rng(0).random((7, 2, 5, 4)).astype(np.float32)
    places = list(windows((5, 4), (3, 2), overlap=False))
    for source in (Pieces.inputs(array), Pieces.inputs(array, places), Pieces.inputs(array[:0]), torch.from_numpy(array)):
        more, count = with_blank(source), len(source)
        assert (len(more), more.shape[1:], more.dtype) == (count + 1, source.shape[1:], source.dtype)
        assert torch.equal(more[torch.arange(count)], source[torch.arange(count)])
        assert not more[torch.tensor([[count, count]])].any()
        assert more[torch.tensor([[count, count]])].shape == (1, 2, *source.shape[1:])
    assert torch.equal(with_blank(Pieces.inputs(array)).whole(), with_blank(torch.from_numpy(array)))


@pytest.mark.filterwarnings("error")
def test_what_is_not_finite_is_read_as_nothing() -> None:
    array = np.ones((3, 1, 2, 2))
    array[0, 0, 0, 0], array[1, 0, 1, 1], array[2, 0, 1, 0] = math.nan, -math.inf, 1e300  # the last is no float32
    read = Pieces.inputs(array).whole()
    assert (read == 0).sum() == 3
    assert (read == 1).sum() == 9
    held = torch.tensor([math.nan, math.inf, 2.0])
    assert torch.equal(finite(held), torch.tensor([0.0, 0.0, 2.0]))
    assert held[1] == math.inf  # the caller's array is left alone
    assert finite(held[2:]).data_ptr() == held[2:].data_ptr()
    odd = np.array([[[-1, 256], [2, 0]]])
    assert torch.equal(Pieces.masks(odd, clip=True).whole(), torch.tensor([[[0, 1], [1, 0]]], dtype=torch.uint8))
    odd = np.array([[[math.nan, math.inf], [-math.inf, 0.5]]])
    assert torch.equal(Pieces.masks(odd, clip=True).whole(), torch.tensor([[[0, 1], [0, 0.5]]]))


def test_another_device_is_another_view_of_the_same_array() -> None:
    one = Pieces.masks(np.zeros((2, 3, 3)))
    other = one.on(torch.device("meta"))
    assert other.array is one.array
    assert (one.device, other.device, other[:1].device) == (CPU, torch.device("meta"), torch.device("meta"))
    assert replace(other, device=CPU).shape == one.shape


PROGRAM = """
import resource, sys
import numpy as np
from tutelage.data.dataset import Private
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.teachers.segmenter import Segmenter
shape = (24, 1, 128, 128, 96)
inputs = np.lib.format.open_memmap(sys.argv[1] + "/inputs.npy", mode="w+", dtype=np.float32, shape=shape)
targets = np.lib.format.open_memmap(sys.argv[1] + "/targets.npy", mode="w+", dtype=np.uint8, shape=(24, 128, 128, 96))
del inputs, targets
inputs, targets = (np.load(f"{sys.argv[1]}/{name}.npy", mmap_mode="r") for name in ("inputs", "targets"))
private = Private.of(inputs, targets)
def fit(steps, *parts):
    training = Training(steps=steps, batch=2, augmentation=None)
    network = UNet(shape=(1, 16, 16, 16), widths=(2, 4), groups=1)
    teachers = Segmenter(network, training=training, engine="sequential", device="cpu", checkpoint=sys.argv[1] + "/private")
    teachers.through((16, 16, 16)).fit(Private.of(*parts), Private.of(*parts).split(2))
fit(1, np.zeros((2, 1, 16, 16, 16), np.float32), np.zeros((2, 16, 16, 16), np.uint8))
__import__("shutil").rmtree(sys.argv[1] + "/private")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fit(20, inputs, targets)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts KiB, and on mapped pages being let go")
def test_teachers_of_mapped_scans_hold_what_a_batch_needs(tmp_path: Path) -> None:
    """144 MiB of scans and 36 of masks. The twin, which cut them into windows first, held them twice over."""
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    said = subprocess.run(words, env=settings, check=True, capture_output=True, text=True).stdout
    assert int(said) < 40 * 1024
