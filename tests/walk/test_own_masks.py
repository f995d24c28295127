"""Masks of one's own, from `init` to predictions: pictures with masks, and volumes whose masks lie where they lie."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.data.made import affine, blob, nifti, pair, series
from tests.walk.own_table import Call, caller

from tutelage.metrics import dice

pytest.importorskip("torch")
nibabel = pytest.importorskip("nibabel")


@pytest.fixture
def tutelage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(monkeypatch, capsys)


def quick(recipe: Path) -> Path:
    """Confirm what a recipe declares, and train for less long than one that is meant."""
    text = recipe.read_text(encoding="utf-8").replace("declared = false", "declared = true")
    text = re.sub(r"steps = \d+", "steps = 40", text).replace("[8, 16, 32]", "[8, 16]")
    recipe.write_text(text, encoding="utf-8")
    return recipe


def walked(tutelage: Call, folder: Path, tmp_path: Path, *words: object) -> Path:
    """Take the walk up to an exported model."""
    recipe = tmp_path / "own.toml"
    code, _, err = tutelage("init", folder, "--out", recipe, "--epsilon", 8, *words)
    assert code == 0, err
    assert tutelage("plan", recipe)[0] == 0
    code, _, err = tutelage("run", recipe, "--out", tmp_path / "run", "--json")
    assert (code, "declared" in err) == (2, True)
    code, _, err = tutelage("run", quick(recipe), "--out", tmp_path / "run", "--json")
    assert code == 0, err
    code, _said, err = tutelage("export", tmp_path / "run", "--out", tmp_path / "model", "--json")
    assert code == 0, err
    return tmp_path / "model"


@pytest.mark.slow
def test_pictures_with_masks(tutelage: Call, tmp_path: Path) -> None:
    from PIL import Image

    for part, people in (("private", range(20)), ("public", range(100, 112)), ("test", range(200, 206))):
        for number in people:
            pair(tmp_path / "clinic" / part, f"p{number}", number)
    model = walked(tutelage, tmp_path / "clinic", tmp_path)
    image, mask = blob((48, 48), 300)  # of another size than the model's: predictions have the image's own
    Image.fromarray(image.astype(np.uint8)).save(tmp_path / "new.png")
    found = {}
    for name, place in (("run", tmp_path / "run"), ("model", model)):
        code, _, err = tutelage("predict", place, tmp_path / "new.png", "--out", tmp_path / "answers" / name)
        assert code == 0, err
        with Image.open(tmp_path / "answers" / name / "new.png") as drawn:
            found[name] = np.asarray(drawn)
    assert found["model"].shape == (48, 48)
    assert set(np.unique(found["model"])) <= {0, 255}
    assert np.array_equal(found["run"], found["model"])
    assert dice(found["model"][None] / 255, mask[None])[0] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nifti", "dicom"])
def test_volumes(tutelage: Call, tmp_path: Path, kind: str) -> None:
    """The mask of a turned volume with voxels of any size lies where the volume lies, and over its object."""
    place, shape = affine((1.0, 1.5, 2.0), turned=True), (16, 14, 12)
    for part, people in (("private", range(10)), ("public", range(100, 106)), ("test", range(200, 203))):
        for number in people:
            home, (image, mask) = tmp_path / "clinic" / part, blob(shape, number)
            if kind == "nifti":
                nifti(home / "imagesTr" / f"p{number}.nii.gz", image, place)
                nifti(home / "labelsTr" / f"p{number}.nii.gz", mask, place)
            else:
                series(home / "images" / f"p{number}", np.rint(image), place, patient=f"p{number}", shuffle=number)
                nifti(home / "labels" / f"p{number}.nii.gz", mask, place)
    model = walked(tutelage, tmp_path / "clinic", tmp_path)
    image, mask = blob((18, 14, 16), 300)
    nifti(tmp_path / "new.nii.gz", image, place)
    files = [tmp_path / "new.nii.gz"]
    if kind == "dicom":
        series(tmp_path / "scan", np.rint(image), place)
        files.append(tmp_path / "scan")
    code, _said, err = tutelage("predict", model, *files, "--out", tmp_path / "answers")
    assert code == 0, err
    drawn = nibabel.load(tmp_path / "answers" / "new.nii.gz")
    assert np.allclose(drawn.affine, nibabel.load(tmp_path / "new.nii.gz").affine)
    assert drawn.shape == (18, 14, 16)
    found = np.asarray(drawn.dataobj)
    assert dice(found[None], mask[None])[0] > 0.5
    assert dice(found[None], mask[None, ::-1, ::-1, ::-1])[0] < dice(found[None], mask[None])[0]
    if kind == "dicom":
        other = nibabel.load(tmp_path / "answers" / "scan.nii.gz")
        assert np.allclose(np.abs(np.diag(other.affine)[:3]), (1.0, 1.5, 2.0))
        assert np.asarray(other.dataobj).any()
