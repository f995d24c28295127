"""A private scan that was copied among public ones stops the run before anything is written, whatever the copy looks like."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.students.blobs import blobs
from tests.walk.test_masks_recipe import scans
from tests.walk.tiny import clouds, tiny_run

import tutelage as tt
from tutelage.data import overlap
from tutelage.data.volumes import Volumes
from tutelage.privacy.errors import DataError
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import run

nibabel = pytest.importorskip("nibabel")

ALIGNED = "[alignment]\nsteps = 3\nwindow = 3\n"
Folders = dict[str, Path]


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Write four private, three public and two test scans of 8 x 9 x 10 voxels, of other people under other names."""
    found, seed = {}, 0
    for name, count in (("private", 4), ("public", 3), ("test", 2)):
        found[name] = tmp_path / name
        for part in ("imagesTr", "labelsTr"):
            (found[name] / part).mkdir(parents=True)
        for number in range(count):
            rng, seed = np.random.default_rng(seed), seed + 1
            mask = np.zeros((8, 9, 10), np.uint8)
            mask[2:5, 3:6, 3:7] = 1
            image = np.rint(100 + 50 * mask + rng.normal(0, 9, mask.shape)).astype(np.int16)
            for part, values in (("imagesTr", image), ("labelsTr", mask)):
                nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), found[name] / part / f"{name}_{number}.nii.gz")
    return found


def recipe(folders: Folders, extra: str = "") -> Any:
    text = scans().replace('"hippocampus"', '"nifti"').replace("private = 4\npublic = 2\ntest = 2\n", "")
    text = re.sub(r"roster = .*\n", "", text)  # by a hash of each patient's name
    named = f'public_directory = "{folders["public"]}"\ntest_directory = "{folders["test"]}"\n'
    return parse(text.replace("[privacy]", f"{named}[privacy]", 1) + extra)


def carried_out(folders: Folders, out: Path, extra: str = "") -> Any:
    return run(recipe(folders, extra), out, data=folders["private"], device="cpu", engine="sequential")


def other(write: Callable[[Any], Any], ending: str = ".nii.gz") -> Callable[[Path, Path], None]:
    """Store a scan as another file that shows the same."""

    def stored(source: Path, goal: Path) -> None:
        nibabel.save(write(nibabel.load(source)), goal.with_name(goal.name.removesuffix(".nii.gz") + ending))

    return stored


def typed(image: Any, kind: type, slope: float = 1.0) -> Any:
    values = np.asarray(image.dataobj).astype(np.float64) * slope
    return nibabel.Nifti1Image(values.astype(kind), image.affine)


def reversed_axes(image: Any) -> Any:
    """Store both axes from their other end, and say so in the header: the scan lies where it lay."""
    turn = nibabel.orientations.axcodes2ornt("LPS")
    start = nibabel.orientations.io_orientation(image.affine)
    return image.as_reoriented(nibabel.orientations.ornt_transform(start, turn))


def exchanged_axes(image: Any) -> Any:
    turn = nibabel.orientations.axcodes2ornt("SAR")
    start = nibabel.orientations.io_orientation(image.affine)
    return image.as_reoriented(nibabel.orientations.ornt_transform(start, turn))


COPIES: dict[str, Callable[[Path, Path], None]] = {
    "the same bytes": lambda source, goal: shutil.copyfile(source, goal) and None,
    "a hard link": lambda source, goal: os.link(source, goal),
    "no compression": other(lambda image: image, ".nii"),
    "another ending": lambda source, goal: (
        shutil.copyfile(source, goal.with_name(goal.name.upper().replace("COPY", "copy"))) and None
    ),
    "floats": other(lambda image: typed(image, np.float64)),
    "a header that scales": other(lambda image: typed(image, np.float32, 0.37)),
    "reversed axes": other(reversed_axes),
    "exchanged axes": other(exchanged_axes),
    "reversed axes without a word": other(lambda image: nibabel.Nifti1Image(np.asarray(image.dataobj)[::-1], image.affine)),
}


def copied(folders: Folders, into: str, how: Callable[[Path, Path], None]) -> None:
    for part in ("imagesTr", "labelsTr"):
        change = COPIES["the same bytes"] if part == "labelsTr" and how is COPIES["a header that scales"] else how
        change(folders["private"] / part / "private_1.nii.gz", folders[into] / part / "copy.nii.gz")


@pytest.mark.parametrize("into", ["public", "test"])
@pytest.mark.parametrize("extra", ["", ALIGNED], ids=["plain", "aligned"])
@pytest.mark.parametrize("how", COPIES)
def test_a_private_scan_among_public_ones_is_refused(how: str, extra: str, into: str, folders: Folders, tmp_path: Path) -> None:
    copied(folders, into, COPIES[how])
    with pytest.raises(DataError, match=f"`{into}` must hold no record of `private`, in whatever form"):
        carried_out(folders, tmp_path / "run", extra)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("listed", ["private", "public"])
def test_a_list_of_patients_hides_no_copy(listed: str, folders: Folders, tmp_path: Path) -> None:
    """The old rule compared paths and patients' names: a list that calls the copy somebody else's was enough to pass."""
    copied(folders, "public", COPIES["the same bytes"])
    names = sorted(path.name.removesuffix(".nii.gz") for path in (folders[listed] / "imagesTr").iterdir())
    (folders[listed] / "patients.csv").write_text("".join(f"{name},{listed} of {number}\n" for number, name in enumerate(names)))
    with pytest.raises(DataError, match="`public` must hold no record of `private`"):
        carried_out(folders, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_the_comparison_the_private_scan_is_released(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: what this was about."""
    copied(folders, "public", COPIES["reversed axes"])
    monkeypatch.setattr(overlap, "refuse", lambda *_: None)
    done = carried_out(folders, tmp_path / "run")
    one = Volumes.decathlon(folders["private"], size=(8, 8, 8))[[1]].public().inputs[0].ravel()
    shown = np.load(done.folder.samples)["inputs"]
    assert max(np.corrcoef(one, image.ravel())[0, 1] for image in shown) == pytest.approx(1.0)


def test_people_apart_run_through(folders: Folders, tmp_path: Path) -> None:
    assert carried_out(folders, tmp_path / "run").answers.values.shape == (2, 8, 8, 8)


@pytest.mark.parametrize("part", ["public", "test"])
@pytest.mark.parametrize("form", [np.float64, np.float32, np.float16])
def test_arrays_from_python_are_compared_too(part: str, form: type, tmp_path: Path) -> None:
    private, pool = blobs(30, 0), blobs(24, 1)
    mixed = np.concatenate([pool[0][:20], private[0][:1, :, ::-1].astype(form), pool[0][21:]])
    parts = {"public": tt.Public.of(*pool), "test": tt.Public.of(*blobs(9, 2)), part: tt.Public.of(mixed, pool[1])}
    with pytest.raises(DataError, match=f"`{part}` must hold no record of `private`"):
        mask_run_on(tt.Private.of(*private), tmp_path / "run", **parts)
    assert not (tmp_path / "run").exists()


def mask_run_on(private: tt.Private, out: Path, *, public: tt.Public, test: tt.Public) -> Any:
    from tests.students.blobs import CODEC, NETWORK, QUICK
    from tests.walk.tiny_masks import Painters

    from tutelage.students.masks import MaskStudent

    return tt.transfer(
        private, public, test=test, out=out, teachers=Painters(), codec=CODEC, budget=tt.Budget(8.0, 1e-5), shards=5, queries=20,
        student=lambda: MaskStudent(NETWORK, training=QUICK, device="cpu"),
    )  # fmt: skip


def test_rows_of_measurements_are_compared_too(tmp_path: Path) -> None:
    hidden, answers = clouds(120, 0)[0], clouds(60, 2)[1]
    with pytest.raises(DataError, match="`test` must hold no record of `private`"):
        tiny_run(tmp_path / "run", test=tt.Public.of(hidden[:60], answers))
    assert not (tmp_path / "run").exists()
    tiny_run(tmp_path / "run")
