from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest

from tutelage.data import cleaning, dataset, mapped
from tutelage.data.dataset import Private, Public
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Roster


@pytest.mark.parametrize(
    "inputs",
    [
        np.random.default_rng(0).normal(size=(50, 3, 4)),
        np.asfortranarray(np.random.default_rng(0).normal(size=(50, 7))),
        np.arange(100, dtype=np.uint8)[::3],
        np.zeros((0, 4)),
        np.zeros((4, 0)),
        np.array(["a", "bcd"]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_the_hash_is_that_of_all_bytes(inputs: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = hashlib.sha256(np.ascontiguousarray(inputs).tobytes()).hexdigest()
    assert Public(inputs).sha256 == expected
    monkeypatch.setattr(dataset, "_BYTES", 100)  # many passes
    assert Public(inputs).sha256 == expected


def test_inputs_on_disk_are_not_read_whole(tmp_path) -> None:
    big = np.lib.format.open_memmap(
        tmp_path / "big.npy", mode="w+", dtype=np.float32, shape=(200, 400, 1000)
    )  # 305 MiB, of holes
    tracemalloc.start()
    Public(big)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < big.nbytes / 4


@pytest.mark.parametrize("nobody", [None, float("nan"), " ", np.datetime64("NaT")])
def test_a_record_that_is_nobody_s_is_counted_and_in_no_shard(nobody) -> None:
    private = Private.of(np.zeros((3, 2)), np.zeros(3), units=["ann", nobody, "ben"], unit="patient")
    assert sorted(np.concatenate(private.split(2).indices).tolist()) == [0, 2]
    assert dict(private.notes) == {"records without an id, in no shard": 1}
    assert "3 records of 2 units" in repr(private)


@pytest.mark.parametrize(
    "units", [["ann", "ben", "ann"], [7, 8, 7], [0.5, 1.5, 0.5], [b"a", b"b", b"a"], np.array(["ann", "ben", "ann"], object)]
)
def test_ids_of_any_one_kind_are_kept(units) -> None:
    private = Private.of(np.zeros((3, 2)), np.zeros(3), units=units, unit="patient")
    assert "3 records of 2 units" in repr(private)
    assert private.places is None  # without a roster the number of units is private
    homes = [k for k, shard in enumerate(private.split(9).indices) for _ in shard]
    assert len(homes) == 3
    assert len(set(homes)) <= 2
    assert len(private[[0, 2]]) == 2


def test_one_person_spelled_in_two_ways_is_one_unit() -> None:
    for units in (["ann", "ann ", "ben"], ["José", "Jose\u0301", "ben"], np.array([7, "7", 8], dtype=object)):
        private = Private.of(np.zeros((3, 2)), np.zeros(3), units=units, unit="patient")
        assert len(np.unique(private.units)) == 2


def test_ids_of_another_shape_are_refused_and_a_roster_needs_ids() -> None:
    with pytest.raises(DataError, match=r"one id per record\. Got shape \(2, 1\)"):
        Private.of(np.zeros((2, 2)), np.zeros(2), units=np.array([[1], [2]]))
    with pytest.raises(RecipeError, match="`units` must be given where `roster` is"):
        Private.of(np.zeros((2, 2)), np.zeros(2), roster=Roster.of(["ann", "ben"]))


def test_rows_without_ids_are_their_own_roster_and_leave_blanks() -> None:
    rows = np.arange(8.0)[:, None]
    whole = Private.of(rows, np.zeros(8))
    kept = [0, 1, 3, 4, 5, 6, 7]
    less = Private.of(rows[kept], np.zeros(7), units=kept, roster=Roster.places(8))
    assert whole.places == less.places == whole[kept].places == 8
    for one, other in ((whole, less), (whole, whole[kept])):
        before, after = ([sorted(data.inputs[part, 0].tolist()) for part in data.split(8).indices] for data in (one, other))
        assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
    strangers = Private.of(rows[:2], np.zeros(2), units=["ann", "eve"], roster=Roster.of(["ann"]))
    assert dict(strangers.notes) == {"records that are not on the roster, in no shard": 1}


def test_a_unit_that_no_budget_knows_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"`unit` must be 'record', 'patient' or 'institution'\. Got 'pacient'"):
        Private.of(np.zeros((3, 2)), np.zeros(3), unit="pacient")


@pytest.mark.parametrize("kind", [Private, Public])
@pytest.mark.parametrize(
    ("images", "masks"),
    [
        ((4, 1, 16, 16), (4, 15, 16)),
        ((4, 16, 16), (4, 15, 16)),
        ((4, 16, 16, 3), (4, 16, 15)),
        ((4, 1, 8, 8, 8), (4, 8, 8, 7)),
        ((4, 1, 16, 16), (4, 1, 15, 16)),
    ],
)
def test_masks_of_another_size_than_their_images_are_refused(kind, images, masks) -> None:
    with pytest.raises(DataError, match="`targets` must be masks of their images' size") as caught:
        kind.of(np.zeros(images), np.zeros(masks))
    assert str(masks[1:]) in str(caught.value)


@pytest.mark.parametrize("kind", [Private, Public])
@pytest.mark.parametrize(
    ("images", "targets"),
    [
        ((4, 1, 16, 16), (4, 16, 16)),
        ((4, 16, 16), (4, 16, 16)),
        ((4, 16, 16, 3), (4, 16, 16)),
        ((4, 2, 8, 8, 8), (4, 8, 8, 8)),
        ((4, 1, 16, 16), (4, 5, 16, 16)),  # a mask per class
        ((4, 1, 16, 16), (4,)),
        ((4, 1, 16, 16), (4, 10)),  # shares of classes
        ((4, 1), (4, 16, 16)),  # masks alone, for a codec
    ],
)
def test_targets_that_may_be_meant_are_kept(kind, images, targets) -> None:
    assert kind.of(np.zeros(images), np.zeros(targets)).targets.shape == targets


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at_a_time", [1 << 24, 100])
def test_public_images_with_holes_are_refused_and_private_ones_cleaned(odd, at_a_time, monkeypatch) -> None:
    monkeypatch.setattr(dataset, "_BYTES", at_a_time)
    monkeypatch.setattr(cleaning, "_BYTES", at_a_time)
    images = np.ones((7, 1, 4, 4), np.float32)
    images[2, 0, 1, 1] = images[6, 0, 0, 0] = images[6, 0, 3, 3] = odd
    with pytest.raises(DataError, match=r"`inputs` must be finite numbers where records are images\. Got 2 with others"):
        Public.of(images)
    for made in (Private.of(images, np.zeros(7)), Private(images, np.zeros(7), np.arange(7))):
        assert made.inputs.dtype == np.float32
        assert np.array_equal(made.inputs, np.where(np.isfinite(images), images, 0))
        assert dict(made.notes) == {"numbers that were not finite": 3}
    assert not np.isfinite(images).all()  # whoever gave them keeps them


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.array([[1e300, -1e300, 2.0]]), [[1e12, -1e12, 2.0]]),
        (np.array([[3e38, 1.0, 2.0]], np.float32), [[1e12, 1.0, 2.0]]),
        (np.array([[2**62, -(2**62), 5]]), [[1e12, -1e12, 5]]),
        (np.array([[6e4, -6e4, np.inf]], np.float16), [[6e4, -6e4, 0]]),
        (np.array([[1, 2, 255]], np.uint8), [[1, 2, 255]]),
        (np.array([[True, False, True]]), [[1, 0, 1]]),
        (np.array([["1.5", "n/a", " -2e3 "]]), [[1.5, 0, -2000]]),
        (np.array([[b"1.5", b"\xff", b"True"]]), [[1.5, 0, 1]]),
        (np.array([[1.5, 1j, 2 + 0j]]), [[1.5, 0, 2]]),
        (np.array([["2020-01-01", "NaT", "2020-01-02"]], "datetime64[ns]"), [[0, 0, 0]]),
        (np.array([[1, "n/a", None]], dtype=object), [[1.0, 0.0, 0.0]]),
        (np.array([[1j, 2**2000, np.datetime64("2020-01-01", "ns")]], dtype=object), [[0.0, 0.0, 0.0]]),
        (np.array([[1, object(), [2]]], dtype=object), [[1.0, 0.0, 0.0]]),
    ],
)
def test_cells_are_cleaned_one_by_one(given, kept) -> None:
    private = Private.of(given, np.zeros(1))
    assert np.allclose(private.inputs.astype(float), kept, rtol=1e-3)
    assert private.inputs.dtype == Public.of(given).inputs.dtype == np.float64  # a table, whatever its cells are
    assert np.array_equal(Public.of(given).inputs, private.inputs)
    beside = Private.of(np.concatenate([given, np.zeros_like(given)]), np.zeros(2))  # another record changes nothing about it
    assert np.array_equal(beside.inputs[:1], private.inputs)


def test_what_is_clean_is_not_copied() -> None:
    images = (3, 1, 2, 2)
    for inputs in (np.zeros(images, np.uint8), np.ones((3, 2)), np.ones(images, np.int64), np.zeros(images, np.float32)):
        masks = np.zeros((3, 2, 2))
        private = Private.of(inputs, masks)
        assert np.shares_memory(private.inputs, inputs)
        assert np.shares_memory(private.targets, masks)
        assert not private.notes


def test_what_is_in_memory_is_cleaned_there(monkeypatch) -> None:
    """A private value in a folder of everybody's, and its room, would depend on one that is not a number."""
    monkeypatch.setattr(mapped, "HELD", 1)
    monkeypatch.setattr(mapped.tempfile, "TemporaryFile", None)
    images = np.ones((4, 1, 3, 3), np.float32)
    images[1, 0, 1, 1] = np.nan
    for given in (images, images[:, 0], images[::-1]):
        assert Private.of(given, np.zeros(4)).inputs.min() == 0


def test_a_mapped_file_is_cleaned_without_being_held(tmp_path, monkeypatch) -> None:
    path = tmp_path / "big.npy"
    big = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(400, 400, 100))  # 61 MiB
    big[7, 0, 0] = np.nan
    big.flush()
    given = np.load(path, mmap_mode="r")
    monkeypatch.setattr(mapped, "HELD", 1 << 20)
    tracemalloc.start()
    private = Private.of(given, np.zeros(400))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert private.inputs[7, 0, 0] == 0
    assert peak < 3.5 * cleaning._BYTES + (1 << 22)
    assert np.isnan(given[7, 0, 0])


def test_masks_and_shares_lie_between_0_and_1() -> None:
    masks = np.array([[[0.0, 1.0], [np.nan, -3.0]], [[255.0, 0.5], [np.inf, 1.0]]])
    private = Private.of(np.zeros((2, 1, 2, 2)), masks)
    assert private.targets.tolist() == [[[0, 1], [0, 0]], [[1, 0.5], [0, 1]]]
    assert dict(private.notes) == {"numbers that were not finite": 2, "targets outside 0 to 1": 2}
    assert Private.of(np.zeros((1, 2, 2)), np.full((1, 2, 2), 255, np.uint8)).targets.max() == 1


@pytest.mark.parametrize("odd", [-1, 3, 98765, 0.5, np.nan, np.inf])
def test_a_label_of_no_class_leaves_its_record_out(odd) -> None:
    labels = np.array([0, 1, odd, 2])
    private = Private.of(np.eye(4), labels).labelled(3)
    assert private.targets.tolist() == [0, 1, 0, 2]
    assert private.targets.dtype == np.int64
    assert sorted(np.concatenate(private.split(4).indices).tolist()) == [0, 1, 3]
    assert dict(private.notes) == {"records whose label is no class, in no shard": 1}
    assert private.labelled(3).notes == private.notes
    before, after = Private.of(np.eye(4), [0, 1, 2, 2]).labelled(3).split(4), private.split(4)
    assert sum(not np.array_equal(before[k], after[k]) for k in range(4)) == 1


def test_the_kind_of_labels_is_public_and_refused() -> None:
    assert Private.of(np.eye(2), np.array([2, 255], np.uint8)).labelled(3).targets.tolist() == [2, 0]
    assert Private.of(np.eye(2), np.array([1, None], object)).labelled(2).targets.tolist() == [1, 0]
    with pytest.raises(DataError, match="`targets` must be one number per record"):
        Private.of(np.eye(2), np.zeros((2, 2))).labelled(2)


ODD_LABELS = ["x", "", None, 0.5, 1j, float("nan"), 2**70, b"x", (1, 2), [0], np.zeros(2), object()]


@pytest.mark.parametrize("odd", ODD_LABELS, ids=lambda odd: type(odd).__name__)
def test_one_odd_label_decides_no_other(odd) -> None:
    for clean in ([0, 1, 2, 1], ["0", "1", "2", "1"], [0.0, 1.0, 2.0, 1.0], [b"0", b"1", b"2", b"1"]):
        given = [[*clean, odd]]
        if not isinstance(odd, (list, tuple, np.ndarray)):  # as NumPy has it, which turns all of them into one type
            given.append(np.array([*clean, odd]))
        for labels in given:
            private = Private.of(np.eye(5), labels).labelled(3)
            assert private.targets.tolist() == [0, 1, 2, 1, 0]
            assert sorted(np.concatenate(private.split(4).indices).tolist()) == [0, 1, 2, 3]
    turned = np.array(["0", "1", "x"]).dtype.kind, np.array([0, 1, 0.5]).dtype.kind  # the twin: the type of all of them
    assert turned == ("U", "f")


def test_a_list_of_rows_is_refused_whatever_is_in_it() -> None:
    """One row as doubles or of another length decided the type of everybody's."""
    bytes_ = np.random.default_rng(0).integers(0, 256, (4, 3, 3), dtype=np.uint8)
    for odd in (bytes_[0], bytes_[0].astype(np.int16), bytes_[0].astype(float), bytes_[0, :2], None, "x"):
        rows = [odd, *bytes_[1:]]
        with pytest.raises(DataError, match=r"`inputs` must be a NumPy array .* Got list instead"):
            Private.of(rows, np.zeros(4))
        with pytest.raises(DataError, match=r"`inputs` must be a NumPy array .* Got list instead"):
            Private(rows, np.zeros(4), np.arange(4))  # type: ignore[arg-type]
        masks = Private.of(bytes_, rows)  # a list is one of labels: none of these is a class, and codecs for masks refuse them
        assert masks.targets.tolist() == [-1] * 4
    kinds = {np.asarray([odd, *bytes_[1:]]).dtype for odd in (bytes_[0], bytes_[0].astype(np.int16), bytes_[0].astype(float))}
    assert len(kinds) == 3  # the twin: one record decided whether everybody is divided by 255


class Frame:
    """As a data frame: it knows its columns, and has one odd cell among them or not."""

    def __init__(self, cells: np.ndarray) -> None:
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells)

    def to_numpy(self) -> np.ndarray:
        return self.cells


def test_one_odd_cell_of_a_data_frame_leaves_the_others() -> None:
    for kind in (np.float32, np.float64, np.int64, np.uint8, bool):
        clean = (np.random.default_rng(0).random((6, 3)) * 9).astype(kind)
        whole = Private.of(Frame(clean), np.zeros(6)).inputs
        for form in (object, str):
            spoiled = clean.astype(form) if form is object or kind != np.float32 else clean.astype(float).astype(str)
            spoiled[2, 1] = "n/a"
            private = Private.of(Frame(spoiled), np.zeros(6)).inputs
            assert private.dtype == whole.dtype == np.float64
            assert np.argwhere(private != whole).tolist() in ([[2, 1]], [])


def test_no_records_at_all_are_data() -> None:
    """The twin: `np.asarray([])` has the shape (0,) and is no table."""
    for shape, kind in (((0, 3), np.float64), ((0, 3), np.float32), ((0, 8, 8), np.uint8), ((0, 1, 8, 8), np.float32)):
        for labels in ([], np.empty(0), np.empty(0, int), np.empty(0, object)):
            private = Private.of(np.empty(shape, kind), labels, units=[]).labelled(2)
            assert private.inputs.shape == shape
            assert private.inputs.dtype == (np.float64 if len(shape) == 2 else kind)
            assert [len(part) for part in private.split(3).indices] == [0, 0, 0]
            assert private.places is None
    assert Private.of(np.empty((0, 8, 8)), np.empty((0, 8, 8), bool), units=[]).targets.shape == (0, 8, 8)
    with pytest.raises(DataError, match="Got list instead"):
        Private.of([], [], units=[])


def test_a_gap_in_a_table_means_the_same_in_both() -> None:
    rows = np.asarray([[1.0, np.nan], [2.0, 3.0]])
    assert Public.of(rows).inputs.tolist() == Private.of(rows, np.zeros(2)).inputs.tolist() == [[1, 0], [2, 3]]
