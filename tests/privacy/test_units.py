"""Shards never share a unit, and the unit says how many teachers one person reaches."""

import hashlib
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.privacy.errors import DataError, RecipeError, UnitOverlap
from tutelage.privacy.units import Adjacency, Shards, Unit

IDS = st.one_of(
    st.lists(st.integers(-50, 50), min_size=1, max_size=60),
    st.lists(st.text("abcé0", max_size=3), min_size=1, max_size=40),
)


def owners(shards: Shards, ids: np.ndarray) -> list[set[object]]:
    return [set(ids[shards[k]].tolist()) for k in range(len(shards))]


@given(ids=IDS, data=st.data())
def test_split_keeps_units_whole_and_sizes_even(ids: list[object], data: st.DataObject) -> None:
    array = np.asarray(ids)
    count = data.draw(st.integers(1, len(set(ids))))
    shards = Shards.split(array, count, seed=data.draw(st.integers(0, 5)))
    held = owners(shards, array)
    assert len(shards) == count
    assert sorted(np.concatenate([shards[k] for k in range(count)]).tolist()) == list(range(len(ids)))  # each record once
    assert sum(len(one) for one in held) == len(set(ids))  # no unit in two shards
    assert max(len(one) for one in held) - min(len(one) for one in held) <= 1


@given(ids=IDS)
def test_split_depends_on_places_and_seed_alone(ids: list[object]) -> None:
    count = min(3, len(set(ids)))
    first, again = Shards.split(ids, count, seed=7), Shards.split(ids, count, seed=7)
    assert all(np.array_equal(first[k], again[k]) for k in range(count))
    # Names do not matter: the same pattern of units under other ids is divided in the same way.
    renamed = [f"unit {ids.index(one)}" for one in ids]
    assert all(np.array_equal(Shards.split(renamed, count, seed=7)[k], first[k]) for k in range(count))


@pytest.mark.parametrize("replaced", [0, 17, 99])
def test_replacing_a_unit_in_its_place_moves_no_other(replaced: int) -> None:
    ids = [f"patient {place}" for place in range(100)]
    neighbour = [*ids[:replaced], "somebody else", *ids[replaced + 1 :]]
    before, after = Shards.split(ids, 10, seed=3), Shards.split(neighbour, 10, seed=3)
    assert all(np.array_equal(before[k], after[k]) for k in range(10))

    def by_rank_of_id(units: list[str]) -> list[set[int]]:  # the broken twin: a new id reshuffles everybody
        order = sorted(range(100), key=lambda place: hashlib.sha256(units[place].encode()).digest())
        return [set(order[k::10]) for k in range(10)]

    assert by_rank_of_id(ids) != by_rank_of_id(neighbour)


def test_split_is_the_same_on_every_platform() -> None:
    shards = Shards.split(np.arange(8), 3, seed=1)
    assert [shards[k].tolist() for k in range(3)] == [[2, 4, 7], [0, 1, 5], [3, 6]]
    assert shards[0].dtype == np.int64


def test_another_seed_divides_otherwise() -> None:
    ids = np.arange(100)
    one, two = Shards.split(ids, 5, seed=1), Shards.split(ids, 5, seed=2)
    assert any(not np.array_equal(one[k], two[k]) for k in range(5))


def test_records_of_one_patient_stay_together() -> None:
    patients = np.repeat(np.arange(20), 7)
    shards = Shards.split(patients, 4)
    assert all(len(shards[k]) == 35 for k in range(4))


def split_records(ids: np.ndarray, count: int) -> Shards:
    """Broken twin: deals records, not units."""
    return Shards.of([np.arange(k, len(ids), count) for k in range(count)], ids)


def test_the_check_catches_a_split_by_record() -> None:
    patients = np.repeat(np.arange(10), 3)
    assert len(Shards.split(patients, 2)) == 2
    with pytest.raises(UnitOverlap, match=r"`shards` must not share a unit\. Got 10 shared"):
        split_records(patients, 2)


@pytest.mark.parametrize("shards", [[[0, 1], [2, 3]], [[0], [1]], [[0, 3], [0]]])
def test_overlap_is_refused(shards: list[list[int]]) -> None:
    with pytest.raises(UnitOverlap, match="shards"):
        Shards.of(shards, ["ann", "bob", "bob", "ann"] if len(shards[0]) == 2 else ["ann", "ann"])


def test_overlap_message_names_nobody() -> None:
    with pytest.raises(UnitOverlap) as caught:
        Shards.of([[0], [1]], ["patient-777", "patient-777"])
    assert "777" not in str(caught.value)


@pytest.mark.parametrize("shards", [0, -1, 4, 1.5, float("nan"), None, "2"])
def test_a_bad_number_of_shards_is_refused(shards: object) -> None:
    with pytest.raises(RecipeError, match="`shards` must be between 1 and the number of units, 3"):
        Shards.split([1, 2, 3], shards)  # type: ignore[arg-type]


@pytest.mark.parametrize("indices", [[], [[]], [[0], []]])
def test_empty_shards_are_refused(indices: list[list[int]]) -> None:
    with pytest.raises(RecipeError, match="`shards` must each hold at least one record"):
        Shards.of(indices, [1, 2])


@pytest.mark.parametrize("indices", [[[0], [3]], [[0], [-1]], [[0.5], [1.0]], [[[0]], [[1]]], [["a"]]])
def test_indices_that_are_not_records_are_refused(indices: list[object]) -> None:
    with pytest.raises(DataError, match="`indices` must be whole numbers from 0 to 2"):
        Shards.of(indices, [1, 2, 3])  # type: ignore[arg-type]


@pytest.mark.parametrize("units", [3, [[1, 2], [3, 4]]])
def test_units_must_be_one_id_per_record(units: object) -> None:
    with pytest.raises(DataError, match="`units` must be one id per record"):
        Shards.split(units, 1)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="`units` must be one id per record"):
        Shards.of([[0]], units)  # type: ignore[arg-type]


def test_no_records_at_all_are_refused() -> None:
    with pytest.raises(RecipeError, match="shards"):
        Shards.split([], 1)


def test_shards_survive_pickling_and_print_only_their_number() -> None:
    shards = Shards.split(np.arange(9), 3)
    back = pickle.loads(pickle.dumps(shards))
    assert all(np.array_equal(back[k], shards[k]) for k in range(3))
    assert repr(shards) == "Shards(3)"


def test_a_unit_reaches_one_teacher_unless_said() -> None:
    assert Unit() == Unit("record", 1)
    assert Unit("institution", 4).teachers == 4


@pytest.mark.parametrize("name", ["", "Record", "person", None])
def test_an_unknown_unit_is_refused(name: object) -> None:
    with pytest.raises(RecipeError, match="`unit` must be 'record', 'patient' or 'institution'"):
        Unit(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("teachers", [0, -1, 1.5, float("nan"), "2", None])
def test_a_unit_behind_no_teacher_is_refused(teachers: object) -> None:
    with pytest.raises(RecipeError, match="`teachers` of a unit must be a whole number ≥ 1"):
        Unit("institution", teachers)  # type: ignore[arg-type]


def test_adjacency_is_written_as_words() -> None:
    assert [str(one) for one in Adjacency] == ["replace-one", "add-remove"]
