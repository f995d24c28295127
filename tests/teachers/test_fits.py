"""Which fit a file is of: another one is refused, the same one on another CPU goes on."""

import json
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tutelage.teachers import fits
from tutelage.teachers.engines import Job
from tutelage.teachers.fits import Fit


class Turned(nn.Module):
    """A network whose name and layers do not say all: the sign of what it computes, and how it begins."""

    sign, begin = 1.0, 0.0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 2)
        nn.init.constant_(self.layer.weight, self.begin)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.sign * self.layer(images.flatten(1))


@pytest.fixture
def fit(task):
    records, targets = torch.from_numpy(task.inputs)[:, None], torch.from_numpy(task.targets)
    shards = tuple(torch.from_numpy(shard) for shard in task.shards)

    def make(**changed) -> Fit:
        given = {"records": records, "targets": targets, "shards": shards, "seed": 3, "training": task.training} | changed
        job = Job(factory=Turned, training=given.pop("training"), seed=given.pop("seed"))
        return Fit.of(job, **given)

    return make


def test_it_knows_what_a_network_computes_and_how_it_begins(fit, monkeypatch) -> None:
    first = fit()
    assert fit().wrote(first.metadata)
    for name, value in (("sign", -1.0), ("begin", 0.5)):
        with monkeypatch.context() as patch:
            patch.setattr(Turned, name, value)
            assert not fit().wrote(first.metadata)


def test_it_knows_records_shards_seed_and_training(fit, task) -> None:
    first = fit()
    records = torch.from_numpy(task.inputs)[:, None]
    shards = tuple(torch.from_numpy(shard) for shard in task.shards)
    learned_from_others = [
        fit(records=records.transpose(2, 3)),
        fit(records=records[:-1]),
        fit(records=records.clone().index_fill_(0, torch.tensor([0]), 0.5)),
        fit(targets=torch.from_numpy(task.targets).flip(0)),
        fit(shards=shards[::-1]),
    ]
    other_settings = [
        fit(seed=4),
        fit(shards=shards[1:]),
        fit(training=replace(task.training, steps=task.training.steps + 1)),
    ]
    assert not any(other.wrote(first.metadata) for other in learned_from_others + other_settings)
    assert all(other.asked(first.metadata) for other in learned_from_others)  # whoever refuses them tells of a record
    assert not any(other.asked(first.metadata) for other in other_settings)
    assert not first.wrote({})


def test_sums_in_another_order_are_the_same_fit(fit) -> None:
    """Before, outputs went into the digest rounded to four digits: of many numbers some always round the other way."""
    first = fit()

    def nudged(share: float) -> Fit:
        return Fit(
            first.settings,
            first.digest,
            tuple(tuple(value + share * max(map(abs, some)) for value in some) for some in first.begins),
        )

    assert nudged(1e-5).wrote(first.metadata)
    assert not nudged(1e-2).wrote(first.metadata)
    assert not Fit(first.settings, first.digest, first.begins[:-1]).wrote(first.metadata)


PROBE = """
import json, sys, torch
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.teachers.engines import Job
from tutelage.teachers.fits import Fit
torch.set_num_threads(int(sys.argv[1]))
records, targets = torch.zeros(2, 1, 16, 16, 16), torch.zeros(2, 16, 16, 16)
job = Job(factory=UNet(shape=(1, 16, 16, 16), widths=(8, 16)), training=Training(steps=2, augmentation=None), seed=0)
print(json.dumps(Fit.of(job, records, targets, (torch.arange(2),)).metadata))
"""


def test_a_fit_goes_on_with_other_threads_and_instructions() -> None:
    told = []
    for threads, added in (("1", {}), ("2", {"ATEN_CPU_CAPABILITY": "default"})):
        given = {"env": {**os.environ, **added}, "capture_output": True, "text": True, "check": True}
        told.append(json.loads(subprocess.run([sys.executable, "-c", PROBE, threads], **given).stdout))
    mine = Fit(told[0]["settings"], told[0]["fingerprint"], tuple(map(tuple, json.loads(told[0]["begins"]))))
    assert mine.wrote(told[1])


@pytest.mark.parametrize("size", [1, 64, 16_777_220])
def test_numbers_are_taken_from_all_over_a_tensor_however_large(size: int) -> None:
    """In single precision the place of a large tensor's last number would be behind it."""
    tensor = torch.zeros(size, dtype=torch.int8)
    tensor[-1] = 3
    found = fits._some(tensor)
    assert (found[-1], len(found)) == (3.0, min(size, fits.LOOKED_AT))


def test_what_is_no_number_is_compared_too() -> None:
    odd = Fit("s", "d", ((float("nan"), float("inf"), 1.0),))
    assert odd.wrote(odd.metadata)
    assert not Fit("s", "d", ((0.0, float("inf"), 1.0),)).wrote(odd.metadata)
    assert not Fit("s", "d", ((float("nan"), float("inf"), 2.0),)).wrote(odd.metadata)


def test_nothing_is_copied(task) -> None:
    job = Job(factory=lambda: nn.Sequential(nn.Flatten(), nn.Linear(128 * 128, 2)), training=task.training, seed=3)
    records, targets = torch.from_numpy(np.zeros((300, 1, 128, 128), dtype=np.float32)), torch.zeros(300, dtype=torch.int64)
    with torch.profiler.profile(profile_memory=True):
        pass  # what its first use imports is no copy
    tracemalloc.start()
    with torch.profiler.profile(profile_memory=True) as watched:  # what torch allocates tracemalloc does not see
        Fit.of(job, records, targets, (torch.arange(300),))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    largest = max(event.self_cpu_memory_usage for event in watched.events())
    assert 0 < largest < records.numpy().nbytes / 4
    assert peak < records.numpy().nbytes / 4
