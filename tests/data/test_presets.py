from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pytest
from scipy.io import savemat

from tutelage.data import load, names, splits
from tutelage.data.presets import cut, has_roster, places
from tutelage.data.records import Records
from tutelage.privacy.errors import DataError, RecipeError, Unsealed


def read(name, directory, split=None):
    return load(name, directory, split=split, download=False, verify=False)


def test_the_papers_split_of_mnist(tmp_path, write_digits):
    folder = write_digits(tmp_path / "mnist", 30, 1200)
    study = read("mnist", tmp_path, "paper")
    assert (len(study.private), len(study.public), len(study.test)) == (30, 1000, 200)
    assert study.private.inputs.shape == (30, 1, 1, 1)
    assert study.private.inputs.dtype == np.float32
    assert study.public.targets.tolist() == [row % 10 for row in range(1000)]
    assert study.test.targets.tolist() == [row % 10 for row in range(1000, 1200)]
    assert (study.name, study.split, study.classes) == ("mnist", "paper", 10)
    assert set(study.hashes) == {*(path.name for path in folder.iterdir()), "split"}
    for path in folder.iterdir():
        assert study.hashes[path.name] == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(("split", "pool"), [("votes", 9000), ("half", 5000)])
def test_the_other_splits_of_mnist(tmp_path, write_digits, split, pool):
    write_digits(tmp_path / "MNIST" / "raw", 20, 9100, end="")
    study = read("mnist", tmp_path, split)
    assert (len(study.public), len(study.test)) == (pool, 9100 - pool)


def test_a_split_has_its_own_hash_and_always_the_same(tmp_path, write_digits):
    write_digits(tmp_path / "mnist", 20, 5100)
    paper, half = read("mnist", tmp_path, "paper"), read("mnist", tmp_path, "half")
    assert paper.hashes["split"] != half.hashes["split"]
    assert paper.hashes["split"] == read("mnist", tmp_path).hashes["split"]  # the default is the paper's
    assert all(paper.hashes[name] == half.hashes[name] for name in paper.hashes if name != "split")
    with pytest.raises(TypeError):
        paper.hashes["split"] = "another"


def test_a_study_shows_sizes_and_cannot_be_pickled(tmp_path, write_digits):
    write_digits(tmp_path / "mnist", 20, 1010)
    study = read("mnist", tmp_path)
    assert "array" not in repr(study)
    assert "20 records" in repr(study)
    with pytest.raises(Unsealed):
        pickle.dumps(study)


def test_published_checksums_are_demanded_by_default(tmp_path, write_digits):
    write_digits(tmp_path / "mnist", 20, 1010)
    with pytest.raises(DataError, match="must be the published file"):
        load("mnist", tmp_path, download=False)


def test_fashion_mnist_is_not_looked_for_in_mnists_folder(tmp_path, write_digits):
    write_digits(tmp_path / "mnist", 20, 5010)
    with pytest.raises(DataError, match="files of fashion-mnist"):
        read("fashion-mnist", tmp_path)
    write_digits(tmp_path / "fashion-mnist", 25, 5010)
    assert len(read("fashion-mnist", tmp_path).private) == 25


def test_refuses_a_test_set_that_the_pool_would_use_up(tmp_path, write_digits):
    write_digits(tmp_path / "mnist", 20, 1000)
    with pytest.raises(DataError, match="more than 1000 records"):
        read("mnist", tmp_path)


def test_refuses_labels_outside_the_classes(tmp_path, write_digits, write_idx):
    folder = write_digits(tmp_path / "mnist", 20, 1010)
    write_idx(folder / "train-labels-idx1-ubyte.gz", np.full(20, 10))  # private ones are left out, not refused
    private = read("mnist", tmp_path).private
    assert private.places == 20
    assert not np.concatenate(private.split(5).indices).size
    write_idx(folder / "t10k-labels-idx1-ubyte.gz", np.full(1010, 10))
    with pytest.raises(DataError, match="labels of 10 classes"):
        read("mnist", tmp_path)


def test_only_a_published_list_of_people_is_a_roster(hospital):
    directory, _ = hospital
    assert read("diabetes", directory).private.places is None  # ids are hashed, and how many there are is private
    assert [has_roster(name) for name in ("diabetes", "mnist", "nifti")] == [True, False, False]
    assert (places("diabetes"), places("diabetes", published=True), places("adult")) == (None, 57_250, 32_561)
    for name in ("diabetes", "adult"):
        with pytest.raises(RecipeError, match="`published` must stay off but for published files"):
            load(name, directory, verify=False, published=True)


def test_refuses_a_truncated_file(tmp_path, write_digits):
    path = write_digits(tmp_path / "mnist", 20, 1010) / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="readable idx file"):
        read("mnist", tmp_path)


def test_svhn_joins_the_extra_images_to_the_private_ones(tmp_path):
    (tmp_path / "svhn").mkdir()
    for part, count in (("train", 3), ("extra", 4), ("test", 1002)):
        labels = np.arange(count) % 10 + 1
        savemat(tmp_path / "svhn" / f"{part}_32x32.mat", {"X": np.zeros((32, 32, 3, count), np.uint8), "y": labels[:, None]})
    assert len(read("svhn", tmp_path).private) == 3
    study = read("svhn-extra", tmp_path)
    assert (len(study.private), len(study.public), len(study.test)) == (7, 1000, 2)
    assert study.private.targets.tolist() == [1, 2, 3, 1, 2, 3, 4]
    assert splits("svhn") == ("paper", "half", "votes")


@pytest.mark.parametrize("form", ["bin", "python"])
def test_cifar_10_in_either_form(tmp_path, python_batch, form):
    folder = tmp_path / ("cifar-10-batches-bin" if form == "bin" else "cifar-10-batches-py")
    folder.mkdir()
    for number, name in enumerate(("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")):
        pixels = np.full((2, 3072), number, np.uint8)
        if form == "bin":
            (folder / f"{name}.bin").write_bytes(np.insert(pixels, 0, number, axis=1).tobytes())
        else:
            (folder / name).write_bytes(python_batch(pixels, [number, number]))
    test = np.zeros((5001, 3072), np.uint8)
    if form == "bin":
        (folder / "test_batch.bin").write_bytes(np.insert(test, 0, 9, axis=1).tobytes())
    else:
        (folder / "test_batch").write_bytes(python_batch(test, [9] * 5001))
    study = read("cifar-10", tmp_path, "half")
    assert study.private.targets.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert study.private.inputs.shape == (10, 3, 32, 32)
    assert (len(study.public), len(study.test), study.classes) == (5000, 1, 10)
    assert len(study.hashes) == 7


def test_adult_in_order(tmp_path, adult_row):
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data").write_text("\n".join([adult_row(), adult_row(at14=">50K")]) + "\n\n")
    rows = [adult_row(at0=str(20 + row % 60), at14="<=50K.") for row in range(510)]
    (tmp_path / "adult" / "adult.test").write_text("|1x3 Cross validator\n" + "\n".join(rows) + "\n\n")
    study = read("adult", tmp_path, "paper")
    assert (len(study.private), len(study.public), len(study.test)) == (2, 500, 10)
    assert np.round(study.test.inputs[:, 0] * 100).tolist() == [20 + row % 60 for row in range(500, 510)]
    assert study.private.unit == "record"


@pytest.fixture
def hospital(tmp_path, diabetes_table):
    """6,000 stays of patients who come one to seven times, each told apart by a number of medications."""
    rng = np.random.default_rng(0)
    patients = np.sort(rng.permutation(np.repeat(np.arange(2200), rng.integers(1, 8, 2200)))[:6000])
    rng.shuffle(patients)
    rows = [
        {"patient_nbr": str(100 + patient), "num_lab_procedures": str(patient % 90), "num_procedures": "0",
         "readmitted": ("NO", "<30", ">30")[row % 3]}
        for row, patient in enumerate(patients)
    ]  # fmt: skip
    (tmp_path / "diabetes130").mkdir()
    (tmp_path / "diabetes130" / "diabetic_data.csv").write_text(diabetes_table(*rows))
    return tmp_path, patients + 100


def test_diabetes_never_shares_a_patient_between_parts(hospital, monkeypatch):
    directory, patients = hospital
    parts = {}

    def remember(test, pool):
        head, tail = cut(test, pool)
        parts["public"], parts["test"] = set(test.units[head].tolist()), set(test.units[tail].tolist())
        return head, tail

    monkeypatch.setattr("tutelage.data.presets.cut", remember)
    study = read("diabetes", directory, "paper")
    parts["private"] = set(study.private.units.astype(int).tolist())
    assert study.private.unit == "patient"
    assert not parts["private"] & parts["public"]
    assert not parts["private"] & parts["test"]
    assert not parts["public"] & parts["test"]
    assert set().union(*parts.values()) == set(patients.tolist())
    assert len(study.public) == 500
    lost = len(patients) - len(study.private) - len(study.public) - len(study.test)
    assert 0 <= lost < 7  # the rest of the one patient whom the cut divides


def test_diabetes_has_two_targets_on_the_same_rows(hospital):
    directory, _ = hospital
    soon, ever = read("diabetes", directory), read("diabetes-at-all", directory)
    assert np.array_equal(soon.public.inputs, ever.public.inputs)
    assert np.all(soon.test.targets <= ever.test.targets)
    assert soon.test.targets.sum() < ever.test.targets.sum()


def test_medmnist_has_a_pool_of_its_own(tmp_path):
    (tmp_path / "medmnist").mkdir()
    content = {}
    for part, count in (("train", 5), ("val", 3), ("test", 4)):
        content[f"{part}_images"] = np.full((count, 28, 28), count, np.uint8)
        content[f"{part}_labels"] = np.ones((count, 1), np.uint8)
    np.savez_compressed(tmp_path / "medmnist" / "pneumoniamnist.npz", **content)
    study = read("pneumoniamnist", tmp_path)
    assert (len(study.private), len(study.public), len(study.test), study.split) == (5, 3, 4, "official")
    assert study.public.inputs.max() == np.float32(3 / 255)


@pytest.mark.parametrize(
    ("name", "near"), [("MNIST", "mnist"), ("cifar10", "cifar-10"), ("fashion_mnist", "fashion-mnist"), ("adults", "adult")]
)
def test_an_unknown_name_brings_the_nearest(tmp_path, name, near):
    with pytest.raises(RecipeError, match=rf"`name` must be one of .* Got '{name}' instead\. Did you mean '{near}'\?"):
        load(name, tmp_path)


def test_an_unknown_name_far_from_any_brings_the_list_alone(tmp_path):
    with pytest.raises(RecipeError, match=r"Got 'zzzzzz' instead\.$"):
        load("zzzzzz", tmp_path)


def test_an_unknown_split_brings_those_of_the_study(tmp_path):
    with pytest.raises(RecipeError, match=r"`split` must be one of 'paper', 'half' for 'adult'. Got 'papers' instead"):
        load("adult", tmp_path, split="papers")


@pytest.mark.parametrize("name", names())
def test_every_study_says_what_it_misses(tmp_path, name):
    with pytest.raises(DataError, match=r"(?s)must hold the files of .*Expected: .*Public address: http"):
        load(name, tmp_path, download=False)


def test_the_cut_leaves_out_units_of_the_pool():
    test = Records(np.arange(6)[:, None], np.zeros(6, np.int64), np.array([1, 2, 2, 2, 3, 1]))
    head, tail = cut(test, 2)
    assert test[head].inputs.ravel().tolist() == [0, 1]
    assert test[tail].inputs.ravel().tolist() == [4]
