from __future__ import annotations

import numpy as np
import pytest

from tutelage.data.medmnist import read_medmnist
from tutelage.privacy.errors import DataError, RecipeError

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 28, 28), dtype=np.uint8)
LABELS = np.array([[0], [1], [1], [0], [1]], np.uint8)


def write(path, images, labels, parts=("train", "val", "test")):
    content = {}
    for part in parts:
        content[f"{part}_images"], content[f"{part}_labels"] = images, labels
    np.savez_compressed(path, **content)
    return path


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_grey_images_get_a_channel_and_labels_lose_their_column(tmp_path, part):
    records = read_medmnist(write(tmp_path / "a.npz", GREY, LABELS), part)
    assert records.inputs.shape == (5, 1, 28, 28)
    assert records.inputs.dtype == np.float32
    assert np.array_equal(np.round(records.inputs[:, 0] * 255), GREY)
    assert records.targets.tolist() == [0, 1, 1, 0, 1]


def test_colour_volumes_and_many_labels(tmp_path):
    colour = RNG.integers(0, 256, (5, 28, 28, 3), dtype=np.uint8)
    records = read_medmnist(write(tmp_path / "a.npz", colour, LABELS), "train")
    assert records.inputs.shape == (5, 3, 28, 28)
    assert records.inputs[2, 1, 3, 4] == np.float32(colour[2, 3, 4, 1]) / np.float32(255)
    volumes = RNG.integers(0, 256, (5, 28, 28, 28), dtype=np.uint8)
    assert read_medmnist(write(tmp_path / "b.npz", volumes, LABELS), "test").inputs.shape == (5, 1, 28, 28, 28)
    assert read_medmnist(write(tmp_path / "c.npz", GREY, np.eye(5, 14, dtype=np.uint8)), "test").targets.shape == (5, 14)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (GREY.astype(float), LABELS),
        (GREY[:, 0, 0], LABELS),
        (GREY[:0], LABELS[:0]),
        (GREY, LABELS[:4]),
        (GREY, LABELS.astype(float)),
        (GREY, np.array([[{"an": "object"}]] * 5, dtype=object)),
    ],
)
def test_refuses_other_content(tmp_path, images, labels):
    with pytest.raises(DataError):
        read_medmnist(write(tmp_path / "a.npz", images, labels), "train")


def test_refuses_a_missing_part_and_an_unknown_one(tmp_path):
    path = write(tmp_path / "a.npz", GREY, LABELS, parts=("train",))
    with pytest.raises(DataError, match=r"must be a MedMNIST \.npz"):
        read_medmnist(path, "val")
    with pytest.raises(RecipeError, match="'train', 'val' or 'test'"):
        read_medmnist(path, "validation")


@pytest.mark.parametrize("keep", [0, 0.3, 0.9])
def test_refuses_a_truncated_file(tmp_path, keep):
    path = write(tmp_path / "a.npz", GREY, LABELS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(DataError):
        read_medmnist(path, "train")


def test_refuses_a_lone_array(tmp_path):
    np.save(tmp_path / "a.npy", GREY)
    with pytest.raises(DataError):
        read_medmnist(tmp_path / "a.npy", "train")
