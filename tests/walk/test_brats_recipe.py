"""The packaged recipe for BraTS, carried out whole on folders of tiny made-up scans."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from tutelage.data.volumes import MODALITIES
from tutelage.privacy.bounds import Ball
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import codecs
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import embedded, run
from tutelage.recipes.segmenters import check
from tutelage.tasks.masks import reading as masks_reading
from tutelage.verification import verify

STAGES = masks_reading.READING.sealed["stages"]

pytest.importorskip("torch")
nibabel = pytest.importorskip("nibabel")

SCAN = (16, 14, 10)  # of which the recipe takes the middle
# Seven patients each; the first patient of 2019 was there twice.
YEARS = {
    "2019": ("HGG/BraTS19_A_1_1", "HGG/BraTS19_A_1_2", *(f"LGG/BraTS19_B_{number}_1" for number in range(6))),
    "2021": tuple(f"BraTS2021_{number:05d}" for number in range(7)),
}
ROSTERS = {"2019": ("brats19_a_1", *(f"brats19_b_{number}" for number in range(6))), "2021": YEARS["2021"]}
SHRUNK = (
    ("size = [160, 192, 155]", "size = [12, 12, 9]"),
    ("public = 40", "public = 2"),
    ("test = 20 ", "test = 1 "),
    ("shards = 250", "shards = 4\nwidths = [8]"),
    ("window = [80, 96, 80]", "window = [8, 8, 8]"),
    ("steps = 600", "steps = 3"),
    ("kept = 500", "kept = 12"),
    ("norm = 400.0", "norm = 9.0"),
    ("queries = 40", "queries = 2"),
    ('learner = "latent"', 'learner = "latent"\nwidths = [8]'),
    ("steps = 300", "steps = 2"),
)


def packaged() -> str:
    return resources.files("tutelage.recipes").joinpath("segmentation/brats.toml").read_text(encoding="utf-8")


def shrunk() -> str:
    text = packaged()
    for before, after in SHRUNK:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text.replace("steps = 1600", "steps = 2")


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Write scans of one year: a bright ball with a core of its own label in every one."""
    rng, root = np.random.default_rng(0), tmp_path / "brats"
    for name in YEARS[request.param]:
        place, stem = root / name, name.rpartition("/")[2]
        place.mkdir(parents=True)
        far = sum((axis - centre) ** 2 for axis, centre in zip(np.indices(SCAN), rng.integers(4, 7, 3), strict=True))
        labels = np.where(far < 4, 4, np.where(far < 12, 2, 0)).astype(np.uint8)
        for modality in MODALITIES:
            image = (100 + 40 * (labels > 0) + rng.normal(0, 5, SCAN)).astype(np.float32)
            nibabel.save(nibabel.Nifti1Image(image, np.eye(4)), place / f"{stem}_{modality}.nii.gz")
        nibabel.save(nibabel.Nifti1Image(labels, np.eye(4)), place / f"{stem}_seg.nii.gz")
    (root / "roster.txt").write_text("\n".join(ROSTERS[request.param]), encoding="utf-8")
    return root


def test_it_is_priced_without_a_file() -> None:
    recipe = embedded("segmentation/brats")
    check(recipe)  # windows, networks and learners' tables fit volumes of its size
    assert codecs.bound(recipe) == (Ball(500, 400.0), True)
    assert (recipe.privacy.unit, recipe.data.private) == ("patient", None)  # everybody who is left
    for key in ("directory", "public_directory", "test_directory", "public_data"):
        assert getattr(recipe.data, key) is None  # who is public, only the owner of the scans can say


@pytest.mark.parametrize("folder", YEARS, indirect=True)
def test_it_is_carried_out_whole(folder: Path, tmp_path: Path) -> None:
    recipe = parse(shrunk())
    with pytest.raises(RecipeError, match="`data` must say who is public"):
        run(recipe, tmp_path / "none", data=folder, device="cpu")
    done = run(recipe, tmp_path / "run", data=folder, public_data=True, device="cpu", engine="sequential")
    assert (done.guarantee["unit"], done.guarantee["units"]) == ("patient", 4)
    assert done.answers.codes.shape == (2, 12)
    assert done.answers.values.shape[1:] == (12, 12, 9)
    scores = json.loads(done.folder.scores.read_text(encoding="utf-8"))
    assert {"private student", "released masks", "control: mean shape, as the student's label"} <= set(scores)
    assert not set(STAGES) & set(scores)  # what was computed without noise stays inside
    assert verify(done.folder.root).claimed_epsilon == pytest.approx(8.0)


@pytest.mark.parametrize("folder", ["2021"], indirect=True)
def test_decoded_answers_will_do_where_the_matrix_is_too_large(folder: Path, tmp_path: Path) -> None:
    text = shrunk()
    text = text[: text.index("[student]")] + '[student]\nlearner = "masks"\nwidths = [8]\n[student.masks]\nsteps = 2\nbatch = 1\n'
    done = run(parse(text), tmp_path / "run", data=folder, public_data=True, device="cpu", engine="sequential")
    assert done.model.predict(np.zeros((1, 4, 12, 12, 9), np.float32)).shape == (1, 12, 12, 9)
