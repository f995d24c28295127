"""What is told of the data: nothing that hashes private records leaves."""

from __future__ import annotations

import json

import numpy as np

from tutelage.data.dataset import Private, Public
from tutelage.data.provenance import SHOWN, Provenance, fingerprint

POOL, TEST = Public.of(np.arange(6.0).reshape(3, 2)), Public.of(np.arange(4.0).reshape(2, 2))
SECRET = Private.of(np.arange(8.0).reshape(4, 2), [0, 1, 0, 1], units=["a", "a", "b", "c"])
HASHES = {"train.bin": "11" * 32, "split": "22" * 32}


def test_a_release_is_told_the_set_its_split_and_hashes_of_public_parts():
    told = Provenance("mnist", "half", True, POOL, TEST, HASHES).told()
    assert told == {
        "set": "mnist",
        "split": "half",
        "published": True,
        "hashes": {"public": POOL.sha256, "test": TEST.sha256, "split": "22" * 32},
    }
    assert set(told["hashes"]) <= set(SHOWN)


def test_the_split_of_a_set_that_is_not_published_is_not_hashed():
    told = Provenance("brats", None, False, POOL, TEST, HASHES).told()
    assert told["hashes"] == {"public": POOL.sha256, "test": TEST.sha256}


def test_hashes_of_private_records_stay_inside():
    origin = Provenance("mnist", "half", True, POOL, TEST, HASHES)
    inside = origin.inside(SECRET)
    assert inside["files"] == HASHES
    assert inside["private"] == fingerprint(SECRET)
    for secret in (inside["private"], HASHES["train.bin"]):
        assert secret not in json.dumps(origin.told())
    assert repr(origin) == "Provenance('mnist', split='half')"


def test_a_fingerprint_sees_every_part_of_the_records():
    same = Private.of(SECRET.inputs.copy(), SECRET.targets.copy(), units=SECRET.units.copy())
    assert fingerprint(same) == fingerprint(SECRET)
    others = [
        Private.of(SECRET.inputs + 1, SECRET.targets, units=SECRET.units),
        Private.of(SECRET.inputs, 1 - SECRET.targets, units=SECRET.units),
        Private.of(SECRET.inputs, SECRET.targets, units=["a", "b", "b", "c"]),
        Private.of(SECRET.inputs.reshape(4, 1, 2), SECRET.targets, units=SECRET.units),
    ]
    assert len({fingerprint(SECRET), *map(fingerprint, others)}) == 5
