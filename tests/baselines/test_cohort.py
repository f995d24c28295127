"""Units as rows: every unit gives the same number of views, and nobody's views depend on another's records."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tutelage.baselines.cohort import Cohort, check_distortion, check_targets, places, taking_part  # noqa: E402
from tutelage.data.dataset import Private  # noqa: E402
from tutelage.nets.augmentation import Augmentation  # noqa: E402
from tutelage.nets.warps import Warp  # noqa: E402
from tutelage.privacy.errors import DataError, RecipeError  # noqa: E402

CPU = torch.device("cpu")


def drawn(private: Private, count: int, **told: object) -> tuple[np.ndarray, np.ndarray]:
    cohort = Cohort.of(private, device=CPU)
    seen = cohort.views(
        torch.arange(len(cohort)), count, augmentation=told.get("augmentation"), generator=torch.Generator().manual_seed(3)
    )
    return tuple(tensor.numpy() for tensor in seen)  # type: ignore[return-value]


def test_views_go_round_a_units_own_records() -> None:
    inputs = np.arange(6, dtype=np.float32)[:, None]
    private = Private.of(inputs, np.arange(6), units=["b", "a", "b", "c", "b", "a"], unit="patient")
    assert places(private) == 3
    images, labels = drawn(private, 6)
    assert images.shape == (3, 6, 1)
    own = [{0, 2, 4}, {1, 5}, {3}]  # in the order of first appearance: b, a, c
    for seen, given in zip(labels, own, strict=True):
        assert sorted(seen) == sorted(list(given) * (6 // len(given)))  # all of them, evenly
    assert (images[..., 0] == labels).all()


def test_replacing_one_unit_moves_no_other() -> None:
    chance = np.random.default_rng(0)
    inputs, masks = chance.random((5, 1, 8, 8), np.float32), chance.random((5, 8, 8)) > 0.5
    other = chance.random((7, 1, 8, 8), np.float32), chance.random((7, 8, 8)) > 0.5
    here = Private.of(inputs, masks, units=[0, 1, 2, 3, 4], unit="patient")
    other[0][[0, 1, 5, 6]], other[1][[0, 1, 5, 6]] = inputs[[0, 1, 3, 4]], masks[[0, 1, 3, 4]]
    there = Private.of(*other, units=[0, 1, "x", "x", "x", 3, 4], unit="patient")  # the third unit is another, with 3 records
    warp = Warp(shift=2.0, rotation=20.0)
    for before, after in zip(drawn(here, 4, augmentation=warp), drawn(there, 4, augmentation=warp), strict=True):
        assert (before[[0, 1, 3, 4]] == after[[0, 1, 3, 4]]).all()
        assert (before[2] != after[2]).any()


def test_the_operating_system_draws_who_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    system = random._urandom  # type: ignore[attr-defined]
    monkeypatch.setattr(random, "_urandom", lambda size: (heard.append(size), system(size))[1])
    assert taking_part(7, 7).tolist() == list(range(7))
    assert not heard
    torch.randperm(100, generator=torch.Generator())[:50]  # the twin: 32 bits of a seed, and the system was not asked
    assert not heard
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        random.seed(0)
        drawn.append(taking_part(100, 50).tolist())
    assert sum(heard) >= 2 * 50  # a byte and more for every one of them
    assert all(len(set(one)) == 50 and set(one) <= set(range(100)) for one in drawn)
    assert set(drawn[0]) != set(drawn[1])


def test_every_unit_is_as_likely_in_every_place() -> None:
    """A sorted twin has unit 0 in the first place or nowhere: then one unit replaced moves the others, and their views."""
    seen = Counter(pair for _ in range(3000) for pair in enumerate(taking_part(4, 2).tolist()))
    assert len(seen) == 8
    assert all(600 < count < 900 for count in seen.values())  # 750, and six of its errors


def test_bad_labels_are_refused_and_not_quoted() -> None:
    network, images = torch.nn.Linear(8, 3), np.ones((4, 8), np.float32)
    check_targets(Private.of(images, np.array([0, 1, 2, 0])), network)
    for label in (98765, -100):  # cross-entropy would quote the one and pass over the other
        with pytest.raises(DataError, match="labels from 0 to 2") as caught:
            check_targets(Private.of(images, np.array([0, 1, label, 0])), network)
        assert str(abs(label)) not in str(caught.value)
    with pytest.raises(DataError, match="masks of their images' size"):
        check_targets(Private.of(np.zeros((4, 8, 8)), np.zeros((4, 8, 7))), network)
    with pytest.raises(DataError, match="withheld") as caught:
        check_targets(Private.of(images, np.full((4, 8), "Ms 98765", object)), network)
    assert "98765" not in str(caught.value)


def test_what_is_refused() -> None:
    images = np.zeros((4, 8, 8))
    with pytest.raises(DataError, match="masks of their images' size"):
        Cohort.of(Private.of(images, np.zeros((4, 8, 7))), device=CPU)
    with pytest.raises(DataError, match="whole labels or masks"):
        Cohort.of(Private.of(images, np.zeros(4)), device=CPU)
    with pytest.raises(RecipeError, match="must be a Warp"):
        check_distortion(Augmentation(shift=1.0), masks=True)
    check_distortion(Augmentation(shift=1.0), masks=False)
    assert repr(Cohort.of(Private.of(images, np.zeros(4, int)), device=CPU)) == "Cohort(4 units)"
