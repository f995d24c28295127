"""A private record in a public pool is found by what it holds, however it is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.data import overlap, presets
from tutelage.data.dataset import Private, Public
from tutelage.data.folders import private_from_folder, public_from_folder
from tutelage.data.pixels import scale
from tutelage.data.records import Records
from tutelage.privacy.errors import DataError

RNG = np.random.default_rng(0)
PRIVATE = RNG.normal(size=(40, 1, 9, 7, 5)).astype(np.float32)
POOL = RNG.normal(size=(12, 1, 9, 7, 5)).astype(np.float32)


def pooled(copy: Any, pool: np.ndarray = POOL) -> np.ndarray:
    """Put a record in place 3 of a pool."""
    return np.concatenate([pool[:3], np.asarray(copy)[None].astype(pool.dtype), pool[4:]])


FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as it is": lambda one: one,
    "double precision": lambda one: one.astype(np.float64),
    "half precision": lambda one: one.astype(np.float16).astype(np.float32),
    "scaled and shifted": lambda one: 3 * one + 7,
    "rounded to 16 bits": lambda one: np.rint(1000 * one),
    "rounded to bytes": lambda one: np.rint(255 * (one - one.min()) / np.ptp(one)),
    "reversed axis": lambda one: one[:, ::-1],
    "all axes reversed": lambda one: one[:, ::-1, ::-1, ::-1],
    "a hole where 0 was": lambda one: np.where(np.abs(one) == np.abs(one).min(), np.nan, one),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_private_image_is_found_in_any_form(form: str) -> None:
    pool = pooled(FORMS[form](PRIVATE[17]))
    assert overlap.copies(pool, PRIVATE).tolist() == [3]
    assert overlap.copies(POOL, PRIVATE).tolist() == []
    same_bytes = {one.tobytes() for one in PRIVATE}
    assert (pool[3].tobytes() in same_bytes) == (form in ("as it is", "double precision"))  # the twin: bytes find two of nine


def test_axes_may_be_exchanged_and_channels_lie_anywhere() -> None:
    private, pool = RNG.random((30, 3, 8, 8)), RNG.random((9, 8, 8, 3))
    pool[5] = private[11].transpose(2, 1, 0)
    pool[7] = private[29].transpose(1, 2, 0)
    assert overlap.copies(pool, private).tolist() == [5, 7]
    grey = RNG.random((30, 8, 8))
    assert overlap.copies(grey[[4]][:, None].transpose(0, 1, 3, 2), grey).tolist() == [0]


def test_bytes_and_floats_of_one_image_are_one() -> None:
    bytes_ = RNG.integers(0, 256, (50, 1, 28, 28), dtype=np.uint8)
    assert overlap.copies(scale(bytes_[20:25]), bytes_).tolist() == [0, 1, 2, 3, 4]
    assert overlap.copies(bytes_[:2], scale(bytes_)).tolist() == [0, 1]


def test_what_is_alike_is_no_copy() -> None:
    near = pooled(PRIVATE[17] + 0.05 * RNG.normal(size=PRIVATE[17].shape))
    assert overlap.copies(near, PRIVATE).tolist() == []  # limits.md: near duplicates are not looked for
    assert overlap.copies(pooled(np.sort(PRIVATE[17], axis=None).reshape(PRIVATE[17].shape)), PRIVATE).tolist() == []
    spots = np.zeros((4, 8, 8))
    spots[range(4), 2, range(2, 6)] = 1  # dark images with one bright pixel each, elsewhere
    assert overlap.copies(spots[:2], spots[2:]).tolist() == [0, 1]  # mirrored they are one: columns 2 and 5, 3 and 4
    spots[3, 0, 0] = 0.5
    assert overlap.copies(spots[3:], spots[:3]).tolist() == []
    assert overlap.copies(np.zeros((2, 8, 8)), np.ones((3, 8, 8))).tolist() == []  # an empty image is nobody's
    assert overlap.copies(np.zeros((0, 8, 8)), np.ones((3, 8, 8))).tolist() == []
    assert overlap.copies(POOL[:, :, 1:], PRIVATE).tolist() == []


def test_an_image_of_two_values_is_found_too() -> None:
    private = RNG.random((60, 1, 16, 16)) > 0.5
    pool = RNG.random((20, 1, 16, 16)) > 0.5
    pool[8] = private[59][:, :, ::-1]
    assert overlap.copies(pool.astype(np.float32), private).tolist() == [8]


def test_records_may_be_mapped_and_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "private.npy", PRIVATE)
    mapped = np.load(tmp_path / "private.npy", mmap_mode="r")
    monkeypatch.setattr(overlap, "_BYTES", 3000)  # two records
    sizes: list[int] = []
    real = overlap._canonical
    monkeypatch.setattr(overlap, "_canonical", lambda some: (sizes.append(len(some)), real(some))[1])
    assert overlap.copies(pooled(PRIVATE[39]), mapped).tolist() == [3]
    assert max(sizes) == 2


@pytest.mark.parametrize("ending", [".png", ".bmp", ".tiff", ".PNG"])
def test_images_of_class_folders_are_compared_as_pixels(ending: str, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for side, count in (("clinic", 6), ("pool", 4)):
        for number in range(count):
            (tmp_path / side / "benign").mkdir(parents=True, exist_ok=True)
            pixels = RNG.integers(0, 256, (12, 10), dtype=np.uint8)
            image.fromarray(pixels).save(tmp_path / side / "benign" / f"{side}{number}_1.png")
    with image.open(tmp_path / "clinic" / "benign" / "clinic3_1.png") as private:
        private.transpose(image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "pool" / "benign" / f"other_1{ending}")
    clinic = private_from_folder(tmp_path / "clinic", unit="patient", channels=1, classes=("benign",), size=(12, 10))
    pool = public_from_folder(tmp_path / "pool", channels=1)
    assert overlap.copies(pool.inputs, clinic.inputs).tolist() == [0]
    with pytest.raises(DataError, match="`public` must hold no record of `private`"):
        overlap.refuse(clinic, pool, None)


# ── rows of tables ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_private_row_is_found_in_a_table_of_measurements() -> None:
    private, pool = RNG.normal(size=(500, 4)), RNG.normal(size=(60, 4))
    pool[[7, 9]] = private[[499, 3]].astype(np.float32)
    assert overlap.copies(pool, private).tolist() == [7, 9]
    private[3, 1] = pool[9, 1] = np.nan  # a gap is a gap
    assert overlap.copies(pool, private).tolist() == [7, 9]


def test_rows_of_few_values_may_be_two_people() -> None:
    """Nothing private decides whether they are compared: the pool's own columns do."""
    private, pool = RNG.integers(0, 3, (500, 6)), RNG.integers(0, 3, (60, 6))
    assert any((row == private).all(axis=1).any() for row in pool)
    assert overlap.copies(pool, private).tolist() == []
    named = np.column_stack([pool, RNG.normal(size=(60, 2))])
    assert overlap.copies(named, np.concatenate([named[4:6], np.zeros((5, 8))])).tolist() == [4, 5]


# ── who asks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("part", ["public", "test"])
def test_a_pool_or_a_test_with_a_private_record_is_refused(part: str) -> None:
    private = Private.of(PRIVATE, np.zeros(40, int))
    parts = {"public": Public.of(POOL), "test": Public.of(POOL[:5]), part: Public.of(pooled(PRIVATE[2]))}
    with pytest.raises(DataError, match=f"`{part}` must hold no record of `private`, in whatever form. Got a copy") as caught:
        overlap.refuse(private, **parts)
    assert "17" not in str(caught.value)
    overlap.refuse(private, Public.of(POOL), None)


def test_public_copies_of_a_published_set_are_left_out(tmp_path: Path) -> None:
    """PneumoniaMNIST's validation images 61, 105 and six more are training images, too."""
    parts = {"train": 60, "val": 20, "test": 15}
    files: dict[str, Any] = {f"{name}_images": RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8) for name, n in parts.items()}
    files |= {f"{name}_labels": RNG.integers(0, 2, (n, 1)).astype(np.uint8) for name, n in parts.items()}
    files["val_images"][[4, 11]] = files["train_images"][[33, 2]]
    files["test_images"][0] = files["train_images"][7]
    (tmp_path / "medmnist").mkdir()
    np.savez_compressed(tmp_path / "medmnist" / "pneumoniamnist.npz", **files)
    study = presets.load("pneumoniamnist", tmp_path, download=False, verify=False)
    assert (len(study.private), len(study.public), len(study.test)) == (60, 20, 15)  # of files that nobody published
    with pytest.raises(DataError, match="`public` must hold no record of `private`"):
        overlap.refuse(study.private, study.public, study.test)
    parts = [Records(part.inputs, part.targets) for part in (study.private, study.public, study.test)]
    public, test, rows = presets._apart(*parts, (np.arange(60), np.arange(20), np.arange(15)))
    left = np.setdiff1d(np.arange(20), [4, 11])
    np.testing.assert_array_equal(public.inputs, scale(files["val_images"][left][:, None]))
    np.testing.assert_array_equal(public.targets, files["val_labels"][left, 0])
    np.testing.assert_array_equal(test.targets, files["test_labels"][1:, 0])
    assert [len(part) for part in rows] == [60, 18, 14]
    overlap.refuse(study.private, Public.of(public.inputs), Public.of(test.inputs))


def test_most_dark_images_are_told_apart_without_looking_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their means all lie near 0: how far apart two may be follows from how much there is to see."""
    dark = np.zeros((3000, 32, 32), dtype=np.float32)
    for _ in range(3):
        dark[np.arange(3000), RNG.integers(0, 32, 3000), RNG.integers(0, 32, 3000)] += RNG.random(3000)
    real, looks = overlap._turned, []
    monkeypatch.setattr(overlap, "_turned", lambda *pair: (looks.append(1), real(*pair))[1])
    found = overlap.copies(np.concatenate([dark[:1500], dark[[2999, 2000]][:, ::-1]]), dark[1500:])
    assert found.tolist() == [1500, 1501]
    assert len(looks) < 1500 * 1500 / 100
