from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from tutelage.data.folders import private_from_folder, public_from_folder, read_folder
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Roster

Image = pytest.importorskip("PIL.Image")


def picture(path, value=0, size=(4, 6), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (size[1], size[0]), value if mode != "RGB" else (value, 2 * value, 255)).save(path)


DECLARED = {"classes": ("benign", "malignant"), "size": (4, 6)}


@pytest.fixture
def clinic(tmp_path):
    picture(tmp_path / "benign" / "anna_01.png", 10)
    picture(tmp_path / "benign" / "anna_02.png", 20)
    picture(tmp_path / "malignant" / "bert" / "01.png", 30)
    picture(tmp_path / "malignant" / "anna_03.png", 40)
    (tmp_path / "malignant" / "notes.txt").write_text("not an image")
    return tmp_path


def test_images_are_sorted_scaled_and_labelled_by_folder(clinic):
    records = read_folder(clinic)
    assert records.inputs.shape == (4, 3, 4, 6)
    assert records.inputs.dtype == np.float32
    assert np.round(records.inputs[:, :, 0, 0] * 255).tolist() == [[10, 20, 255], [20, 40, 255], [40, 80, 255], [30, 60, 255]]
    assert records.targets.tolist() == [0, 0, 1, 1]
    assert records.units is None


def test_a_patient_is_one_unit_across_classes(clinic):
    private = private_from_folder(clinic, unit="patient", **DECLARED)
    assert private.unit == "patient"
    assert private.units.tolist() == ["anna", "anna", "anna", "bert"]
    assert "anna" not in repr(private)
    assert len(private.split(2)) == 2


def test_records_are_their_own_units_by_default_and_go_by_name(clinic):
    picture(clinic / "benign" / "bert" / "01.png", 35)  # one name under two classes is one unit
    private = private_from_folder(clinic, **DECLARED)
    assert private.units.tolist() == ["anna_01.png", "anna_02.png", "bert/01.png", "anna_03.png", "bert/01.png"]
    assert private.places is None


def test_a_roster_says_who_may_take_part(clinic):
    private = private_from_folder(clinic, unit="patient", roster=Roster.of(["bert", "cleo"]), **DECLARED)
    assert private.places == 2
    assert [len(part) for part in private.split(2).indices] in ([1, 0], [0, 1])


def test_public_images_grey_and_resized(clinic):
    public = public_from_folder(clinic, channels=1, size=(8, 5))
    assert public.inputs.shape == (4, 1, 8, 5)
    assert public.targets.tolist() == [0, 0, 1, 1]


def test_a_source_is_named_without_the_way_to_it(clinic):
    assert private_from_folder(clinic, **DECLARED).source == public_from_folder(str(clinic)).source == clinic.name


def test_classes_may_be_given_in_another_order(clinic):
    assert read_folder(clinic, classes=("malignant", "benign")).targets.tolist() == [0, 0, 1, 1]
    with pytest.raises(DataError, match="no folder cyst instead"):
        read_folder(clinic, classes=("benign", "cyst"))


def test_hidden_folders_are_no_classes_and_no_patients(clinic):
    picture(clinic / ".trash" / "anna_09.png")
    picture(clinic / "benign" / ".thumbnails" / "anna_01.png")
    assert read_folder(clinic).targets.tolist() == [0, 0, 1, 1]
    assert private_from_folder(clinic, unit="patient", **DECLARED).units.tolist() == ["anna", "anna", "anna", "bert"]


def test_a_patients_folder_may_be_a_link(clinic, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    picture(store / "01.png", 50)
    (clinic / "benign" / "carl").symlink_to(store)
    assert private_from_folder(clinic, unit="patient", **DECLARED).units.tolist() == ["anna", "anna", "carl", "anna", "bert"]


def test_links_of_two_patients_to_one_place_do_not_move_each_other(clinic, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    picture(store / "01.png", 50)
    (clinic / "benign" / "carl").symlink_to(store)
    (clinic / "malignant" / "dora").symlink_to(store)
    (clinic / "malignant" / "emil").symlink_to(clinic / "malignant" / "bert")  # what is inside is read where it is
    units = private_from_folder(clinic, unit="patient", **DECLARED).units.tolist()
    assert units == ["anna", "anna", "carl", "anna", "bert", "dora"]
    (clinic / "benign" / "carl").unlink()
    assert private_from_folder(clinic, unit="patient", **DECLARED).units.tolist() == ["anna", "anna", "anna", "bert", "dora"]
    (clinic / "malignant" / "zoe.png").symlink_to(clinic / "malignant" / "bert" / "01.png")
    assert private_from_folder(clinic, unit="patient", **DECLARED).units.tolist() == ["anna", "anna", "anna", "bert", "dora"]
    with pytest.raises(DataError, match=r"must be in the folder once\. Got 1 that links lead to a second time"):
        read_folder(clinic, **DECLARED)


def test_no_private_file_decides_whether_a_folder_is_read(clinic):
    picture(clinic / "benign" / "carl_01.png", size=(5, 5))  # of another size
    assert len(private_from_folder(clinic, **DECLARED)) == 5
    for path in clinic.rglob("*.png"):
        path.unlink()
    none = private_from_folder(clinic, **DECLARED)
    assert (none.inputs.shape, none.targets.dtype, [len(part) for part in none.split(3).indices]) == (
        (0, 3, 4, 6),
        np.int64,
        [0] * 3,
    )
    with pytest.raises(TypeError, match="classes"):
        private_from_folder(clinic, size=(4, 6))


def test_what_a_link_leads_to_is_not_public(clinic, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    picture(store / "01.png", 50)
    before = len(public_from_folder(clinic))
    (clinic / "benign" / "carl").symlink_to(store)
    assert len(public_from_folder(clinic)) == before
    assert len(private_from_folder(clinic, **DECLARED)) == before + 1


@pytest.mark.parametrize("size", [64, (64,), (0, 64), (64, 64, 3), (64.0, 64)])
def test_refuses_a_size_that_is_none(clinic, size):
    with pytest.raises(RecipeError, match="`size` must be"):
        read_folder(clinic, size=size)


def test_refuses_images_of_several_sizes(clinic):
    picture(clinic / "benign" / "carl_01.png", size=(5, 5))
    with pytest.raises(DataError, match="Got 2 sizes"):
        read_folder(clinic)
    assert len(read_folder(clinic, size=(4, 4))) == 5


def test_a_damaged_image_is_numbered_and_not_named(clinic):
    path = clinic / "benign" / "anna_02.png"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match="image 1 of the sorted list") as caught:
        read_folder(clinic)
    assert "anna" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_private_image_that_cannot_be_read_is_nobody_s(clinic):
    path = clinic / "benign" / "anna_02.png"
    path.write_bytes(path.read_bytes()[:40])
    Image.fromarray(np.full((4, 6), 4000, np.uint16)).save(clinic / "benign" / "carl_01.png")
    private = private_from_folder(clinic, unit="patient", **DECLARED)
    assert private.units.tolist() == ["anna", "", "", "anna", "bert"]
    assert not private.inputs[1:3].any()
    assert dict(private.notes) == {"records without an id, in no shard": 2}


def test_a_file_without_a_mark_is_its_own_patient(clinic):
    picture(clinic / "malignant" / "dora.png")
    picture(clinic / "malignant" / "dora_2.png")
    assert private_from_folder(clinic, unit="patient", **DECLARED).units.tolist() == [
        "anna",
        "anna",
        "anna",
        "bert",
        "dora",
        "dora",
    ]


def test_refuses_images_deeper_than_eight_bits(clinic):
    Image.fromarray(np.full((4, 6), 4000, np.uint16)).save(clinic / "benign" / "carl_01.png")
    with pytest.raises(DataError, match="8 bits"):
        read_folder(clinic)


def test_refuses_a_decompression_bomb(clinic, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(DataError, match="DecompressionBomb"):
        read_folder(clinic)


def test_refuses_an_empty_or_missing_folder(tmp_path):
    with pytest.raises(DataError, match="no folder at all"):
        read_folder(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="must hold images"):
        read_folder(tmp_path)
    with pytest.raises(DataError, match="must be a folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(RecipeError, match="must be 1"):
        read_folder(tmp_path, channels=4)


def test_says_so_where_pillow_is_not_installed(clinic, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match="pip install pillow"):
        read_folder(clinic)


def test_no_private_file_of_any_kind_stops_a_folder(clinic):
    """A link to itself raised an error, and a pipe waited for ever."""
    before = private_from_folder(clinic, unit="patient", **DECLARED)
    folder = clinic / "benign"
    (folder / "carl_01.png").symlink_to("carl_01.png")
    for number in range(60):
        (folder / f"dora_{number}.png").symlink_to(f"dora_{number + 1}.png")
    os.mkfifo(folder / "emil_01.png")
    (clinic / "loop").symlink_to("loop")
    after = private_from_folder(clinic, unit="patient", **DECLARED)
    assert after.units.tolist() == before.units.tolist()
    np.testing.assert_array_equal(after.inputs, before.inputs)
