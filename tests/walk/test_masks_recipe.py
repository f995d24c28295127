"""Recipes for masks, carried out whole on a few small scenes, and what each way of asking leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tutelage.privacy.errors import RecipeError
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import run
from tutelage.report.page import report
from tutelage.runs import STAGES, RunFolder
from tutelage.verification import verify

pytest.importorskip("torch")

TINY = """
name = "tiny"
[data]
set = "scenes"
size = 16
private = 24
public = 10
test = 6
[privacy]
epsilon = 50.0
delta = 1e-5
[teachers]
kind = "unet"
shards = 3
widths = [8]
steps = 4
batch = 4
augmentation = "scenes"
[codec]
kind = "region-votes"
regions = 4
[aggregation]
method = "gnmax"
queries = 6
[student]
learner = "masks"
widths = [8]
[student.masks]
steps = 4
batch = 4
augmentation = { flips = [-1], nearest = true }
"""
REGIONS = TINY.replace('"unet"', '"regions"').replace('augmentation = "scenes"', 'augmentation = "silhouettes"')
REGIONS = REGIONS.replace('learner = "masks"', 'learner = "masks"\nkind = "regions"')
REGIONS = REGIONS.replace("{ flips = [-1], nearest = true }", "{ flip = true }\nmembers = 2")
VOTES = '[codec]\nkind = "region-votes"\nregions = 4\n[aggregation]\nmethod = "gnmax"'
LATENT = """learner = "latent"
widths = [8]
[student.latent]
steps = 2
again = "none"
[student.latent.begin]
steps = 3
augmentation = "scenes"
"""
CODECS = {
    "flips": '[codec]\nkind = "flips"\n[codec.filter]\nkind = "dct"\nkept = 20',
    "flips of nothing": '[codec]\nkind = "flips"\nreference = "nothing"\nnorm = 9.0\nfilter = { kind = "pca", components = 4 }',
    "dct": '[codec]\nkind = "dct"\nkept = 20\nnorm = 7.0',
    "pca": '[codec]\nkind = "pca"\ncomponents = 5',
    "pixels": '[codec]\nkind = "pixels"\nbound = "orthant"',
    "blocks": '[codec]\nkind = "blocks"\nblock = [8, 8]\ncomponents = 4',
    "autoencoder": '[codec]\nkind = "autoencoder"\ndim = 4\nsteps = 3\nwidths = [8, 8]',
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    outcome = run(parse(TINY), tmp_path_factory.mktemp("masks") / "run", device="cpu", engine="sequential")
    return report(outcome.folder, name="tiny")


def test_a_recipe_for_masks_is_carried_out_whole(finished: RunFolder) -> None:
    scores = json.loads(finished.scores.read_text(encoding="utf-8"))
    assert {"private student", "released masks", *STAGES} <= set(scores)  # drawn scenes are public: stages may be shown
    with np.load(finished.answers) as answers:
        assert answers["masks"].shape == (6, 16, 16)
    assert (finished.release / "student.safetensors").exists()
    assert finished.shown_stages.exists()
    assert verify(finished.root).claimed_epsilon == pytest.approx(50.0)


def test_its_page_shows_every_stage(finished: RunFolder) -> None:
    page = finished.report.read_text(encoding="utf-8")
    for title in ("public image", "truth", "one teacher", "encoded teacher", "ensemble", "released answer", "student"):
        assert f"<th>{title}</th>" in page
    assert page.count("data:image/png;base64,") == 7 * 6 + 1  # six questions, and the mean shape


def test_a_finished_run_is_resumed_for_free(finished: RunFolder) -> None:
    before = finished.exported_book.read_bytes()
    with pytest.raises(RecipeError, match="must be a new folder"):
        run(parse(TINY), finished.root, device="cpu", engine="sequential")
    again = run(parse(TINY), finished.root, device="cpu", engine="sequential", resume=True)
    assert again.folder.exported_book.read_bytes() == before


def test_teachers_and_a_student_may_look_at_one_region_at_a_time(tmp_path: Path) -> None:
    from tutelage.codecs.regionvotes import RegionVotes
    from tutelage.nets.regions import RegionModel

    done = run(parse(REGIONS), tmp_path / "run", device="cpu", engine="sequential")
    scores = json.loads(done.folder.scores.read_text(encoding="utf-8"))
    assert {"private student", "released masks", "control: mean shape, as the student's label", *STAGES} <= set(scores)
    model = RegionModel.load(done.folder.release / "student.safetensors", RegionVotes, device="cpu")
    assert (len(model), model.cut) == (2, RegionVotes((16, 16), 4))
    images = done.answers.values[:, None].astype(np.float32)
    assert np.array_equal(model.predict(images), done.model.predict(images))
    assert "<th>encoded teacher</th>" in report(done.folder).report.read_text(encoding="utf-8")
    book = done.folder.exported_book.read_bytes()
    again = run(parse(REGIONS), tmp_path / "run", device="cpu", engine="sequential", resume=True)
    assert again.folder.exported_book.read_bytes() == book
    mixed = REGIONS.replace('learner = "masks"\nkind = "regions"', 'learner = "masks"').replace(
        "{ flip = true }\nmembers = 2", '"none"'
    )
    assert run(parse(mixed), tmp_path / "mixed", device="cpu", engine="sequential").answers.values.shape == (6, 16, 16)


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_can_be_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TINY.replace(VOTES, CODECS[name] + '\n[aggregation]\nmethod = "mean"')
    if name not in ("pixels", "autoencoder"):
        text = text[: text.index("learner")] + LATENT
    done = run(parse(text), tmp_path / "run", device="cpu", engine="sequential")
    assert done.guarantee["epsilon"] == pytest.approx(50.0)
    assert done.answers.values.shape == (6, 16, 16)
    assert (done.folder.release / "codec.safetensors").exists() == (name == "autoencoder")


def test_a_learned_codec_is_the_same_after_a_pause(tmp_path: Path) -> None:
    text = TINY.replace(VOTES, CODECS["autoencoder"] + '\n[aggregation]\nmethod = "mean"')
    first = run(parse(text), tmp_path / "run", device="cpu", engine="sequential")
    before = first.folder.exported_book.read_bytes()
    again = run(parse(text), tmp_path / "run", device="cpu", engine="sequential", resume=True)
    assert again.folder.exported_book.read_bytes() == before


def test_volumes_are_divided_by_patients(decathlon: Callable[[int], Path], tmp_path: Path) -> None:
    text = TINY.replace('"scenes"\nsize = 16', '"hippocampus"\nsize = [8, 8, 8]', 1).replace("private = 24", "private = 4")
    text = text.replace("public = 10", "public = 2").replace("test = 6", "test = 2").replace("queries = 6", "queries = 2")
    text = text.replace("delta = 1e-5", 'delta = 1e-5\nunit = "patient"').replace("flips = [-1], nearest", "nearest")
    text = text.replace('augmentation = "scenes"', 'augmentation = "none"').replace(
        VOTES, CODECS["dct"] + '\n[aggregation]\nmethod = "mean"'
    )
    folder = decathlon(8)
    with pytest.raises(RecipeError, match="`data` must be the folder with the files of 'hippocampus': --data DIR"):
        run(parse(text), tmp_path / "none", device="cpu")
    done = run(parse(text), tmp_path / "run", data=folder, device="cpu", engine="sequential")
    assert (done.guarantee["unit"], done.guarantee["units"]) == ("patient", 4)
    scores = json.loads(done.folder.scores.read_text(encoding="utf-8"))
    assert not set(STAGES) & set(scores)  # a folder may hold anything: what was computed without noise stays inside
    page = report(done.folder)
    assert "behind the door" not in page.report.read_text(encoding="utf-8")
    assert "behind the door" in page.inside_report.read_text(encoding="utf-8")
    assert "cut through the middle" in page.report.read_text(encoding="utf-8")


@pytest.fixture
def decathlon(tmp_path: Path) -> Callable[[int], Path]:
    """Write a small task: a ball somewhere in every volume."""
    nibabel = pytest.importorskip("nibabel")

    def write(count: int) -> Path:
        rng = np.random.default_rng(0)
        for part in ("imagesTr", "labelsTr"):
            (tmp_path / "task" / part).mkdir(parents=True)
        for number in range(count):
            place = rng.integers(3, 5, 3)
            mask = (np.stack(np.indices((8, 8, 8))).T - place).T
            mask = ((mask**2).sum(axis=0) < 8).astype(np.uint8)
            image = (100 + 50 * mask + rng.normal(0, 5, mask.shape)).astype(np.float32)
            for part, values in (("imagesTr", image), ("labelsTr", mask)):
                nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / "task" / part / f"h_{number:03d}.nii.gz")
        return tmp_path / "task"

    return write
