"""Shards never share a unit, and the unit says how many teachers one person reaches."""

import hashlib
import pickle
from datetime import date
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.privacy.errors import DataError, RecipeError, UnitOverlap
from tutelage.privacy.units import Adjacency, Roster, Shards, Unit, spelled

IDS = st.one_of(
    st.lists(st.integers(-50, 50), min_size=1, max_size=60),
    st.lists(st.text("abcé0", min_size=1, max_size=3), min_size=1, max_size=40),
)


def owners(shards: Shards, ids: np.ndarray) -> list[set[object]]:
    return [set(ids[shards[k]].tolist()) for k in range(len(shards))]


def by_first_appearance(units: object, count: int, *, seed: int = 0) -> list[np.ndarray]:
    """Broken twin, the rule before: places in the order in which units first appear, dealt evenly."""
    _, first, which = np.unique(np.asarray(units), return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    keys = [hashlib.blake2b(f"{seed}:{place}".encode(), digest_size=16).digest() for place in range(len(first))]
    home = np.empty(len(first), dtype=np.int64)
    home[sorted(range(len(first)), key=keys.__getitem__)] = np.arange(len(first)) % count
    return [np.flatnonzero(home[rank][which] == shard) for shard in range(count)]


@given(ids=IDS, data=st.data())
def test_hashed_shards_keep_units_whole(ids: list[object], data: st.DataObject) -> None:
    array, count = spelled(ids), data.draw(st.integers(1, 20))
    shards = Shards.hashed(ids, count, key=data.draw(st.sampled_from("01")))
    held = owners(shards, array)
    assert len(shards) == count
    kept = np.flatnonzero(array != "").tolist()  # a blank text is nobody
    assert sorted(np.concatenate(shards.indices).tolist()) == kept  # each record once
    assert sum(len(one) for one in held) == len({*array.tolist()} - {""})  # no unit in two shards
    assert all(np.array_equal(part, np.sort(part)) and part.dtype == np.int64 for part in shards.indices)


@given(ids=IDS, data=st.data())
def test_placed_shards_keep_units_whole_and_places_even(ids: list[object], data: st.DataObject) -> None:
    roster = Roster.of(sorted({*spelled(ids).tolist()} - {""}) or ["somebody"])
    count = data.draw(st.integers(1, len(roster)))
    shards = Shards.placed(ids, roster, count)
    sizes = [len(one) for one in owners(shards, spelled(ids))]
    if "somebody" not in roster.ids:
        assert max(sizes) - min(sizes) <= 1
    assert len(shards) == count


@given(ids=IDS, other=st.integers(0, 200), data=st.data())
def test_whatever_one_unit_does_moves_no_other(ids: list[object], other: int, data: st.DataObject) -> None:
    """Records of one unit are put in, taken out and put elsewhere: everybody else's stay where they are, in their order."""
    names = [f"p{one}" for one in ids]
    places = data.draw(st.lists(st.integers(0, len(names)), max_size=5))
    added = names[:]
    for place in places:
        added.insert(place, f"new {other}")
    roster = Roster.of(sorted({*names, f"new {other}"}))
    rules = (lambda units: Shards.hashed(units, 7), lambda units: Shards.placed(units, roster, min(3, len(roster))))
    for divided in rules:
        before, after = divided(names), divided(added)
        changed = 0
        for k in range(len(before)):
            old, new = [names[i] for i in before[k]], [added[i] for i in after[k]]
            assert old == [name for name in new if name != f"new {other}"]
            changed += old != new
        assert changed == bool(places)


def test_the_rule_before_moves_nearly_everybody() -> None:
    stays = [f"patient {stay % 300}" for stay in range(600)]  # two stays each
    fewer = stays[1:]  # one patient's first stay goes, the other stays
    before, after = by_first_appearance(stays, 20), by_first_appearance(fewer, 20)
    moved = sum([stays[i] for i in before[k]] != [fewer[i] for i in after[k]] for k in range(20))
    assert moved == 20
    here, there = Shards.hashed(stays, 20), Shards.hashed(fewer, 20)
    assert sum([stays[i] for i in here[k]] != [fewer[i] for i in there[k]] for k in range(20)) == 1


@pytest.mark.parametrize(
    "column",
    [
        ["7", "8", "9", "7"],
        [7.0, 8.0, 9.0, 7.0],
        [7, 8.0, " 9", b"7"],
        np.array([7, 8, 9, 7]),
        np.array([7, 8, 9, 7], np.uint8),
        np.array(["7 ", "8", "9\n", "7"]),
        np.array(["7", 8, np.float32(9), np.int16(7)], object),
    ],
)
def test_one_odd_cell_does_not_rename_the_others(column: object) -> None:
    assert spelled(column).tolist() == ["7", "8", "9", "7"]


def column(cells: list[str]) -> np.ndarray:
    """Read a column as data frames do: as the narrowest kind that holds all of it, where blanks are not numbers."""
    for kind in (np.int64, np.float64):
        try:
            return np.array([cell or "nan" for cell in cells]).astype(kind)
        except ValueError:
            continue
    return np.array(cells, dtype=object)


def before(one: object) -> str:
    """Broken twin, the rule before: a text stays as it is, and a number has the form of its own kind."""
    if isinstance(one, float) and one.is_integer():
        return str(int(one))
    return "" if one != one else str(one).strip()


COLUMNS = {
    "floats": [f"{number}.0" for number in range(100, 160)],
    "zeros in front": [f"{number:05d}" for number in range(100, 160)],
    "fractions": [f"{number}.10" for number in range(100, 160)],
    "17 digits": [str(12345678901234567 + 2 * number) for number in range(60)],
    "19 digits": [str(1234567890123456789 + 2000 * number) for number in range(60)],
    "exponents": [f"{number}e20" for number in range(100, 160)],
    "plus": [f"+{number}" for number in range(100, 160)],
}


@pytest.mark.parametrize("ids", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("odd", ["B7", "", "1.5", "-3", "x" * 300])
def test_no_odd_id_gives_others_another_shard(ids: list[str], odd: str) -> None:
    clean, spoiled = column(ids), column([*ids[:-1], odd])
    for rule in (
        lambda units: Shards.hashed(units, 20),
        lambda units: Shards.placed(units, Roster.of(np.unique(spelled(ids))), 20),
    ):
        here, there = rule(clean), rule(spoiled)
        apart = sum(
            not np.array_equal(one[one != 59], other[other != 59]) for one, other in zip(here.indices, there.indices, strict=True)
        )
        assert apart == 0
    numpys = np.array([*clean[:-1].tolist(), "x7"])  # NumPy's own: numbers become texts
    assert spelled(numpys)[:-1].tolist() == spelled(clean)[:-1].tolist()


def test_the_rule_before_gave_everybody_another_shard() -> None:
    worst = {}
    for name, ids in COLUMNS.items():
        names = [[before(one) for one in column(cells).tolist()] for cells in (ids, [*ids[:-1], "B7"], [*ids[:-1], ""])]
        worst[name] = max(sum(one != two for one, two in zip(names[0][:-1], other[:-1], strict=True)) for other in names[1:])
    assert worst == {name: 59 if name != "17 digits" else worst["17 digits"] for name in COLUMNS}
    assert worst["17 digits"] > 20


class Raising:
    def __str__(self) -> str:
        raise ValueError("patient-777")

    __repr__ = __str__


class RaisingText(str):
    def __str__(self) -> str:
        raise ValueError("patient-777")


@pytest.mark.parametrize(
    "odd", [Raising(), RaisingText("ann"), object(), (1, 2), [1], [], {}, len, 1j, np.zeros(2), np.zeros(())]
)
def test_what_cannot_be_an_id_is_nobody(odd: object) -> None:
    assert spelled([1, odd, "ann"]).tolist() == ["1", "", "ann"]
    assert spelled([odd, odd]).tolist() == ["", ""]  # pairs of one length make no table of ids


def test_ids_of_any_kind_keep_a_form() -> None:
    given = [
        True,
        np.True_,
        "True",
        Decimal("7.0"),
        np.float32(0.5),
        UUID(int=5),
        date(2020, 1, 2),
        np.complex64(3),
        b"7",
        -0.0,
        ".5",
    ]
    assert spelled(given).tolist() == [
        "1", "1", "1", "7", "0.5", "00000000-0000-0000-0000-000000000005", "2020-01-02", "3", "7", "0", "0.5",
    ]  # fmt: skip
    assert spelled(np.array([1, 2, 3j])).tolist() == ["1", "2", ""]
    assert spelled(["2.25.7", "1e999", "1_0", "٣", "0x1f", "12-3"]).tolist() == ["2.25.7", "1e999", "1_0", "٣", "0x1f", "12-3"]
    assert spelled(np.array([2**53 + 1, 5])).tolist() == spelled([float(2**53), 5]).tolist() == [str(2**53), "5"]


@pytest.mark.parametrize("kind", ["datetime64[D]", "datetime64[ns]", "timedelta64[s]"])
def test_an_array_of_dates_is_refused(kind: str) -> None:
    with pytest.raises(DataError, match="`units` must be texts where they are dates"):
        spelled(np.array([1, 2]).astype(kind))


class NoAnswer:
    """As pandas' NA: whether it is equal to itself cannot be told."""

    def __eq__(self, other: object) -> "NoAnswer":  # type: ignore[override]
        return self

    def __hash__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize(
    "nobody", [None, float("nan"), "", " ", b"", np.datetime64("NaT"), NoAnswer(), "\0", Decimal("sNaN"), "nan", "<NA>"]
)
def test_a_record_that_is_nobody_s_is_in_no_shard(nobody: object) -> None:
    units = np.array(["ann", nobody, "ben", nobody], dtype=object)
    for shards in (
        Shards.hashed(units, 2),
        Shards.placed(units, Roster.of(["ben", "ann"]), 2),
        Shards.of([[0, 1], [2, 3]], units),
    ):
        assert sorted(np.concatenate(shards.indices).tolist()) == [0, 2]


@given(
    st.one_of(
        st.text(), st.binary(), st.floats(), st.integers(), st.text("a\0 \udcff", max_size=5), st.text("0179.eE+-", max_size=400)
    )
)
def test_every_id_can_be_written_and_is_written_once(one: object) -> None:
    [name] = spelled([one]).tolist()
    assert spelled([name]).tolist() == [name]
    Shards.hashed([one], 3)


def test_ids_of_any_length_cost_little() -> None:
    units = ["a" * 10**6, "b" * 10**6, 10**5000, *(str(number) for number in range(10_000))]
    names = spelled(units)
    assert names.nbytes < 10**7
    assert len({*names.tolist()}) == len(units)


def test_accents_are_written_in_one_way_and_capitals_kept() -> None:
    assert len({*spelled(["José", "Jose\u0301"]).tolist()}) == 1
    assert len({*spelled(["Ann", "ann", "a nn"]).tolist()}) == 3  # pseudonyms may hang on capitals


def test_whoever_is_not_on_the_roster_is_in_no_shard() -> None:
    roster = Roster.of(["ann", "ben", "cid", "dan"])
    full = Shards.placed(["ann", "ben", "cid", "dan"], roster, 4)
    less = Shards.placed(["dan", "eve", "ben"], roster, 4)
    homes = {name: k for k in range(4) for name in np.array(["ann", "ben", "cid", "dan"])[full[k]]}
    assert {name: k for k in range(4) for name in np.array(["dan", "eve", "ben"])[less[k]]} == {
        name: homes[name] for name in ("ben", "dan")
    }
    assert full.key == less.key


def test_the_division_is_the_same_on_every_platform() -> None:
    shards = Shards.placed(np.arange(8), Roster.places(8), 3, key="1")
    assert [shards[k].tolist() for k in range(3)] == [[2, 4, 7], [0, 1, 5], [3, 6]]
    assert [part.tolist() for part in Shards.hashed(np.arange(8), 3, key="1").indices] == [[0, 1, 4, 7], [3, 5], [2, 6]]
    assert Roster.of(["a", "bc"]).sha256 == hashlib.sha256(b"1:a2:bc").hexdigest()


def test_the_key_is_public_and_another_one_divides_otherwise() -> None:
    ids = np.arange(100)
    for rule in (lambda key: Shards.hashed(ids, 5, key=key), lambda key: Shards.placed(ids, Roster.places(100), 5, key=key)):
        one, two = rule("1"), rule("2")
        assert one.key != two.key
        assert any(not np.array_equal(one[k], two[k]) for k in range(5))


def test_hashed_sizes_differ_as_chance_has_it() -> None:
    sizes = np.array([len(part) for part in Shards.hashed(np.arange(81_500), 100).indices])
    assert sizes.min() > 815 - 5 * 28.5
    assert sizes.max() < 815 + 5 * 28.5
    assert 20 < sizes.std() < 37  # √815 = 28.5


@pytest.mark.parametrize("ids", [[], ["a", "a "], ["a", ""], ["a", None], [7, "7"]])
def test_a_roster_lists_every_id_once(ids: list[object]) -> None:
    with pytest.raises(RecipeError, match="`roster` must list every id once"):
        Roster.of(ids)


def test_a_roster_is_read_from_a_text(tmp_path: Path) -> None:
    path = tmp_path / "roster.txt"
    path.write_text("\ufeffann\n ben \n\ncid", encoding="utf-8")
    assert Roster.read(path).ids.tolist() == ["ann", "ben", "cid"]
    assert Roster.read(path).sha256 == Roster.of(["ann", "ben", "cid"]).sha256 != Roster.of(["ben", "ann", "cid"]).sha256
    with pytest.raises(RecipeError, match="`roster` must be a readable UTF-8 text"):
        Roster.read(tmp_path / "none.txt")
    assert repr(Roster.places(12)) == "Roster(12 places)"
    with pytest.raises(ValueError, match="read-only"):
        Roster.places(2).ids[0] = "5"


def split_records(ids: np.ndarray, count: int) -> Shards:
    """Broken twin: deals records, not units."""
    return Shards.of([np.arange(k, len(ids), count) for k in range(count)], ids)


def test_the_check_catches_a_split_by_record() -> None:
    patients = np.repeat(np.arange(10), 3)
    with pytest.raises(UnitOverlap, match=r"`shards` must not share a unit\. Got some that do instead\."):
        split_records(patients, 2)


@pytest.mark.parametrize("shards", [[[0, 1], [2, 3]], [[0], [1]], [[0, 3], [0]]])
def test_overlap_is_refused(shards: list[list[int]]) -> None:
    with pytest.raises(UnitOverlap, match="shards"):
        Shards.of(shards, ["ann", "bob", "bob", "ann"] if len(shards[0]) == 2 else ["ann", "ann"])


def test_overlap_message_names_nobody() -> None:
    with pytest.raises(UnitOverlap) as caught:
        Shards.of([[0], [1]], ["patient-777", "patient-777"])
    assert "777" not in str(caught.value)


@pytest.mark.parametrize("shards", [0, -1, 1.5, float("nan"), None, "2", True])
def test_a_bad_number_of_shards_is_refused(shards: object) -> None:
    for divided in (lambda: Shards.hashed([1, 2, 3], shards), lambda: Shards.placed([1], Roster.places(3), shards)):  # type: ignore[arg-type]
        with pytest.raises(RecipeError, match="`shards` must be a whole number ≥ 1"):
            divided()


def test_more_shards_than_places_are_refused_and_than_units_are_not() -> None:
    with pytest.raises(RecipeError, match="at most the places on the roster, 3"):
        Shards.placed([], Roster.places(3), 4)
    assert sum(len(part) for part in Shards.hashed([1, 2], 50).indices) == 2  # how many units there are is private
    assert [len(part) for part in Shards.of([[0], []], [1, 2]).indices] == [1, 0]
    with pytest.raises(RecipeError, match="`shards` must be at least one"):
        Shards.of([], [1])


@pytest.mark.parametrize("indices", [[[0], [3]], [[0], [-1]], [[0.5], [1.0]], [[[0]], [[1]]], [["a"]]])
def test_indices_that_are_not_records_are_refused(indices: list[object]) -> None:
    with pytest.raises(DataError, match="`indices` must be whole numbers from 0 to 2"):
        Shards.of(indices, [1, 2, 3])  # type: ignore[arg-type]


@pytest.mark.parametrize("units", [3, np.array([[1, 2], [3, 4]]), "ab"])
def test_units_must_be_one_id_per_record(units: object) -> None:
    for divided in (lambda: Shards.hashed(units, 1), lambda: Shards.of([[0]], units), lambda: Roster.of(units)):  # type: ignore[arg-type]
        with pytest.raises(DataError, match="`units` must be one id per record"):
            divided()


def test_shards_survive_pickling_and_print_only_their_number() -> None:
    shards = Shards.hashed(np.arange(9), 3)
    back = pickle.loads(pickle.dumps(shards))
    assert all(np.array_equal(back[k], shards[k]) for k in range(3))
    assert back.key == shards.key
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
