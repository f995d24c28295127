"""Private distillation from end to end: what is released, at what price, and what a run that goes on pays."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import tutelage as tt
from tutelage.data.digits import digits
from tutelage.distillation.embedding import Embedding
from tutelage.distillation.lessons import Lesson
from tutelage.distillation.matching import ReleasedMatching
from tutelage.distillation.sets import DistilledSet
from tutelage.privacy.errors import DataError, LedgerError, RecipeError
from tutelage.privacy.queries import Form, Query
from tutelage.privacy.units import Adjacency, Unit
from tutelage.report.page import pages
from tutelage.students.linear_rounds import LinearRounds
from tutelage.tasks.distilled.sets import NOISE, STUDENT, Distillation, EmbeddingSums, distill
from tutelage.tasks.statistics.functions import Pixels

BUDGET = tt.Budget(10.0, 1e-5, Unit(), Adjacency.REPLACE_ONE)
TINY = Distillation(
    ipc=2,
    embedding=Embedding(networks=3, width=4),
    matching=ReleasedMatching(steps=4),
    labeller=LinearRounds(axes=40, rounds=4, drawn=160),
    lesson=Lesson(steps=4, batch=8),
    student_width=4,
)
PIXELS = Pixels((1, 8, 8))


@pytest.fixture(scope="module")
def data():
    private, pool, test = digits()
    return private[:300], tt.Public.of(test.inputs[:100], test.targets[:100]), pool


def made(data, out, **given):
    private, test, _ = data
    return distill(private, classes=10, budget=BUDGET, out=out, how=TINY, test=test, **given)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return made(data, tmp_path_factory.mktemp("distilled") / "run", pages=pages)


def test_release_holds_a_set_a_picture_a_page_and_verifies(run):
    names = {file.name for file in run.folder.release.iterdir()}
    wanted = {
        "distilled.safetensors",
        "distilled.npz",
        "distilled.png",
        "distilled.md",
        "student.safetensors",
        "labeller.npz",
        "report.html",
    }
    assert wanted <= names
    verdict = tt.verify(run.folder.root)
    assert verdict.recomputed_epsilon == pytest.approx(10.0, rel=1e-3)
    assert run.guarantee["task"] == "distilled"
    again = DistilledSet.load(run.folder.release)
    assert np.array_equal(again.images, run.set.images)
    assert again.images.shape == (20, 1, 8, 8)
    assert again.labels.shape == (20, 10)
    assert np.allclose(again.labels.sum(axis=1), 1, atol=1e-5)
    with np.load(run.folder.release / "distilled.npz", allow_pickle=False) as plain:
        assert np.array_equal(plain["images"], run.set.images)
    assert {STUDENT, NOISE} <= set(run.scores)
    page = (run.folder.release / "report.html").read_text()
    assert "<svg" in page


def test_what_random_private_images_are_worth_stays_inside(run):
    inside = json.loads((run.folder.private / "distilled-controls.json").read_text())
    assert all(0 <= value <= 1 for value in inside.values())
    assert len(inside) == 2
    assert (run.folder.private / "random-real.png").stat().st_mode & 0o077 == 0
    for file in run.folder.release.rglob("*"):
        assert "random private" not in file.read_bytes().decode("latin1")


def test_changed_set_is_refused(run, data, tmp_path):
    import shutil

    shutil.copytree(run.folder.release, tmp_path / "copy")
    with (tmp_path / "copy" / "distilled.npz").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(LedgerError):
        tt.verify(tmp_path / "copy")


def test_run_that_goes_on_pays_nothing_and_has_the_same_set(run, data):
    again = made(data, run.folder.root, resume=True)
    assert again.guarantee["epsilon"] == run.guarantee["epsilon"]
    assert np.array_equal(again.set.images, run.set.images)
    assert tt.verify(run.folder.root).recomputed_epsilon == pytest.approx(10.0, rel=1e-3)


def test_beginning_as_private_records_is_a_look(data, tmp_path):
    how = replace(TINY, labels=0.0, sums=1.0, soft=0.0)
    private, _, _ = data
    looked = distill(private, classes=10, budget=BUDGET, out=tmp_path / "run", how=how, init="private")
    assert looked.guarantee["epsilon"] == "infinity"
    assert any("private records" in str(event) for event in looked.guarantee["events"])


def test_public_images_may_be_the_beginning(data, tmp_path):
    how = replace(TINY, labels=0.0, sums=1.0, soft=0.0, matching=ReleasedMatching(steps=1, rate=1e-6))
    begin = np.random.default_rng(0).uniform(0.2, 0.8, (10, 2, 1, 8, 8)).astype(np.float32)
    kept = distill(data[0], classes=10, budget=BUDGET, out=tmp_path / "run", how=how, init=begin)
    assert np.allclose(kept.set.images, begin.reshape(20, 1, 8, 8), atol=1e-3)
    assert kept.guarantee["epsilon"] != "infinity"


def test_bad_plans_fail_before_anything_is_written(data, tmp_path):
    for wrong, error in (
        ({"init": "real"}, RecipeError),
        ({"init": np.zeros((10, 3, 1, 8, 8))}, DataError),
        ({"ipc": 0}, RecipeError),
    ):
        with pytest.raises(error):
            made(data, tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_released_sums_are_the_true_ones_and_noise(data):
    """With all noise in one place the means are what the embedding says of the records."""
    private, _, _ = data
    function = EmbeddingSums(TINY.embedding, PIXELS)
    rows = function(Query.statistic(Form.GROUPED, {}), function.prepare(private.inputs), private.targets).left
    hot = np.eye(10)[private.targets]
    means = function.means(hot.T @ rows)
    images = torch.as_tensor(PIXELS(private.inputs))
    for part, mean in zip(function.parts, means, strict=True):
        direct = torch.stack([part(images[torch.as_tensor(private.targets == c)]).mean(0) for c in range(10)])
        assert torch.allclose(mean, direct, atol=3e-3)  # images are kept as bytes


def alone_or_not(function, inputs) -> float:
    """Measure how much a record's row depends on its company."""
    query = Query.statistic(Form.GROUPED, {})
    together = function(query, function.prepare(inputs), np.zeros(len(inputs), int)).left
    alone = [function(query, function.prepare(inputs[[i]]), np.zeros(1, int)).left[0] for i in range(len(inputs))]
    return float(np.abs(together - np.stack(alone)).max())


class BatchNormed:
    """The broken twin: features shifted by the batch's own mean."""

    def __init__(self, inner):
        self.inner = inner
        self.prepare = inner.prepare

    def __call__(self, query, prepared, labels):
        rows = self.inner(query, prepared, labels).left
        return type("Rows", (), {"left": rows - rows.mean(axis=0)})


def test_no_record_moves_anothers_row_and_none_is_longer_than_1():
    rng = np.random.default_rng(0)
    odd = np.stack(
        [np.zeros((8, 8)), np.ones((8, 8)), np.full((8, 8), 1e9), np.full((8, 8), np.nan), rng.random((8, 8)), np.eye(8)]
    )
    function = EmbeddingSums(Embedding(networks=3, width=4, mirror=True), PIXELS)
    rows = function(Query.statistic(Form.GROUPED, {}), function.prepare(odd), np.zeros(6, int)).left
    assert np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) <= 1 + 1e-5).all()
    assert alone_or_not(function, odd) < 1e-5
    assert alone_or_not(BatchNormed(function), odd) > 1e-2


def test_mirror_images_count_as_the_same():
    image = np.random.default_rng(0).random((1, 8, 8))
    for mirror, same in ((True, True), (False, False)):
        function = EmbeddingSums(Embedding(networks=1, width=4, mirror=mirror, bent=False), PIXELS)
        one, other = (function(None, function.prepare(x), np.zeros(1, int)).left for x in (image, image[..., ::-1]))
        assert np.allclose(one, other, atol=1e-5) is same
