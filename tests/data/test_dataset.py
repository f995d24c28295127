from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest

from tutelage.data import dataset
from tutelage.data.dataset import Private, Public
from tutelage.privacy.errors import DataError, RecipeError


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


class NoAnswer:
    """As pandas' NA: whether it is equal to itself cannot be told."""

    __hash__ = None

    def __eq__(self, other: object) -> NoAnswer:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize(
    "units",
    [
        ["ann", None, "ben"],
        ["ann", float("nan"), "ben"],
        ["ann", " ", "ben"],
        np.array(["ann", "", "ben"], dtype=object),
        [1.0, float("nan"), 2.0],
        np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="datetime64[D]"),
        np.array([1, NoAnswer(), 2], dtype=object),
    ],
    ids=["none", "nan", "blank", "empty", "numbers", "dates", "no answer"],
)
def test_a_record_that_is_nobody_s_is_refused(units) -> None:
    with pytest.raises(DataError, match=r"must have an id for every record\. Got records without one instead\.$"):
        Private.of(np.zeros((3, 2)), np.zeros(3), units=units, unit="patient")


@pytest.mark.parametrize(
    "units", [["ann", "ben", "ann"], [7, 8, 7], [0.5, 1.5, 0.5], [b"a", b"b", b"a"], np.array(["ann", "ben", "ann"], object)]
)
def test_ids_of_any_one_kind_are_kept(units) -> None:
    private = Private.of(np.zeros((3, 2)), np.zeros(3), units=units, unit="patient")
    assert "3 records of 2 units" in repr(private)
    assert sorted(len(shard) for shard in private.split(2)) == [1, 2]
    assert len(private[[0, 2]]) == 2


@pytest.mark.parametrize(
    "units",
    [["ann", "ann ", "ben"], [b"ann", b" ann", b"ben"], np.array(["ann\n", "ann", "ben"], object), ["José", "Jose\u0301", "ben"]],
)
def test_one_person_spelled_in_two_ways_is_refused(units) -> None:
    with pytest.raises(
        DataError,
        match=r"must be spelled alike wherever they are the same\. Got ids that differ in spaces or accents instead\.$",
    ):
        Private.of(np.zeros((3, 2)), np.zeros(3), units=units, unit="patient")
    Private.of(np.zeros((3, 2)), np.zeros(3), units=["Ann", "ann", "a nn"], unit="patient")  # pseudonyms may hang on capitals


def test_ids_of_two_kinds_or_of_another_shape_are_refused() -> None:
    with pytest.raises(DataError, match="ids of one kind"):
        Private.of(np.zeros((2, 2)), np.zeros(2), units=np.array([7, "7"], dtype=object))
    with pytest.raises(DataError, match=r"one id per record\. Got shape \(2, 1\)"):
        Private.of(np.zeros((2, 2)), np.zeros(2), units=[[1], [2]])


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
def test_images_with_holes_are_refused_and_counted_where_they_are_public(odd, at_a_time, monkeypatch) -> None:
    monkeypatch.setattr(dataset, "_BYTES", at_a_time)
    images = np.zeros((7, 1, 4, 4), np.float32)
    images[2, 0, 1, 1] = images[6, 0, 0, 0] = images[6, 0, 3, 3] = odd
    with pytest.raises(DataError, match=r"`inputs` must be finite numbers where records are images\. Got 2 with others"):
        Public.of(images)
    with pytest.raises(DataError) as caught:
        Private.of(images, np.zeros(7))
    assert not set("27") & set(str(caught.value))


def test_tables_may_have_gaps() -> None:
    rows = np.asarray([[1.0, np.nan], [2.0, 3.0]])
    assert len(Public.of(rows)) == len(Private.of(rows, np.zeros(2))) == 2
