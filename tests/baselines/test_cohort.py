"""Units as rows: every unit gives the same number of views, and nobody's views depend on another's records."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tutelage.baselines.cohort import Cohort, check_distortion, places  # noqa: E402
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


def test_what_is_refused() -> None:
    images = np.zeros((4, 8, 8))
    with pytest.raises(DataError, match="masks of the images' size"):
        Cohort.of(Private.of(images, np.zeros((4, 8, 7))), device=CPU)
    with pytest.raises(DataError, match="whole labels or masks"):
        Cohort.of(Private.of(images, np.zeros(4)), device=CPU)
    with pytest.raises(RecipeError, match="must be a Warp"):
        check_distortion(Augmentation(shift=1.0), masks=True)
    check_distortion(Augmentation(shift=1.0), masks=False)
    assert repr(Cohort.of(Private.of(images, np.zeros(4, int)), device=CPU)) == "Cohort(4 units)"
