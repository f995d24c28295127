"""A key describes teachers by class and settings: the same in every process, whatever the data, another for other settings."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import nn

from tutelage.codecs.regionvotes import RegionVotes
from tutelage.data.dataset import Private, Public
from tutelage.features.seeing import Seeing
from tutelage.features.sight import Sight
from tutelage.nets.networks import ConvNet, Perceptron
from tutelage.nets.training import Training
from tutelage.nets.unet import UNet
from tutelage.teachers.classifier import Classifier
from tutelage.teachers.estimators import EstimatorTeachers
from tutelage.teachers.records import RecordTeachers
from tutelage.teachers.regions import RegionTeachers
from tutelage.teachers.segmenter import Segmenter

SHORT = Training(steps=2, batch=4, augmentation=None)
POOL = np.random.default_rng(0).normal(size=(60, 4))


def sight(pool: Any = POOL) -> Sight:
    return Sight.learn(Public.of(pool), Seeing(axes=3, bins=3))


class Odd(nn.Module):
    """A network that prints where it lies in memory."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(4, width)

    def extra_repr(self) -> str:
        return repr(object())


class Cutter:
    """A cut without a repr of its own."""


ALL: list[Any] = [
    EstimatorTeachers("forest"),
    EstimatorTeachers("forest", seed=1),
    EstimatorTeachers("kernel"),
    EstimatorTeachers("bagged"),
    EstimatorTeachers("levelled-bagged"),
    Classifier(),
    Classifier(classes=3),
    Classifier(seed=1),
    Classifier(training=SHORT),
    Classifier(training=Training()),  # asked for: also tables are then distorted
    Classifier(training=replace(SHORT, rate=1e-3)),
    Classifier(ConvNet()),
    Classifier(ConvNet(hidden=32)),
    Classifier(Odd),
    Classifier(lambda: Odd(5)),
    Classifier(lambda: Odd(6)),
    Segmenter(),
    Segmenter(UNet(shape=(1, 8, 8), widths=(4, 8), groups=2)),
    Segmenter().through((4, 4)),
    RegionTeachers(RegionVotes((8, 8), 4)),
    RegionTeachers(RegionVotes((8, 8), 5)),
    RegionTeachers(RegionVotes((8, 8), 4), side=16),
    RegionTeachers(Cutter()),  # type: ignore[arg-type]
    RecordTeachers(sight()),
    RecordTeachers(sight(POOL[:50])),
]


def test_keys_differ_where_settings_do_and_hold_no_address() -> None:
    keys = [teachers.key for teachers in ALL]
    assert len(set(keys)) == len(ALL)
    for teachers, key in zip(ALL, keys, strict=True):
        assert json.loads(key)["teachers"] == type(teachers).__name__
        assert "0x" not in key
        assert teachers.key == key


def test_a_key_is_the_same_for_the_same_settings() -> None:
    assert Classifier(Odd).key == Classifier(Odd).key
    assert RegionTeachers(Cutter()).key == RegionTeachers(Cutter()).key  # type: ignore[arg-type]
    assert RecordTeachers(sight()).key == RecordTeachers(sight()).key
    how = ({"engine": "sequential", "device": "cpu", "chunk": 2}, {"engine": "stacked", "checkpoint": "private/there"})
    assert len({Classifier(ConvNet(), **one).key for one in how}) == 1


@pytest.mark.parametrize("make", [lambda: EstimatorTeachers("linear"), lambda: Classifier(Perceptron(features=4, classes=3))])
def test_data_has_no_say_in_a_key(make: Any) -> None:
    keys = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        private = Private.of(rng.normal(size=(20 + seed, 4)), rng.integers(0, 3, 20 + seed))
        teachers = make()
        if hasattr(teachers, "training"):
            teachers.training = SHORT
        before = teachers.key
        keys += [before, teachers.fit(private, private.split(2)).key]
    assert len(set(keys)) == 1


PROGRAM = """
from tests.teachers.test_keys import ALL
print("\\n".join(teachers.key for teachers in ALL))
"""


def test_keys_are_the_same_in_another_process() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=".")
    assert done.stdout.splitlines() == [teachers.key for teachers in ALL]
