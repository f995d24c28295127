"""Units as rows: every unit gives the same number of views, and nobody's views depend on another's records."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tutelage.baselines.cohort import Cohort, check_distortion, checked, places, taking_part  # noqa: E402
from tutelage.data.dataset import Private  # noqa: E402
from tutelage.nets.augmentation import Augmentation  # noqa: E402
from tutelage.nets.warps import Warp  # noqa: E402
from tutelage.privacy.errors import DataError, RecipeError  # noqa: E402
from tutelage.privacy.units import Roster  # noqa: E402

CPU = torch.device("cpu")


def drawn(private: Private, count: int, **told: object) -> tuple[np.ndarray, np.ndarray]:
    cohort = Cohort.of(private, device=CPU)
    seen = cohort.views(
        torch.arange(len(cohort)), count, augmentation=told.get("augmentation"), generator=torch.Generator().manual_seed(3)
    )
    return tuple(tensor.numpy() for tensor in seen)  # type: ignore[return-value]


def listed(inputs: np.ndarray, targets: np.ndarray, units: list[object], roster: Roster | None = None) -> Private:
    return Private.of(inputs, targets, units=units, unit="patient", roster=roster or Roster.of(sorted({*map(str, units)})))


def test_views_go_round_a_units_own_records() -> None:
    inputs = np.arange(6, dtype=np.float32)[:, None]
    private = listed(inputs, np.arange(6), ["b", "a", "b", "c", "b", "a"], Roster.of(list("bac")))
    assert places(private) == 3
    images, labels = drawn(private, 6)
    assert images.shape == (3, 6, 1)
    own = [{0, 2, 4}, {1, 5}, {3}]  # in the order of the roster: b, a, c
    for seen, given in zip(labels, own, strict=True):
        assert sorted(seen) == sorted(list(given) * (6 // len(given)))  # all of them, evenly
    assert (images[..., 0] == labels).all()


@pytest.mark.parametrize("change", ["replaced", "more", "none", "interleaved", "nobody"])
def test_whatever_one_unit_does_moves_no_other(change: str) -> None:
    chance = np.random.default_rng(0)
    inputs, masks = chance.random((7, 1, 8, 8), np.float32), chance.random((7, 8, 8)) > 0.5
    roster, here = Roster.of(list("abcde")), list("abcdecc")
    rows, there = {
        "replaced": (range(7), here),
        "more": ([*range(7), 2], [*here, "c"]),
        "none": ([0, 1, 3, 4], list("abde")),
        "interleaved": ([5, 0, 2, 1, 3, 6, 4], list("cacbdce")),
        "nobody": (range(7), ["a", "b", None, "d", "e", None, "x"]),
    }[change]
    other = inputs[list(rows)]
    if change == "replaced":
        other[[2, 5, 6]] = chance.random((3, 1, 8, 8), np.float32)
    warp = Warp(shift=2.0, rotation=20.0)
    before = drawn(listed(inputs, masks, here, roster), 4, augmentation=warp)
    after = drawn(listed(other, masks[list(rows)], there, roster), 4, augmentation=warp)
    for old, new in zip(before, after, strict=True):
        assert (old[[0, 1, 3, 4]] == new[[0, 1, 3, 4]]).all()
    assert change == "more" or (before[0][2] != after[0][2]).any()


def test_an_absent_unit_keeps_an_empty_place() -> None:
    private = listed(np.ones((2, 3), np.float32), np.array([1, 1]), ["a", "c"], Roster.of(list("abc")))
    cohort = Cohort.of(private, device=CPU)
    assert len(cohort) == 3
    assert cohort.present(torch.arange(3)).tolist() == [True, False, True]
    images, labels = drawn(private, 2)
    assert not images[1].any()
    assert not labels[1].any()


@pytest.mark.parametrize("shape", [(), (8, 8)])
def test_nobody_at_all_keeps_every_place(shape: tuple[int, ...]) -> None:
    """A blank record was the first of none: an error after the charge, because nobody was there."""
    for count, units in ((0, []), (2, ["x", "y"])):
        nobody = Private.of(
            np.ones((count, 1, 8, 8), np.float32), np.ones((count, *shape), np.int64), units=units, unit="patient"
        )
        private = replace(nobody, roster=Roster.of(list("abc")))
        images, targets = drawn(private, 2)
        assert (images.shape, targets.shape) == ((3, 2, 1, 8, 8), (3, 2, *shape))
        assert not images.any()
        assert not targets.any()


def test_the_number_of_units_must_be_public() -> None:
    private = Private.of(np.ones((2, 3), np.float32), np.array([1, 1]), units=["a", "c"], unit="patient")
    with pytest.raises(RecipeError, match="`private` must have a `roster` for a baseline"):
        places(private)


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


def test_bad_labels_leave_their_record_out() -> None:
    network, images = torch.nn.Linear(8, 3), np.ones((4, 8), np.float32)
    for label in (98765, -100):  # cross-entropy would quote the one and pass over the other
        private = checked(Private.of(images, np.array([0, 1, label, 0])), network)
        assert Cohort.of(private, device=CPU).present(torch.arange(4)).tolist() == [True, True, False, True]
    with pytest.raises(DataError, match="masks of the images' size"):
        checked(Private(np.zeros((4, 8), np.float32), np.zeros((4, 7, 8)), np.arange(4)), network)
    words = checked(Private.of(images, np.full(4, "Ms 98765")), network)
    assert not Cohort.of(words, device=CPU).present(torch.arange(4)).any()
    with pytest.raises(DataError, match="one number per record"):
        Private.of(images, np.zeros((4, 2))).labelled(2)


def test_what_is_refused() -> None:
    images = np.zeros((4, 8, 8))
    with pytest.raises(DataError, match="masks of their images' size"):
        Cohort.of(Private.of(images, np.zeros((4, 8, 7))), device=CPU)
    with pytest.raises(RecipeError, match="must be a Warp"):
        check_distortion(Augmentation(shift=1.0), masks=True)
    check_distortion(Augmentation(shift=1.0), masks=False)
    assert repr(Cohort.of(Private.of(images, np.zeros(4, int)), device=CPU)) == "Cohort(4 places)"
