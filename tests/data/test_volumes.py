from __future__ import annotations

import csv
import os
import shutil
import stat
import struct
from pathlib import Path

import nibabel
import numpy as np
import pytest

from tutelage.data.dataset import Private
from tutelage.data.volumes import MODALITIES, Scan, Volumes, fitted, normalised
from tutelage.privacy.errors import DataError, RecipeError, Unsealed
from tutelage.privacy.units import Roster


def save(path: Path, array: np.ndarray, affine: np.ndarray | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(array, np.eye(4) if affine is None else affine), path)
    return path


def task(root: Path, count: int = 3, *, channels: int = 0, ending: str = ".nii.gz") -> Path:
    rng = np.random.default_rng(0)
    for number in range(count):
        shape = (6 + number, 5, 7)
        mask = rng.integers(0, 3, shape).astype(np.uint8)
        image = rng.uniform(1, 10 ** (number + 1), (*shape, channels) if channels else shape).astype(np.float32)
        save(root / "imagesTr" / f"organ_{number:03d}{ending}", image)
        save(root / "labelsTr" / f"organ_{number:03d}{ending}", mask)
    (root / "imagesTr" / "._organ_000.nii.gz").write_bytes(b"left by macOS")
    return root


def brats(root: Path, names: tuple[str, ...], *, without: str = "") -> Path:
    rng = np.random.default_rng(1)
    for name in names:
        for part in (*MODALITIES, "seg"):
            values = rng.choice([0, 1, 2, 4], (6, 6, 5)) if part == "seg" else rng.integers(0, 900, (6, 6, 5))
            if part != without:
                save(root / name / f"{Path(name).name}_{part}.nii.gz", values.astype(np.int16))
            (root / name / f"._{Path(name).name}_{part}.nii.gz").write_bytes(b"left by macOS")
    return root


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_a_decathlon_task(tmp_path: Path, ending: str) -> None:
    volumes = Volumes.decathlon(task(tmp_path, ending=ending), size=(6, 6, 6))
    assert len(volumes) == 3
    private = volumes.private()
    assert private.inputs.shape == (3, 1, 6, 6, 6)
    assert private.inputs.dtype == np.float32
    assert private.targets.shape == (3, 6, 6, 6)
    assert set(np.unique(private.targets)) == {0, 1}
    assert private.unit == "patient"
    assert private.units.tolist() == ["organ_000", "organ_001", "organ_002"]
    public = volumes[1:].public()
    assert np.array_equal(public.inputs, private.inputs[1:])
    assert np.array_equal(public.targets, private.targets[1:])
    one = Volumes.decathlon(tmp_path, size=(6, 6, 6), labels=(2,)).public()
    two = Volumes.decathlon(tmp_path, size=(6, 6, 6), labels=(1, 2)).public()
    assert 0 < one.targets.sum() < two.targets.sum() == private.targets.sum()


def test_names_of_anybody_s_are_not_read_as_those_of_the_public_sets(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        for part in ("imagesTr", "labelsTr"):
            save(tmp_path / part / f"hippocampus_{number:03d}.nii.gz", np.ones((4, 4, 4), np.uint8))
    told = {guess: Volumes.decathlon(tmp_path, size=(4, 4, 4), guess=guess).patients for guess in (True, False)}
    assert len(set(told[True])) == 2  # two sides of one head
    assert told[False].tolist() == ["hippocampus_001", "hippocampus_002", "hippocampus_003"]


def test_public_scans_need_no_masks(tmp_path: Path) -> None:
    whole = Volumes.decathlon(task(tmp_path), size=(6, 6, 6)).public()
    shutil.rmtree(tmp_path / "labelsTr")
    with pytest.raises(DataError, match="must hold imagesTr and labelsTr"):
        Volumes.decathlon(tmp_path, size=(6, 6, 6))
    bare = Volumes.decathlon(tmp_path, size=(6, 6, 6), unlabelled=True)
    assert bare.public().targets is None
    assert bare.patients.tolist() == ["organ_000", "organ_001", "organ_002"]
    np.testing.assert_array_equal(bare.public().inputs, whole.inputs)
    np.testing.assert_array_equal(bare[1:].public(into=tmp_path / "kept").inputs, whole.inputs[1:])
    with pytest.raises(DataError, match="`scans` must have masks: teachers learn from them"):
        bare.private()
    (tmp_path / "labelsTr").mkdir()  # masks that are missing one by one are a mistake
    with pytest.raises(DataError, match="must hold imagesTr and labelsTr"):
        Volumes.decathlon(tmp_path, size=(6, 6, 6), unlabelled=True).intact()


def test_brats_scans_without_masks_are_found_by_their_images(tmp_path: Path) -> None:
    names = ("BraTS2021_00000", "BraTS2021_00002")
    brats(tmp_path, names, without="seg")
    with pytest.raises(DataError, match=r"must hold BraTS folders with \*_seg"):
        Volumes.brats(tmp_path, size=(6, 6, 5)).intact()
    bare = Volumes.brats(tmp_path, size=(6, 6, 5), unlabelled=True)
    assert (bare.labelled, bare.patients.tolist()) == (False, list(names))
    assert bare.public().inputs.shape == (2, 4, 6, 6, 5)


def test_several_channels(tmp_path: Path) -> None:
    assert Volumes.decathlon(task(tmp_path, channels=2), size=(6, 6, 6)).public().inputs.shape == (3, 2, 6, 6, 6)


def test_brats_folders_of_both_years(tmp_path: Path) -> None:
    names = ("HGG/BraTS19_CBICA_AAB_1", "HGG/BraTS19_CBICA_AAB_2", "LGG/BraTS19_2013_10_1", "BraTS2021_00000", "BraTS2021_00002")
    volumes = Volumes.brats(brats(tmp_path, names), size=(6, 6, 5))
    patients = volumes.patients.tolist()
    assert sorted(set(patients)) == ["BraTS2021_00000", "BraTS2021_00002", "brats19_2013_10", "brats19_cbica_aab"]
    assert patients.count("brats19_cbica_aab") == 2  # two visits, one unit
    assert repr(volumes) == "Volumes(5 scans of 4 patients, size=(6, 6, 5))"
    private = volumes.private()
    assert private.inputs.shape == (5, 4, 6, 6, 5)
    seg = nibabel.load(volumes.scans[0].mask).get_fdata()
    assert np.array_equal(private.targets[0], seg > 0)  # the whole tumour
    flair = nibabel.load(volumes.scans[0].images[0]).get_fdata()
    assert np.array_equal(private.inputs[0, 0] == 0, flair == 0)
    assert Volumes.brats(tmp_path, size=(6, 6, 5), modalities=("flair",)).public().inputs.shape == (5, 1, 6, 6, 5)


@pytest.mark.parametrize(
    ("names", "patients"),
    [
        (("Brats17_TCIA_101_1", "Brats17_TCIA_101_2"), {"brats17_tcia_101"}),
        (("Brats18_CBICA_AAB_1", "Brats18_CBICA_AAB_2"), {"brats18_cbica_aab"}),
        (("BraTS19_CBICA_AAB_1", "BraTS19_CBICA_AAB_2"), {"brats19_cbica_aab"}),
        (("BraTS19_2013_10_1", "BraTS19_2013_11_1"), {"brats19_2013_10", "brats19_2013_11"}),
        (("BraTS19_CBICA_AAB_1", "Brats19_CBICA_AAB_2"), {"brats19_cbica_aab"}),
        (("BraTS20_Training_001", "BraTS20_Training_002"), {"BraTS20_Training_001", "BraTS20_Training_002"}),
        (("BraTS2021_00000", "BraTS2021_00002"), {"BraTS2021_00000", "BraTS2021_00002"}),
    ],
)
def test_whose_a_brats_scan_is(tmp_path: Path, names: tuple[str, ...], patients: set[str]) -> None:
    assert set(Volumes.brats(brats(tmp_path, names), size=(6, 6, 5)).patients.tolist()) == patients


def test_images_and_masks_lie_in_one_place(tmp_path: Path) -> None:
    image = np.ones((4, 4, 4), np.float32)
    image[0], mask = 5, np.zeros((4, 4, 4), np.uint8)
    mask[3] = 1
    mirrored = np.diag([-1.0, 1.0, 1.0, 1.0])
    mirrored[0, 3] = 3.0
    save(tmp_path / "imagesTr" / "smith_001.nii.gz", image, mirrored)  # the bright end lies at x = 3, in both files
    save(tmp_path / "labelsTr" / "smith_001.nii.gz", mask)
    public = Volumes.decathlon(tmp_path, size=(4, 4, 4)).public()
    assert np.array_equal(public.inputs[0, 0] > 0, public.targets[0] > 0)
    save(tmp_path / "imagesTr" / "smith_001.nii.gz", image, np.diag([-1.0, 1.0, 1.0, 1.0]))  # three voxels away from the mask
    with pytest.raises(DataError, match=r"another place for scan 1 of '.*' \(in alphabetical order, counted from 1\)") as caught:
        Volumes.decathlon(tmp_path, size=(4, 4, 4)).public()
    assert "smith" not in str(caught.value)


def test_a_volume_is_normalised_by_itself() -> None:
    rng = np.random.default_rng(2)
    volume = rng.normal(500, 30, (9, 9, 9)).astype(np.float32)
    volume[:2] = 0
    volume[5, 5, 5] = 1e6  # one bright voxel must not set the scale
    result = normalised(volume)
    assert result.dtype == np.float32
    assert not result[:2].any()
    assert abs(result[2:].mean()) < 1e-3
    assert result[2:].std() == pytest.approx(1, abs=1e-3)
    assert np.allclose(normalised(1000 * volume), result, atol=1e-3)
    assert not normalised(np.zeros((3, 3, 3))).any()
    assert not normalised(np.full((3, 3, 3), 7.0)).any()
    assert np.isfinite(normalised(np.array([np.nan, np.inf, 1.0, 2.0]))).all()


@pytest.mark.parametrize("have", [(4, 5, 6), (7, 2, 4), (1, 1, 1)])
def test_fitting_keeps_the_middle(have: tuple[int, int, int]) -> None:
    volume = np.arange(1, 1 + np.prod(have)).reshape(have)
    result = fitted(volume, (5, 5, 5))
    assert result.shape == (5, 5, 5)
    kept = np.prod([min(size, 5) for size in have])
    assert np.count_nonzero(result) == kept
    assert np.array_equal(fitted(fitted(volume, (9, 9, 9)), have), volume)


def test_arrays_may_go_to_disk(tmp_path: Path) -> None:
    volumes = Volumes.decathlon(task(tmp_path / "task"), size=(6, 6, 6))
    mapped = volumes.public(into=str(tmp_path / "cache"))
    assert isinstance(mapped.targets, np.memmap)
    assert np.array_equal(mapped.inputs, volumes.public().inputs)


def test_private_files_stay_private(tmp_path: Path) -> None:
    volumes = Volumes.decathlon(task(tmp_path / "task"), size=(6, 6, 6))
    with pytest.raises(Unsealed, match="`into` must lie in a folder named 'private'"):
        volumes.private(into=tmp_path / "release")
    with pytest.raises(Unsealed):
        volumes.private(into=tmp_path / "private" / ".." / "release")
    assert not (tmp_path / "release").exists()
    folder = tmp_path / "private" / "scans"
    folder.mkdir(parents=True)
    (folder / "inputs.npy").write_bytes(b"from before, for everybody")
    (folder / "inputs.npy").chmod(0o644)
    private = volumes.private(into=str(folder))
    assert np.array_equal(private.inputs, volumes.private().inputs)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_source_is_named_without_the_way_to_it(tmp_path: Path) -> None:
    task(tmp_path / "organs")
    brats(tmp_path / "heads", ("BraTS2021_00000",))
    found = (Volumes.decathlon(tmp_path / "organs", size=(6, 6, 6)), Volumes.brats(str(tmp_path / "heads"), size=(6, 6, 5)))
    assert [volumes.public().source for volumes in found] == ["organs", "heads"]
    assert [volumes[:1].private().source for volumes in found] == ["organs", "heads"]


def test_a_scan_prints_no_name(tmp_path: Path) -> None:
    scan = Scan((tmp_path / "smith_flair.nii",), tmp_path / "smith_seg.nii", "smith")
    assert "smith" not in f"{scan!r} {scan}"


def test_a_task_that_is_one_folder_further_in_is_pointed_at(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="medicaldecathlon"):
        Volumes.decathlon(tmp_path, size=(4, 4, 4))
    task(tmp_path / "organs")
    with pytest.raises(DataError, match=r"Is it 'organs', inside it\?"):
        Volumes.decathlon(tmp_path, size=(4, 4, 4))
    (tmp_path / "organs" / "labelsTr" / "organ_001.nii.gz").unlink()
    with pytest.raises(DataError) as caught:
        Volumes.decathlon(tmp_path / "organs", size=(4, 4, 4)).public()
    assert "Is it" not in str(caught.value)
    assert "medicaldecathlon" not in str(caught.value)


def test_refusals_name_no_patient(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="`directory` must be an existing folder"):
        Volumes.decathlon(tmp_path / "absent", size=(4, 4, 4))
    with pytest.raises(DataError, match="Got 0 images and 0 masks"):
        Volumes.decathlon(tmp_path, size=(4, 4, 4))
    with pytest.raises(DataError, match="without any instead"):
        Volumes.brats(tmp_path).public()
    with pytest.raises(RecipeError, match="`size` must"):
        Volumes.decathlon(task(tmp_path), size=(4, 4))  # type: ignore[arg-type]
    (tmp_path / "imagesTr" / "organ_001.nii.gz").write_bytes(b"not an image")
    with pytest.raises(DataError, match="for an image of scan 2 of") as caught:
        Volumes.decathlon(tmp_path, size=(4, 4, 4)).public()
    assert "organ" not in str(caught.value)
    save(tmp_path / "imagesTr" / "organ_001.nii.gz", np.ones((3, 3, 3), np.float32))
    with pytest.raises(DataError, match="its mask's shape"):
        Volumes.decathlon(tmp_path, size=(4, 4, 4)).public()
    (tmp_path / "labelsTr" / "organ_002.nii.gz").unlink()
    with pytest.raises(DataError, match=r"3 images and 2 masks, 2 of them in pairs.* Without a partner: 3 of imagesTr \("):
        Volumes.decathlon(tmp_path, size=(4, 4, 4)).public()
    with pytest.raises(DataError, match=r"must hold a t2 volume\. Got none for scan 1 of 'brats'") as caught:
        Volumes.brats(brats(tmp_path / "brats", ("BraTS2021_00007",), without="t2")).public()
    assert "00007" not in str(caught.value)
    with pytest.raises(RecipeError, match="`modalities` must"):
        Volumes.brats(tmp_path / "brats", modalities=("ct",))
    with pytest.raises(DataError, match="at least one volume"):
        Volumes((), (4, 4, 4)).public()


@pytest.mark.parametrize("draw", [slice(2, None), [2], np.array([False, False, True, False])])
def test_a_damaged_scan_keeps_its_number_when_it_is_drawn(tmp_path: Path, draw: object) -> None:
    volumes = Volumes.decathlon(task(tmp_path / "organs", 4), size=(6, 6, 6))
    (tmp_path / "organs" / "labelsTr" / "organ_002.nii.gz").write_bytes(b"not a mask")
    with pytest.raises(DataError, match="Got ImageFileError for the mask of scan 3 of 'organs'") as caught:
        volumes[draw].public()
    assert "organ_" not in str(caught.value)
    files = sorted(path.name for path in (tmp_path / "organs" / "labelsTr").iterdir())
    assert files[3 - 1] == "organ_002.nii.gz"


def test_every_message_about_a_scan_has_its_number(tmp_path: Path) -> None:
    volumes = Volumes.decathlon(task(tmp_path, 3, channels=2), size=(6, 6, 6))
    save(tmp_path / "imagesTr" / "organ_002.nii.gz", np.ones((8, 5, 7, 3), np.float32))
    with pytest.raises(DataError, match=r"as many channels\. Got others for scan 3 of"):
        volumes[1:].public()
    save(tmp_path / "imagesTr" / "organ_002.nii.gz", np.ones((8, 5, 7, 1, 2), np.float32))
    with pytest.raises(DataError, match=r"3 or 4 axes\. Got 5 for scan 3 of"):
        volumes[1:].public()
    save(tmp_path / "imagesTr" / "organ_002.nii.gz", np.ones((3, 5, 7), np.float32))
    with pytest.raises(DataError, match=r"its mask's shape\. Got another for scan 3 of"):
        volumes[1:].public()
    alone = Volumes((Scan(volumes.scans[2].images, volumes.scans[2].mask, "organ"),), (6, 6, 6))
    with pytest.raises(DataError, match="Got another for a scan of 'memory' without a number instead"):
        alone.public()


def test_brats_scans_are_numbered_as_their_files_are_sorted(tmp_path: Path) -> None:
    names = ("BraTS2021_00001", "BraTS2021_00001-old", "BraTS2021_00002")
    volumes = Volumes.brats(brats(tmp_path / "heads", names), size=(6, 6, 5))
    listed = sorted(str(path) for path in (tmp_path / "heads").glob("*/[!.]*_seg.nii.gz"))
    assert {str(scan.mask): scan.number for scan in volumes.scans} == {path: place for place, path in enumerate(listed, start=1)}
    (tmp_path / "heads" / names[2] / f"{names[2]}_t1.nii.gz").unlink()
    with pytest.raises(DataError, match=r"must hold a t1 volume\. Got none for scan 3 of 'heads'"):
        Volumes.brats(tmp_path / "heads").public()


def test_scans_without_a_partner_are_numbered(tmp_path: Path) -> None:
    task(tmp_path / "organs", 15)
    for number in range(1, 15):
        (tmp_path / "organs" / "labelsTr" / f"organ_{number:03d}.nii.gz").unlink()
    save(tmp_path / "organs" / "labelsTr" / "smith.nii.gz", np.ones((3, 3, 3), np.uint8))
    told = r"Without a partner: 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, \.\.\. of imagesTr and 2 of labelsTr \(in alphabetical order"
    with pytest.raises(DataError, match=told) as caught:
        Volumes.decathlon(tmp_path / "organs", size=(4, 4, 4)).public()
    assert "smith" not in str(caught.value)


def test_brats_folders_may_be_links(tmp_path: Path) -> None:
    store = brats(tmp_path / "store", ("BraTS2021_00000", "BraTS2021_00002", "BraTS2021_00005"))
    heads = brats(tmp_path / "heads", ("BraTS2021_00003",))
    for name in ("BraTS2021_00000", "BraTS2021_00002"):
        (heads / name).symlink_to(store / name)
    volumes = Volumes.brats(heads, size=(6, 6, 5))
    assert volumes.patients.tolist() == ["BraTS2021_00000", "BraTS2021_00002", "BraTS2021_00003"]
    assert volumes.public().inputs.shape == (3, 4, 6, 6, 5)


def test_both_sides_of_a_head_are_one_patient(tmp_path: Path) -> None:
    for number in (1, 2, 3, 6, 7, 8):
        save(tmp_path / "imagesTr" / f"hippocampus_{number:03d}.nii.gz", np.ones((4, 4, 4), np.float32))
        save(tmp_path / "labelsTr" / f"hippocampus_{number:03d}.nii.gz", np.ones((4, 4, 4), np.uint8))
    volumes = Volumes.decathlon(tmp_path, size=(4, 4, 4))
    first, second, third, sixth, seventh, eighth = volumes.patients
    assert first == second
    assert seventh == eighth
    assert len({first, third, sixth, seventh}) == 4
    assert "6 scans of 4 patients" in repr(volumes)
    roster = Roster.of([f"hippocampus patient {number}" for number in (1, 2, 3, 4)])
    assert sorted(len(shard) for shard in volumes.private(roster=roster).split(4, seed=0).indices) == [1, 1, 2, 2]
    assert volumes.private().places is None


@pytest.mark.parametrize("head", ["name,patient\n", ""])
def test_the_folder_says_whose_scans_they_are(tmp_path: Path, head: str) -> None:
    task(tmp_path)
    (tmp_path / "patients.csv").write_text(f"{head}organ_000, Ann\norgan_001,Ben\n\norgan_002,Ann\norgan_009,Cid\n")
    assert Volumes.decathlon(tmp_path, size=(6, 6, 6)).patients.tolist() == ["Ann", "Ben", "Ann"]


def test_a_list_from_a_spreadsheet_is_read(tmp_path: Path) -> None:
    task(tmp_path)
    (tmp_path / "patients.csv").write_text("organ_000,Ann\r\norgan_001,Ben\r\norgan_002,Ann\r\n", encoding="utf-8-sig")
    assert set(Volumes.decathlon(tmp_path, size=(8, 8, 8)).patients) == {"Ann", "Ben"}


def test_a_public_list_in_another_alphabet_is_refused_without_a_name(tmp_path: Path) -> None:
    task(tmp_path)
    (tmp_path / "patients.csv").write_bytes("organ_000,Ré\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"Got 1 lines of another form, or for a scan that has one already, instead\.$"):
        Volumes.decathlon(tmp_path, size=(8, 8, 8)).public()


def test_the_folder_says_whose_brats_scans_they_are(tmp_path: Path) -> None:
    brats(tmp_path, ("BraTS2021_00000", "BraTS2021_00002"))
    (tmp_path / "patients.csv").write_text("BraTS2021_00000,one\nBraTS2021_00002,one\n")
    assert set(Volumes.brats(tmp_path, size=(6, 6, 5)).patients) == {"one"}


@pytest.mark.parametrize(
    ("lines", "got"),
    [
        ("organ_000,Ann\norgan_001,Ben\n", "1 scans that it does not name, numbers 3 of the sorted folder, instead"),
        ("organ_000,Ann\norgan_001,Ben\norgan_002,Ann\norgan_003,Cid\n", "list scans that are there. Got 1 lines without"),
        (
            "organ_000,Ann\norgan_000,Ben\norgan_001,Ben\norgan_002,Ann\n",
            "Got 1 lines of another form",
        ),
        ("organ_000,Ann\norgan_001\norgan_002,Ann\n", "Got 1 lines of another form"),
    ],
)
def test_a_public_list_of_patients_is_whole_or_refused(tmp_path: Path, lines: str, got: str) -> None:
    task(tmp_path)
    (tmp_path / "patients.csv").write_text(lines)
    with pytest.raises(DataError, match=got) as refused:
        Volumes.decathlon(tmp_path, size=(6, 6, 6)).public()
    assert "Ann" not in str(refused.value)
    assert "organ" not in str(refused.value)


# ── what a scan must not hold ─────────────────────────────────────────────────────────────────────────────────────────


def spoiled(root: Path, part: str, change: object, *, number: int = 1, kind: type = np.float32) -> Path:
    """Put another number into three voxels of a scan."""
    path = root / part / f"organ_{number:03d}.nii.gz"
    image = nibabel.load(path)
    values = np.asarray(image.dataobj).astype(kind)
    values[2, 2, 2:5] = change
    return save(path, values, image.affine)


ODD = [
    ("imagesTr", np.nan, "voxels that are no finite number"),
    ("imagesTr", np.inf, "voxels that are no finite number"),
    ("imagesTr", -np.inf, "voxels that are no finite number"),
    ("imagesTr", 1e300, "voxels that are no finite number"),
    ("labelsTr", np.nan, "mask numbers that are not finite, below 0 or not whole"),
    ("labelsTr", np.inf, "mask numbers that are not finite, below 0 or not whole"),
    ("labelsTr", -2, "mask numbers that are not finite, below 0 or not whole"),
    ("labelsTr", 0.4, "mask numbers that are not finite, below 0 or not whole"),
]


@pytest.mark.parametrize(("part", "value", "rule"), ODD)
def test_a_public_scan_that_holds_what_it_must_not_is_refused_by_number(
    part: str, value: float, rule: str, tmp_path: Path
) -> None:
    spoiled(task(tmp_path / "organs"), part, value, kind=np.float64)
    volumes = Volumes.decathlon(tmp_path / "organs", size=(6, 6, 6))
    with pytest.raises(DataError, match=rf"Every public scan must be clean\. Got {rule} in scan 2 of 'organs' \(in") as caught:
        volumes.public()
    assert "organ_" not in str(caught.value)
    assert len(volumes[[0, 2]].public()) == 2


@pytest.mark.parametrize(("part", "value", "rule"), ODD)
def test_a_private_scan_is_cleaned_by_rule_and_nobody_else_moves(part: str, value: float, rule: str, tmp_path: Path) -> None:
    before = Volumes.decathlon(task(tmp_path / "organs"), size=(6, 6, 6), labels=(1, 2)).private()
    spoiled(tmp_path / "organs", part, 0, kind=np.float64)  # what every rule makes of it
    expected = Volumes.decathlon(tmp_path / "organs", size=(6, 6, 6), labels=(1, 2)).private()
    spoiled(tmp_path / "organs", part, value, kind=np.float64)
    found = Volumes.decathlon(tmp_path / "organs", size=(6, 6, 6), labels=(1, 2)).private()
    np.testing.assert_array_equal(found.inputs, expected.inputs)
    np.testing.assert_array_equal(found.targets, expected.targets)
    np.testing.assert_array_equal(found.inputs[[0, 2]], before.inputs[[0, 2]])
    ((note, count),) = found.notes.items()
    assert note.startswith(rule)
    assert note.endswith(": scans 2")
    assert count == 1
    assert before.notes == expected.notes == {}


def test_numbers_that_are_no_label_are_background(tmp_path: Path) -> None:
    spoiled(task(tmp_path), "labelsTr", 7)
    assert Volumes.decathlon(tmp_path, size=(6, 6, 6), labels=(1, 2)).private().notes == {}
    listed, whole = (Volumes.decathlon(tmp_path, size=(6, 6, 6), labels=some).public().targets for some in ((1, 2), ()))
    assert (whole[1] != listed[1]).sum() == 3  # type: ignore[index]
    spoiled(tmp_path, "labelsTr", 1.6)
    rounded = Volumes.decathlon(tmp_path, size=(6, 6, 6), labels=(1, 2)).private()
    np.testing.assert_array_equal(rounded.targets[1], whole[1])  # type: ignore[index]


@pytest.mark.parametrize("into", [None, "private"])
def test_a_private_scan_that_cannot_be_read_is_absent(into: str | None, tmp_path: Path) -> None:
    root = task(tmp_path / "organs", 9)
    whole = Volumes.decathlon(root, size=(6, 6, 6)).private()
    (root / "imagesTr" / "organ_001.nii.gz").write_bytes(b"not an image")
    (root / "labelsTr" / "organ_002.nii.gz").write_bytes(b"")
    save(root / "imagesTr" / "organ_003.nii.gz", np.ones((3, 3, 3), np.float32))
    save(root / "imagesTr" / "organ_004.nii.gz", np.ones((10, 5, 7, 2), np.float32))
    save(root / "imagesTr" / "organ_005.nii.gz", np.ones((11, 5, 7), np.float32), np.diag([2.0, 1, 1, 1]))
    save(root / "imagesTr" / "organ_006.nii.gz", np.ones((12, 5, 7, 1, 1), np.float32))
    (root / "labelsTr" / "organ_007.nii.gz").unlink()
    volumes = Volumes.decathlon(root, size=(6, 6, 6))
    private = volumes.private(into=into and tmp_path / into)
    assert private.units.tolist() == ["organ_000", "organ_008"]
    np.testing.assert_array_equal(private.inputs, whole.inputs[[0, 8]])
    np.testing.assert_array_equal(private.targets, whole.targets[[0, 8]])
    said = "\n".join(private.notes)
    listed = (line.partition(": scans ")[2].split(", ") for line in private.notes)
    assert sorted(number for some in listed for number in some if number) == ["2", "3", "4", "5", "6", "7"]
    assert "Without a partner: 8 of imagesTr" in said
    assert "organ_" not in said
    with pytest.raises(DataError, match="in pairs"):
        volumes.public()
    with pytest.raises(DataError, match="scan 2 of 'organs'"):
        volumes[:].public()  # what was drawn from a folder is judged scan by scan
    none = volumes[[1]].private(into=into and tmp_path / into)  # not even where no scan is left
    assert (none.inputs.shape, none.targets.shape, len(none.units)) == (
        (0, *whole.inputs.shape[1:]),
        (0, *whole.targets.shape[1:]),
        0,
    )
    assert [len(part) for part in none.split(2).indices] == [0, 0]


def test_channels_are_declared_and_not_read_off_the_first_private_scan(tmp_path: Path) -> None:
    root = task(tmp_path, 3, channels=2)
    save(root / "imagesTr" / "organ_000.nii.gz", np.ones((6, 5, 7, 3), np.float32))
    assert Volumes.decathlon(root, size=(6, 6, 6)).private(channels=2).units.tolist() == ["organ_001", "organ_002"]
    assert len(Volumes.decathlon(root, size=(6, 6, 6)).private()) == 0  # one file, so one channel


def test_endings_may_be_written_in_any_case(tmp_path: Path) -> None:
    root = task(tmp_path / "organs")
    for part, name in (("imagesTr", "organ_001.NII.GZ"), ("labelsTr", "organ_001.Nii.gz")):
        (root / part / "organ_001.nii.gz").rename(root / part / name)
    volumes = Volumes.decathlon(root, size=(6, 6, 6))
    assert volumes.patients.tolist() == ["organ_000", "organ_001", "organ_002"]
    assert len(volumes.public()) == 3
    heads = brats(tmp_path / "heads", ("BraTS2021_00001", "BraTS2021_00002"))
    for part in ("t1", "seg"):
        path = heads / "BraTS2021_00002" / f"BraTS2021_00002_{part}.nii.gz"
        path.rename(path.with_name(path.name.upper().replace("BRATS", "BraTS")))
    found = Volumes.brats(heads, size=(6, 6, 5))
    assert found.patients.tolist() == ["BraTS2021_00001", "BraTS2021_00002"]
    assert len(found.public()) == 2


def test_what_is_missing_in_a_private_folder_is_absent_and_noted(tmp_path: Path) -> None:
    task(tmp_path, 4)
    (tmp_path / "patients.csv").write_text("organ_000,Ann\norgan_001,Ben\norgan_003,Ann\norgan_004,Cid\n")
    volumes = Volumes.decathlon(tmp_path, size=(6, 6, 6))
    private = volumes.private()
    assert private.units.tolist() == ["Ann", "Ben", "Ann"]
    assert volumes[:2].private().notes == private.notes
    said = " ".join(private.notes)
    assert "Got 1 lines without a scan" in said
    assert "Got 1 scans that it does not name, numbers 3 of the sorted folder" in said
    with pytest.raises(DataError, match="must list scans that are there"):
        volumes.public()
    heads = brats(tmp_path / "heads", ("BraTS2021_00001", "BraTS2021_00002"))
    (heads / "BraTS2021_00001" / "BraTS2021_00001_t2.nii.gz").unlink()
    private = Volumes.brats(heads, size=(6, 6, 5)).private()
    assert private.units.tolist() == ["BraTS2021_00002"]
    assert "must hold a t2 volume. Got none for scan 1" in " ".join(private.notes)


# ── what no private patient decides for others ────────────────────────────────────────────────────────────────────────


ODD_LINES = {
    "a stray quote": b'organ_00,"p0',
    "a blank cell": b"organ_00,",
    "a comma in a name": b"organ_00,Doe, Jane",
    "a line twice": b"organ_00,p0\norgan_00,p0",
    "a second patient": b"organ_00,p0\norgan_00,q0",
    "another's scan": b"organ_00,p0\norgan_01,p0",
    "another scan": b"organ_00,p0\norgan_99,p0",
    "a Latin-1 letter": "organ_00,Ré".encode("latin-1"),
    "a very long id": b"organ_00," + b"p" * 200_000,
    "a long id": b"organ_00," + b"p" * 100_000,
    "no line": b"",
    "a line within a line": b"organ_00,p\r0",
    "a quote over two lines": b'organ_00,"p0\nand more"',
    "a zero": b"organ_00,p\0",
}


def clinic(root: Path, count: int) -> Path:
    for number in range(count):
        image = np.random.default_rng(number).normal(size=(4, 4, 4)).astype(np.float32)
        for part, values in (("imagesTr", image), ("labelsTr", (image > 0).astype(np.uint8))):
            save(root / part / f"organ_{number:02d}.nii", values)
    return root


def owners(root: Path, first: bytes, count: int) -> Path:
    lines = [first, *(f"organ_{number:02d},p{number}".encode() for number in range(1, count))]
    (root / "patients.csv").write_bytes(b"name,patient\n" + b"\n".join(lines) + b"\n")
    return root


def shards(private: Private) -> list[list[tuple[str, bytes, bytes]]]:
    return [
        [(private.units[i], private.inputs[i].tobytes(), private.targets[i].tobytes()) for i in part]
        for part in private.split(20).indices
    ]


@pytest.mark.parametrize("line", ODD_LINES.values(), ids=ODD_LINES)
def test_one_patient_s_line_moves_that_patient_s_records_alone(tmp_path: Path, line: bytes) -> None:
    """Whatever the first of 30 patients writes into the list, every other patient's records stay in their shard."""
    root = clinic(tmp_path, 30)
    before, after = (shards(Volumes.decathlon(owners(root, one, 30), size=(4, 4, 4)).private()) for one in (b"organ_00,p0", line))
    others = {f"p{number}" for number in range(1, 30)}
    for old, new in zip(before, after, strict=True):
        assert [row for row in old if row[0] in others] == [row for row in new if row[0] in others]
    assert sum(len(part) for part in after) >= 29
    assert len(Volumes.decathlon(root, size=(4, 4, 4)).private(into=tmp_path / "private")) >= 29


def test_the_reading_before_lets_one_quote_take_all_others_along() -> None:
    """Broken twin: a quoted cell ran across lines, so that 59 of 60 people were gone, or the folder was refused."""
    lines = ["name,patient", 'organ_00,"p0', *(f"organ_{number:02d},p{number}" for number in range(1, 60))]
    rows = [row for row in csv.reader(lines) if row]
    assert len(rows) == 2
    assert len(rows[1]) == 2


def test_a_private_scan_of_two_patients_is_a_record_of_both(tmp_path: Path) -> None:
    volumes = Volumes.decathlon(owners(clinic(tmp_path, 3), b"organ_00,p0\norgan_00,q0", 3), size=(4, 4, 4))
    private = volumes.private()
    assert private.units.tolist() == ["p0", "q0", "p1", "p2"]
    np.testing.assert_array_equal(private.inputs[0], private.inputs[1])
    assert "Got 1 lines of another form" in " ".join(private.notes)
    with pytest.raises(DataError, match="Got 1 lines of another form"):
        volumes.public()


def test_a_private_folder_may_be_empty_and_a_public_one_not(tmp_path: Path) -> None:
    for part in ("imagesTr", "labelsTr"):
        (tmp_path / "task" / part).mkdir(parents=True)
    (tmp_path / "heads").mkdir()
    for found in (Volumes.decathlon(tmp_path / "task", size=(4, 4, 4)), Volumes.brats(tmp_path / "heads", size=(4, 4, 4))):
        private = found.private(channels=2)
        assert private.inputs.shape == (0, 2, 4, 4, 4)
        assert [len(part) for part in private.split(3).indices] == [0, 0, 0]
        with pytest.raises(DataError, match="`directory` must hold"):
            found.public()


def damaged(path: Path, how: str) -> None:
    """Spoil an image (8, 8, 8) in a way of its own."""
    if how == "no channels":
        content = bytearray(path.read_bytes())
        struct.pack_into("<8h", content, 40, 4, 4, 4, 4, 0, 1, 1, 1)
        path.write_bytes(content)
        return
    path.unlink()
    if how == "a link to itself":
        path.symlink_to(path.name)
    elif how == "a chain of links":
        for number in range(60):
            (path.parent / f".{number}").symlink_to(f".{number + 1}")
        path.symlink_to(".0")
    elif how == "a pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.parametrize("how", ["no channels", "a link to itself", "a chain of links", "a pipe", "a folder"])
@pytest.mark.parametrize("layout", ["decathlon", "brats"])
def test_no_private_file_of_any_kind_stops_a_folder(tmp_path: Path, layout: str, how: str) -> None:
    if layout == "decathlon":
        damaged(clinic(tmp_path, 3) / "imagesTr" / "organ_01.nii", how)
        found = Volumes.decathlon(tmp_path, size=(4, 4, 4))
    else:
        names = ("BraTS2021_00001", "BraTS2021_00002", "BraTS2021_00003")
        damaged(brats(tmp_path, names) / names[1] / f"{names[1]}_t1.nii.gz", how)
        found = Volumes.brats(tmp_path, size=(4, 4, 4))
    private = found.private()
    assert [unit[-1] for unit in private.units.tolist()] == (["0", "2"] if layout == "decathlon" else ["1", "3"])
    assert any("left out" in note or "of the folder" in note for note in private.notes)


def test_no_scan_takes_an_image_of_somebody_whose_name_differs_by_case(tmp_path: Path) -> None:
    brats(tmp_path, ("Ann",))
    image = tmp_path / "Ann" / "Ann_t1.nii.gz"
    image.rename(tmp_path / "x.nii.gz").rename(image.with_name("ann_t1.nii.gz"))
    assert len(Volumes.brats(tmp_path, size=(6, 6, 5)).private(channels=4)) == 0


def test_what_others_raise_about_a_private_scan_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Volumes.decathlon(clinic(tmp_path, 2), size=(4, 4, 4))

    def broken(volume: np.ndarray) -> np.ndarray:
        raise ValueError("Ms Smith")

    monkeypatch.setattr("tutelage.data.volumes.normalised", broken)
    private = found.private()
    assert dict(private.notes) == {"left out: Every scan must be readable: scans 1, 2": 2}
