"""Recipes for masks, carried out whole on a few small scenes, and what each way of asking leaves behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage import manifest
from tutelage.privacy.errors import DataError, LedgerError, RecipeError
from tutelage.privacy.ledger import charges, read_lines
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import run
from tutelage.report.page import report
from tutelage.runs import RunFolder
from tutelage.tasks.masks import reading as masks_reading
from tutelage.verification import verify

STAGES = masks_reading.READING.sealed["stages"]

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
    "blocks of any number": '[codec]\nkind = "blocks"\nblock = [8, 8]\nnorm = 8.0',
    "pca of any number": '[codec]\nkind = "pca"',
    "flips of any number": '[codec]\nkind = "flips"\n[codec.filter]\nkind = "pca"',
    "wavelet": '[codec]\nkind = "wavelet"\nkept = 20\nnorm = 7.0',
    "regions": '[codec]\nkind = "regions"\nregions = 12',
    "rescaled": '[codec]\nkind = "rescaled"\n[codec.inner]\nkind = "pca"\ncomponents = 5',
    "guided": '[codec]\nkind = "guided"\nsteps = 3\nwidths = [8]\naugmentation = "scenes"\n[codec.inner]\n'
    'kind = "dct"\nkept = 20',
    "guided network": '[codec]\nkind = "guided"\nsteps = 2\nwidths = [8]\n[codec.inner]\n'
    'kind = "autoencoder"\ndim = 4\nsteps = 3\nwidths = [8, 8]',
}
DECODED = ("pixels", "autoencoder", "regions", "guided", "guided network")  # what a latent student cannot learn from


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    outcome = run(parse(TINY), tmp_path_factory.mktemp("masks") / "run", device="cpu", engine="sequential")
    return report(outcome.folder, name="tiny")


def test_a_recipe_for_masks_is_carried_out_whole(finished: RunFolder) -> None:
    scores = json.loads(finished.scores.read_text(encoding="utf-8"))
    assert {"private student", "released masks", *STAGES} <= set(scores)  # drawn scenes are public: stages may be shown
    with np.load(finished.release / "answers.npz") as answers:
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
    before = charged(finished)
    with pytest.raises(RecipeError, match="must be a new folder"):
        run(parse(TINY), finished.root, device="cpu", engine="sequential")
    again = run(parse(TINY), finished.root, device="cpu", engine="sequential", resume=True)
    assert charged(again.folder) == before


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
    book = charged(done.folder)
    again = run(parse(REGIONS), tmp_path / "run", device="cpu", engine="sequential", resume=True)
    assert charged(again.folder) == book
    mixed = REGIONS.replace('learner = "masks"\nkind = "regions"', 'learner = "masks"').replace(
        "{ flip = true }\nmembers = 2", '"none"'
    )
    assert run(parse(mixed), tmp_path / "mixed", device="cpu", engine="sequential").answers.values.shape == (6, 16, 16)


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_can_be_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TINY.replace(VOTES, CODECS[name] + '\n[aggregation]\nmethod = "mean"')
    if name not in DECODED:
        text = text[: text.index("learner")] + LATENT
    done = run(parse(text), tmp_path / "run", device="cpu", engine="sequential")
    assert done.guarantee["epsilon"] == pytest.approx(50.0)
    assert done.answers.values.shape == (6, 16, 16)
    assert (done.folder.release / "codec.safetensors").exists() == (name in ("autoencoder", "guided network"))
    assert (done.folder.release / "decoder.safetensors").exists() == name.startswith("guided")


SELECTED = """[codec]
kind = "wavelet"
chosen = "coarse"
kept = 64
norm = 9.0
[aggregation]
method = "mean"
[aggregation.selection]
threshold = 0.5
answers = 5
"""


def selected() -> str:
    """Let the sparse vector technique choose wavelets; nothing is said about who learns."""
    head, rest = TINY.split(VOTES)
    queries, student = rest.split("[student]\n")
    table = SELECTED.replace('method = "mean"', f'method = "mean"{queries.rstrip()}')
    return f"{head}{table}[student]\n" + student.replace('learner = "masks"\n', "")


def test_teachers_may_choose_what_of_a_code_is_let_out(tmp_path: Path) -> None:
    from tutelage.codecs.wavelet import Wavelet

    recipe = parse(selected())
    assert recipe.student.learner == "masks"  # what was not selected was not measured: nothing for a latent student
    done = run(recipe, tmp_path / "run", device="cpu", engine="sequential")
    assert [(row["kind"], row["count"]) for row in done.guarantee["events"]] == [("SparseVector", 6), ("Gaussian", 6)]
    assert done.guarantee["epsilon"] <= 50.0 * (1 + 1e-9)
    assert verify(done.folder.root).claimed_epsilon == pytest.approx(done.guarantee["epsilon"])
    assert (done.answers.codes, done.answers.sigma) == (None, 0.0)
    left = np.abs(Wavelet((16, 16), np.arange(256), 9.0).forward(np.asarray(done.answers.values).reshape(6, -1))) > 1e-6
    assert left.any()
    assert (left.sum(axis=1) <= 5).all()
    assert not left[:, 64:].any()
    latent = selected().replace("[student]\n", '[student]\nlearner = "latent"\n').replace("[student.masks]", "[student.latent]")
    with pytest.raises(RecipeError, match=r"`student.learner` must be 'masks' where a selection leaves out parts of codes"):
        parse(latent)


def test_components_that_were_left_open_are_those_of_the_plan_s_own_noise(tmp_path: Path) -> None:
    from tutelage.data.dataset import Public
    from tutelage.recipes import coders

    def built(table: str, epsilon: float) -> tuple[Any, float]:
        text = TINY.replace(VOTES, table + '\n[aggregation]\nmethod = "mean"').replace("50.0", str(epsilon))
        made = coders.codec(parse(text), Public.of(np.zeros((1, 1))), device="cpu", kept=tmp_path / "release")
        return made, coders.noise(parse(text), made.bound)

    few, noise = built(CODECS["pca of any number"], 50.0)
    many, _ = built(CODECS["pca of any number"], 2000.0)
    variances, kept = few.spectrum.variances, few.components
    assert few.noise == noise  # and it shrinks by it
    assert variances[kept - 1] > noise**2
    assert many.components > kept
    given, noise = built(CODECS["pca of any number"] + "\nnorm = 4.0", 200.0)
    assert given.components == int((given.spectrum.variances > noise**2).sum())
    blocks, noise = built(CODECS["blocks of any number"], 2000.0)
    assert blocks.variances.shape == (4, int((blocks.spectrum.variances > noise**2).sum()))
    assert 1 < blocks.variances.shape[1] < len(blocks.spectrum.variances)
    left_out, _ = built(CODECS["blocks of any number"] + "\nfolds = 3", 2000.0)
    assert "folds=3" in repr(left_out)
    assert not np.allclose(left_out.spectrum.variances, blocks.spectrum.variances)
    flips, noise = built(CODECS["flips of any number"], 200.0)
    assert flips.filter.components == int((flips.filter.spectrum.variances > noise**2).sum())


@pytest.mark.parametrize("name", ["autoencoder", "guided", "guided network"])
def test_a_learned_codec_is_the_same_after_a_pause(name: str, tmp_path: Path) -> None:
    text = TINY.replace(VOTES, CODECS[name] + '\n[aggregation]\nmethod = "mean"')
    first = run(parse(text), tmp_path / "run", device="cpu", engine="sequential")
    before = charged(first.folder)
    again = run(parse(text), tmp_path / "run", device="cpu", engine="sequential", resume=True)
    assert charged(again.folder) == before


@pytest.mark.parametrize("learner", ["latent", "masks"])
def test_a_threshold_can_be_chosen_on_public_masks(learner: str, tmp_path: Path) -> None:
    from tutelage.metrics import best_threshold
    from tutelage.recipes.run import loaded

    text = TINY.replace(VOTES, CODECS["dct"] + '\n[aggregation]\nmethod = "mean"')
    text = text[: text.index("learner")] + LATENT if learner == "latent" else text
    text = text.replace(f"[student.{learner}]", f'[student.{learner}]\nthreshold = "public"')
    done = run(parse(text), tmp_path / "run", device="cpu", engine="sequential")
    public = loaded(parse(text), None)[1]
    assert done.model.threshold == best_threshold(done.model.probabilities(public.inputs), public) != 0.5
    assert done.model.beginning.threshold == best_threshold(done.model.beginning.probabilities(public.inputs), public)


def test_the_papers_networks_and_windows_can_be_named(tmp_path: Path) -> None:
    pytest.importorskip("monai")
    text = TINY.replace(VOTES, CODECS["dct"] + '\n[aggregation]\nmethod = "mean"').replace("steps = 4", "steps = 2")
    text = text[: text.index("learner")] + LATENT
    text = text.replace("shards = 3\nwidths = [8]", 'shards = 3\nnetwork = "sisi-2d"\nwindow = [8, 8]')
    text = text.replace("widths = [8]", 'network = "sisi-2d"')
    done = run(parse(text), tmp_path / "run", device="cpu", engine="sequential")
    assert repr(done.model) == 'MaskModel({"name": "sisi-2d", "network": "Preset"})'
    assert done.answers.values.shape == (6, 16, 16)


def charged(folder: RunFolder) -> list[Any]:
    """Give all that a run was charged for."""
    return charges(read_lines(folder.exported_book))


def scans() -> str:
    """Write the tiny recipe for volumes of a folder, whose roster lies among them."""
    text = TINY.replace('"scenes"\nsize = 16', '"hippocampus"\nroster = "roster.txt"\nsize = [8, 8, 8]', 1).replace(
        "private = 24", "private = 4"
    )
    text = text.replace("public = 10", "public = 2").replace("test = 6", "test = 2").replace("queries = 6", "queries = 2")
    text = text.replace("delta = 1e-5", 'delta = 1e-5\nunit = "patient"').replace("flips = [-1], nearest", "nearest")
    text = text.replace('augmentation = "scenes"', 'augmentation = "none"')
    return text.replace(VOTES, CODECS["dct"] + '\n[aggregation]\nmethod = "mean"')


def test_public_scans_are_laid_over_each_other_before_anybody_is_asked(
    decathlon: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tutelage.features.alignment import Alignment

    recipe, folder = parse(scans() + "[alignment]\nsteps = 3\nwindow = 3\n"), decathlon(8)
    how: dict[str, Any] = {"data": folder, "public_data": True, "device": "cpu", "engine": "sequential"}
    done = run(recipe, tmp_path / "run", **how)
    plain = run(parse(scans()), tmp_path / "plain", **how)
    assert done.guarantee["recipe_sha256"] != plain.guarantee["recipe_sha256"]
    hashes = dict(done.guarantee["data"]["hashes"])
    assert len(hashes.pop("moved")) == 64
    assert hashes == plain.guarantee["data"]["hashes"]  # of the pool as it was read
    (kept,) = done.folder.release.glob("alignment-*.npz")
    assert done.guarantee["data"]["alignment"] == kept.name
    assert "alignment" not in plain.guarantee["data"]
    assert verify(done.folder.root).claimed_epsilon == pytest.approx(50.0)
    assert kept.name in report(done.folder).report.read_text(encoding="utf-8")
    shown = [np.load(one.folder.samples)["inputs"] for one in (done, plain)]
    assert not np.array_equal(*shown)  # students and readers see the moved images
    with np.load(kept) as arrays:
        found = Alignment(**{name: arrays[name] for name in ("matrices", "shifts", "knots")})
    assert np.allclose(found.images(shown[1]), shown[0], atol=1e-6)
    before = charged(done.folder)
    monkeypatch.setattr(Alignment, "fit", lambda *_, **__: pytest.fail("aligned again: the questions would be others"))
    run(recipe, tmp_path / "run", resume=True, **how)
    assert charged(done.folder) == before
    intact, elsewhere = kept.read_bytes(), {**found.arrays(), "moved": np.zeros(32, np.uint8)}
    copy = shutil.copytree(done.folder.release, tmp_path / "copy")
    np.savez_compressed(copy / kept.name, **elsewhere)
    manifest.write(copy)
    with pytest.raises(LedgerError, match=r"must move the public pool to where `data.hashes.moved` says"):
        verify(copy)
    elsewhere = {**found.arrays(), "shifts": found.shifts + 0.5, "moved": np.frombuffer(bytes.fromhex(public_of(done)), np.uint8)}
    for arrays in (elsewhere, {**elsewhere, "shifts": found.shifts[:1]}, {**elsewhere, "knots": found.knots * np.nan}):
        np.savez_compressed(done.folder.release / kept.name, **arrays)
        with pytest.raises(DataError, match=r"`alignment-.*npz` must be what this run learned"):
            run(recipe, tmp_path / "run", resume=True, **how)
    assert charged(done.folder) == before  # nothing was asked about images elsewhere
    (done.folder.release / kept.name).write_bytes(intact)
    run(recipe, tmp_path / "run", resume=True, **how)
    assert verify(done.folder.root).claimed_epsilon == pytest.approx(50.0)
    kept.write_bytes(b"torn")
    with pytest.raises(DataError, match=r"`alignment-.*npz` must be what this run learned"):
        run(recipe, tmp_path / "run", resume=True, **how)
    (done.folder.release / kept.name).unlink()
    with pytest.raises(RecipeError, match="`out` must hold answers about this pool"):
        run(recipe, tmp_path / "run", resume=True, **how)


def public_of(done: Any) -> str:
    return str(done.guarantee["data"]["hashes"]["moved"])


def test_what_a_start_that_never_asked_had_aligned_does_not_stay(decathlon: Callable[[int], Path], tmp_path: Path) -> None:
    """Its pool may have been the wrong one, and private."""
    folder = RunFolder(tmp_path / "run").create()
    (folder.release / "alignment-0123456789ab.npz").write_bytes(b"of another pool")
    run(parse(scans()), tmp_path / "run", data=decathlon(8), public_data=True, device="cpu", engine="sequential")
    assert not list(folder.release.glob("*alignment*"))


def test_volumes_are_divided_by_patients(decathlon: Callable[[int], Path], tmp_path: Path) -> None:
    text = scans()
    folder = decathlon(8)
    with pytest.raises(RecipeError, match="`data` must be the folder with the files of 'hippocampus': --data DIR"):
        run(parse(text), tmp_path / "none", device="cpu")
    with pytest.raises(RecipeError, match="`data` must say who is public"):
        run(parse(text), tmp_path / "none", data=folder, device="cpu")
    done = run(parse(text), tmp_path / "run", data=folder, public_data=True, device="cpu", engine="sequential")
    assert (done.guarantee["unit"], done.guarantee["units"]) == ("patient", 4)
    assert any("4 patients of 'task' were declared public" in said for said in done.guarantee["warnings"])
    scores = json.loads(done.folder.scores.read_text(encoding="utf-8"))
    assert not set(STAGES) & set(scores)  # a folder may hold anything: what was computed without noise stays inside
    page = report(done.folder)
    assert "private: without noise" not in page.report.read_text(encoding="utf-8")
    assert "private: without noise" in page.inside_report.read_text(encoding="utf-8")
    assert "cut through the middle" in page.report.read_text(encoding="utf-8")
    moved = folder.rename(tmp_path / "renamed")
    again = run(parse(text), tmp_path / "run", data=moved, public_data=True, device="cpu", engine="sequential", resume=True)
    for name in ("task", "renamed"):
        assert sum(f"4 patients of '{name}' were declared public" in said for said in again.guarantee["warnings"]) == 1
    assert verify(again.folder).against_private_book


def recipe_of(text: str, folder: Path) -> str:
    return text.replace("size = [8", f'test_directory = "{folder / "test"}"\nsize = [8')


def told(done: Any) -> list[str]:
    return list(done.guarantee["warnings"])


def test_a_pool_needs_no_masks_where_the_test_has_a_folder(decathlon: Callable[[int], Path], tmp_path: Path) -> None:
    """What anybody has of their own: private scans with masks, public ones without, and a few to test on."""
    whole, places = decathlon(10), {"clinic": range(4), "pool": range(4, 7), "test": range(7, 10)}
    for folder, numbers in places.items():
        for part in ("imagesTr", "labelsTr"):
            (tmp_path / folder / part).mkdir(parents=True)
            for number in numbers:
                shutil.copy(whole / part / f"h_{number:03d}.nii.gz", tmp_path / folder / part)
    shutil.rmtree(tmp_path / "pool" / "labelsTr")
    (tmp_path / "clinic" / "roster.txt").write_text("h_000\nh_001\nh_002\nh_003\n", encoding="utf-8")
    text = scans().replace('"hippocampus"', f'"nifti"\npublic_directory = "{tmp_path / "pool"}"', 1)
    text = text.replace("private = 4\n", "").replace("public = 2\n", "").replace("test = 2\n", "")
    how: dict[str, Any] = {"data": tmp_path / "clinic", "device": "cpu", "engine": "sequential"}
    with pytest.raises(RecipeError, match=r"`data\.test` must be given"):
        parse(text)  # a test without masks would score nothing
    recipe = parse(recipe_of(text, tmp_path))
    done = run(recipe, tmp_path / "run", **how)
    assert done.guarantee["units"] == 4
    assert "Every scan of 'clinic' counts as a patient of its own: no patients.csv there says whose is whose." in told(done)
    assert {"private student", "control: mean shape, as the student's label"} <= set(done.scores)
    assert "released masks" not in done.scores  # nobody knows what they should have been
    assert "public masks" not in report(done.folder).report.read_text(encoding="utf-8")
    assert verify(done.folder).against_private_book
    (tmp_path / "clinic" / "patients.csv").write_text("h_000,a\nh_001,a\nh_002,b\nh_003,c\n", encoding="utf-8")
    (tmp_path / "clinic" / "roster.txt").write_text("a\nb\nc\n", encoding="utf-8")
    paired = run(parse(recipe_of(text, tmp_path).replace("shards = 3", "shards = 2")), tmp_path / "paired", **how)
    assert paired.guarantee["units"] == 3
    assert not any("patient of its own" in said for said in told(paired))
    fitted = recipe.model_copy(update={"codec": {**(recipe.codec or {}), "norm": None}})
    with pytest.raises(DataError, match="`public` must hold masks"):
        run(fitted, tmp_path / "fitted", **how)
    shutil.rmtree(tmp_path / "clinic" / "labelsTr")
    with pytest.raises(DataError, match="`directory` must hold imagesTr and labelsTr"):
        run(recipe, tmp_path / "bare", **how)


@pytest.mark.parametrize("left", ["not listed", "no files"])
@pytest.mark.parametrize("roster", [True, False])
def test_nobody_private_is_a_release_all_the_same(
    decathlon: Callable[[int], Path], tmp_path: Path, left: str, roster: bool
) -> None:
    """An error told everybody that the last scan was gone."""
    whole, places = decathlon(8), {"clinic": range(2), "pool": range(2, 5), "test": range(5, 8)}
    for folder, numbers in places.items():
        for part in ("imagesTr", "labelsTr"):
            (tmp_path / folder / part).mkdir(parents=True)
            for number in numbers if folder != "clinic" or left == "not listed" else ():
                shutil.copy(whole / part / f"h_{number:03d}.nii.gz", tmp_path / folder / part)
    (tmp_path / "clinic" / "patients.csv").write_text("name,patient\nh_000,\n", encoding="utf-8")
    (tmp_path / "clinic" / "roster.txt").write_text("a\nb\nc\nd\n", encoding="utf-8")
    text = scans().replace('"hippocampus"', f'"nifti"\npublic_directory = "{tmp_path / "pool"}"', 1)
    text = text.replace("private = 4\n", "").replace("public = 2\n", "").replace("test = 2\n", "")
    text = text if roster else text.replace('roster = "roster.txt"\n', "")
    done = run(parse(recipe_of(text, tmp_path)), tmp_path / "run", data=tmp_path / "clinic", device="cpu", engine="sequential")
    assert verify(done.folder).against_private_book
    notes = json.loads(done.folder.inside_data.read_text(encoding="utf-8"))
    assert "Got 1 lines of another form" in json.dumps(notes)
    assert "lines of another form" not in "".join(
        path.read_text(encoding="utf-8", errors="replace") for path in done.folder.release.rglob("*") if path.is_file()
    )


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
        (tmp_path / "task" / "roster.txt").write_text("\n".join(f"h_{number:03d}" for number in range(count)), encoding="utf-8")
        return tmp_path / "task"

    return write
