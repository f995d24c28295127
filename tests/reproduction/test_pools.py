"""Scenes drawn by threads, volumes in their folders, and patients who are never divided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from tutelage.data.scenes import Scenes
from tutelage.data.sources import MissingFiles
from tutelage.reproduction import pools, scans, stages, studies
from tutelage.reproduction.pools import Bench


def test_scenes_of_many_passes_depend_on_their_seed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_PASS", 8)
    bench = Bench(out=tmp_path)
    bench.__dict__["scenes"] = Scenes(64)  # in place of the real templates
    found, again = bench.images(20, seed=3), bench.images(20, seed=3)
    assert found.inputs.dtype == np.uint8
    assert found.targets is not None
    assert found.sha256 == again.sha256
    grey, masks = Scenes(64).draw(8, seed=3000)
    np.testing.assert_array_equal(found.inputs[:8], np.rint(255 * grey))
    np.testing.assert_array_equal(found.targets[:8], masks)
    np.testing.assert_array_equal(found.targets[16:], Scenes(64).draw(4, seed=3002)[1])
    assert bench.images(20, seed=4).sha256 != found.sha256


def written(folder: Path, patients: int) -> Path:
    """Write a BraTS 2018 folder; every third patient came twice, and looked the same."""
    nibabel = pytest.importorskip("nibabel")
    for number in range(patients):
        for visit in range(1 + (number % 3 == 0)):
            name = f"Brats18_CBICA_{number:03d}_{visit + 1}"
            (folder / "HGG" / name).mkdir(parents=True)
            for part in ("flair", "t1", "t1ce", "t2", "seg"):
                volume = np.random.default_rng(number).integers(0, 5 if part == "seg" else 900, (8, 8, 8), np.int16)
                nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), folder / "HGG" / name / f"{name}_{part}.nii.gz")
    return folder


def test_brats_goes_before_the_hippocampus_and_patients_are_not_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "BRAIN", (8, 8, 8))
    written(tmp_path / "brats", 12)
    bench = Bench(out=tmp_path / "out", data=tmp_path, device="cpu")
    assert bench.volumes == ("brats",)
    assert bench.patients.everyone.inputs.shape == (16, 4, 4, 4, 4)  # every second voxel, four channels
    private, public, test = bench.patients.divided()
    assert (len(private) + len(public) + len(test), private.unit) == (16, "patient")
    outside = {image.tobytes() for image in np.concatenate([public.inputs, test.inputs])}
    assert len(np.unique(private.units)) == 9  # of 12, as 248 are of 335
    assert not outside & {image.tobytes() for image in private.inputs}
    study = studies.tumours(bench)
    assert [column.teachers for column in study.columns] == [8, 8, 9]
    assert study.norm is None
    assert "brats, 9 private patients" in study.remarks[0]


def test_no_volumes_at_all_are_missed(tmp_path: Path) -> None:
    with pytest.raises(MissingFiles, match=r"`data` must hold hippocampus \(imagesTr, labelsTr\) or brats"):
        _ = Bench(out=tmp_path, data=tmp_path).patients


def test_what_several_figures_need_is_made_once(tmp_path: Path) -> None:
    bench, made = Bench(out=tmp_path), []
    assert [bench.once("x", lambda: made.append(1) or len(made)) for _ in range(2)] == [1, 1]


def test_a_small_run_does_not_search_for_an_engine(tmp_path: Path) -> None:
    assert stages._engine(Bench(out=tmp_path, small=True, device="cpu")) == "sequential"
    assert stages._engine(Bench(out=tmp_path, device="cpu")) == "auto"
