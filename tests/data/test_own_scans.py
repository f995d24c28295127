"""Pictures with masks, DICOM series, spacing and windows: what is read is what was written, whatever its orientation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.data.made import affine, blob, nifti, pair, series

from tutelage.data import dicom, pairs
from tutelage.data.dataset import Private, Public
from tutelage.data.reading import Reading, resized, scaled
from tutelage.data.schema import ImageSchema, VolumeSchema
from tutelage.data.volumes import Volumes
from tutelage.privacy.errors import DataError, RecipeError

nibabel = pytest.importorskip("nibabel")
pytest.importorskip("pydicom")
pytest.importorskip("PIL.Image")
SHAPE = (14, 12, 10)


@pytest.mark.parametrize("turned", [False, True])
def test_a_series_is_read_as_the_same_volume_in_nifti(tmp_path: Path, turned: bool) -> None:
    image, mask = blob(SHAPE, 1)
    whole, place = np.rint(image), affine((1.5, 0.75, 2.0), turned=turned)
    series(tmp_path / "d" / "images" / "case", whole, place, patient="anna")
    nifti(tmp_path / "d" / "labels" / "case.nii.gz", mask, place)
    nifti(tmp_path / "n" / "imagesTr" / "case.nii.gz", whole, place)
    nifti(tmp_path / "n" / "labelsTr" / "case.nii.gz", mask, place)
    voxels, found = dicom.read(tmp_path / "d" / "images" / "case")
    assert np.allclose(nibabel.affines.voxel_sizes(found), (1.5, 0.75, 2.0))
    ours = Private.from_dicom(tmp_path / "d", size=(16, 12, 8))
    theirs = Private.from_nifti(tmp_path / "n", size=(16, 12, 8))
    assert np.allclose(ours.inputs, theirs.inputs, atol=1e-5)
    assert np.array_equal(ours.targets, theirs.targets)
    assert ours.targets.any()
    assert ours.units.tolist() == ["anna"]
    assert theirs.units.tolist() == ["case"]
    assert voxels.min() >= 0  # the scanner's own intercept is undone
    assert ours.schema == VolumeSchema(1, (16, 12, 8))


def test_spacing_and_window(tmp_path: Path) -> None:
    image, mask = blob(SHAPE, 2)
    nifti(tmp_path / "imagesTr" / "case.nii.gz", image, affine((2.0, 1.0, 1.0)))
    nifti(tmp_path / "labelsTr" / "case.nii.gz", mask, affine((2.0, 1.0, 1.0)))
    plain = Private.from_nifti(tmp_path, size=(28, 12, 10), intensity=(0, 200))
    near = Private.from_nifti(tmp_path, size=(28, 12, 10), spacing=(1, 1, 1), intensity=(0, 200))
    assert near.targets.sum() == pytest.approx(2 * plain.targets.sum(), rel=0.1)  # twice as many voxels, half as long
    assert plain.inputs.max() <= 1
    assert plain.inputs[0, 0, 14, 6, 5] == pytest.approx(image[7, 6, 5] / 200, abs=1e-6)
    assert near.schema == VolumeSchema(1, (28, 12, 10), (), (1.0, 1.0, 1.0), (0, 200))


def test_sizes_of_resampling() -> None:
    assert scaled((10, 20, 30), np.diag([2.0, 1.0, 0.5, 1.0]), (1.0, 1.0, 1.0)) == [20, 20, 15]
    volume = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert resized(volume, (2, 3, 4), order=1) is volume
    assert resized(volume, (4, 6, 8), order=0)[::2, ::2, ::2].tolist() == volume.tolist()
    with pytest.raises(DataError, match="2048"):
        scaled((10, 10, 10), np.diag([1e6, 1.0, 1.0, 1.0]), (1.0, 1.0, 1.0))
    for wrong in ({"spacing": (1.0, 0.0, 1.0)}, {"intensity": (5.0, 5.0)}):
        with pytest.raises(RecipeError):
            Reading(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["a gap", "two series", "turned slice", "damaged"])
def test_odd_series_are_left_out_or_refused(tmp_path: Path, what: str) -> None:
    import pydicom

    image, mask = blob(SHAPE, 3)
    for name in ("good", "odd"):
        series(tmp_path / "images" / name, np.rint(image), affine((1, 1, 1)), patient=name)
        nifti(tmp_path / "labels" / f"{name}.nii.gz", mask, affine((1, 1, 1)))
    slices = sorted(
        (tmp_path / "images" / "odd").iterdir(), key=lambda path: float(pydicom.dcmread(path).ImagePositionPatient[2])
    )
    if what == "a gap":
        slices[4].unlink()
    elif what == "damaged":
        slices[4].write_bytes(slices[4].read_bytes()[:400])
    else:
        one = pydicom.dcmread(slices[4])
        if what == "two series":
            one.SeriesInstanceUID = "9.9"
        else:
            one.ImageOrientationPatient = [0, 1, 0, 1, 0, 0]
        one.save_as(slices[4])
    private = Private.from_dicom(tmp_path, size=(16, 16, 16))
    assert private.units.tolist() == ["good"]  # one scan decides nothing about another
    assert any("left out" in note for note in private.notes)
    with pytest.raises(DataError) as refused:
        Public.from_dicom(tmp_path, size=(16, 16, 16))
    assert "odd" not in str(refused.value).replace("odd0", "")


def test_pairs(tmp_path: Path) -> None:
    for number in range(3):
        pair(tmp_path, f"p{number}", number, shape=(20, 30), level=7)
    found = Private.from_pairs(tmp_path, size=(20, 30), labels=(7,))
    _, mask = blob((20, 30), 1)
    assert np.array_equal(found.targets[1], mask)
    assert found.inputs.shape == (3, 1, 20, 30)
    assert 0 < found.inputs.max() <= 1
    assert found.units.tolist() == ["p0", "p1", "p2"]
    assert found.schema == ImageSchema(1, (20, 30), (), (7,))
    assert not Private.from_pairs(tmp_path, size=(20, 30), labels=(8,)).targets.any()
    (tmp_path / "patients.csv").write_text("name,patient\np0,anna\np1,anna\n")
    assert Private.from_pairs(tmp_path, size=(10, 10)).units.tolist() == ["anna", "anna"]  # p2 is nobody's


def test_a_pool_needs_no_masks_and_a_private_folder_does(tmp_path: Path) -> None:
    pair(tmp_path, "a", 0)
    for path in (tmp_path / "masks").iterdir():
        path.unlink()
    (tmp_path / "masks").rmdir()
    assert Public.from_pairs(tmp_path, size=(8, 8)).targets is None
    assert len(pairs.find(tmp_path, size=(8, 8))) == 0
    with pytest.raises(DataError, match="images/ and masks/"):
        pairs.find(tmp_path, size=(8, 8)).intact()


def test_a_mask_of_another_size_is_left_out(tmp_path: Path) -> None:
    pair(tmp_path, "a", 0, shape=(20, 20))
    pair(tmp_path, "b", 1, shape=(20, 20))
    pair(tmp_path / "c", "b", 2, shape=(30, 20))
    (tmp_path / "c" / "masks" / "b.png").replace(tmp_path / "masks" / "b.png")
    found = Private.from_pairs(tmp_path, size=(20, 20))
    assert found.units.tolist() == ["a"]
    assert isinstance(pairs.find(tmp_path, size=(20, 20)), Volumes)
