"""Canaries: neighbours by construction, of every kind, half of the runs each."""

import numpy as np
import pytest

from tutelage.audits.canaries import Canaries, declare, halves
from tutelage.data.dataset import Private
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Roster


def records(count: int = 60) -> Private:
    rng = np.random.default_rng(0)
    return Private.of(rng.uniform(0.1, 1, (count, 6, 6)).astype(np.float32), rng.integers(0, 4, count))


@pytest.mark.parametrize("kind", ["mislabelled", "out-of-distribution", "blank", "duplicated"])
def test_canaries_have_wrong_labels_and_are_taken_out_of_the_others(kind: str) -> None:
    private = records()
    canaries, rest = declare(kind, private, 10, classes=4)
    assert len(canaries) == 10
    assert len(rest) == 50
    assert not np.isin(canaries.ids, private.units).any()
    assert len(canaries.units) == (80 if kind == "duplicated" else 10)
    gone = ~np.isin(private.units, rest.units)
    truth = dict(zip((row.tobytes() for row in private.inputs[gone]), private.targets[gone].tolist(), strict=True))
    if kind in ("mislabelled", "duplicated"):
        assert all(truth[row.tobytes()] != label for row, label in zip(canaries.inputs, canaries.targets, strict=True))
    elif kind == "blank":
        assert not canaries.inputs.any()
    else:
        assert not any(row.tobytes() in truth for row in canaries.inputs)
        kept = sorted(np.sort(row.reshape(-1)).tobytes() for row in canaries.inputs)
        assert kept == sorted(np.sort(row.reshape(-1)).tobytes() for row in private.inputs[gone])
    again, _ = declare(kind, private, 10, classes=4)
    assert np.array_equal(again.targets, canaries.targets)


def test_masks_are_shifted() -> None:
    masks = np.zeros((20, 8, 8), dtype=np.float32)
    masks[:, :2] = 1
    canaries, _ = declare("shifted", Private.of(np.random.default_rng(0).random((20, 8, 8)), masks), 4)
    assert (canaries.targets[:, 2:4] == 1).all()
    assert canaries.targets.sum() == masks[:4].sum()


@pytest.mark.parametrize("shards", [5, 60])
@pytest.mark.parametrize("with_roster", [True, False])
def test_a_canary_moves_its_own_shard_and_no_other(with_roster: bool, shards: int) -> None:
    private = records()
    if not with_roster:
        private = Private.of(private.inputs, private.targets, units=[f"p{number}" for number in range(60)])
    canaries, rest = declare("mislabelled", private, 6, classes=4)
    shards = 66 if with_roster and shards == 60 else shards
    inside = np.array([True, False, True, True, False, True])
    without = rest.including(canaries, inside)
    assert without.places == (66 if with_roster else None)
    neighbour = rest.including(canaries, inside | (np.arange(6) == 1))
    held = [
        [frozenset(row.tobytes() for row in data.inputs[part]) for part in data.split(shards).indices]
        for data in (without, neighbour)
    ]
    changed = [one ^ other for one, other in zip(*held, strict=True) if one != other]
    assert changed == [{canaries.inputs[1].tobytes()}]


def test_a_canary_in_copies_is_one_unit() -> None:
    private = records()
    canaries, rest = declare("duplicated", private, 3, classes=4)
    data = rest.including(canaries, [True, False, True])
    homes = [np.unique(data.units[part]) for part in data.split(10).indices]
    assert len(data) == 57 + 16
    assert sum(np.isin(canaries.ids, home).sum() for home in homes) == 2


def test_each_canary_is_in_exactly_half_of_the_runs() -> None:
    inside = halves(16, 20)
    assert (inside.sum(axis=0) == 8).all()
    assert len({column.tobytes() for column in inside.T}) > 15
    assert np.array_equal(inside, halves(16, 20))
    for wrong in (3, 15, 2, True):
        with pytest.raises(RecipeError, match="even number"):
            halves(wrong, 5)


def test_what_is_no_canary_is_refused() -> None:
    private = records()
    with pytest.raises(RecipeError, match="must be one of mislabelled"):
        declare("loud", private, 5, classes=4)
    with pytest.raises(RecipeError, match="'shifted' for masks"):
        declare("shifted", private, 5, classes=4)
    with pytest.raises(RecipeError, match="at most half"):
        declare("blank", private, 31, classes=4)
    canaries, rest = declare("blank", private, 5, classes=4)
    with pytest.raises(RecipeError, match="one truth value per canary, 5"):
        rest.including(canaries, [True])
    twice = rest.including(canaries, [True] * 5)
    with pytest.raises(RecipeError, match="must have ids that no record"):
        twice.including(canaries, [True] * 5)
    named = Private.of(private.inputs, private.targets, units=np.arange(60), roster=Roster.of(["canary 00000", "1"]))
    with pytest.raises(RecipeError, match="must have ids that no record"):
        named.including(canaries, [False] * 5)  # a place is enough
    with pytest.raises(DataError, match="one id per record"):
        Canaries(np.zeros((2, 3)), np.zeros(2), np.array(["a"]))
