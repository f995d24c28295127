"""The walk of released sums: what one record moves, what is charged, what verifies; and broken twins that must be caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tutelage.cli import app
from tutelage.data.dataset import Private, Public
from tutelage.features.procedural import procedural
from tutelage.features.random_networks import RandomNetworks
from tutelage.privacy.budget import Budget
from tutelage.privacy.errors import Error, RecipeError
from tutelage.privacy.mechanisms import _KEY
from tutelage.privacy.queries import Form, Query
from tutelage.privacy.sums import GridSum
from tutelage.report.page import pages
from tutelage.students.linear_rounds import LinearRounds, LinearRoundsModel
from tutelage.students.matching import Matching
from tutelage.tasks.statistics.classifier import classify
from tutelage.tasks.statistics.functions import ClassMoments, Missing, NetworkSums, Pixels
from tutelage.tasks.statistics.images import OneShot, generate
from tutelage.tasks.statistics.walk import Sum, opened, planned
from tutelage.teachers.statistics import Rows, Statistics
from tutelage.verification import verify

PIXELS = Pixels((1, 8, 8))
BUDGET = Budget(4, 1e-5)


@pytest.fixture(scope="module")
def private() -> Private:
    """Draw two classes: bright and dark pictures."""
    images = procedural(120, (1, 8, 8), random_state=3)[:, 0]
    labels = np.arange(120) % 2
    return Private.of(np.where(labels[:, None, None] == 1, 1 - 0.3 * images, 0.3 * images), labels)


def _rows(function: Any, private: Private, query: Query, *, grouped: bool) -> list[Any]:
    teachers = Statistics(function, grouped=grouped, block=50).fit(private, private.split(len(private)))
    return list(teachers.contributions(query))


def _added(function: Any, what: Sum, private: Private, query: Query) -> np.ndarray:
    """Add up what the mechanism would add up, without noise. Only a test may."""
    mechanism = what.mechanism(BUDGET, len(private))
    total = GridSum(mechanism._shape)
    for block in _rows(function, private, query, grouped=what.groups > 1):
        opened = [None if part is None else part._open(_KEY) for part in (block.places, block.left, block.groups, block.right)]
        total.add(*opened)
    return total.total * mechanism._shape.unit


def _neighbours(private: Private) -> list[Private]:
    """Replace one record by an extreme one, by one of another class, by an empty one."""
    found = []
    for image, label in (
        (np.full((8, 8), 1e9), 1),
        (np.zeros((8, 8)), 1),
        (1 - private.inputs[4], 0),
        (np.full((8, 8), np.nan), 0),
    ):
        inputs, targets = private.inputs.copy(), private.targets.copy()
        inputs[4], targets[4] = image, label
        found.append(Private.of(inputs, targets))
    return found


def _worst(function: Any, what: Sum, private: Private, query: Query) -> float:
    """Measure how far one record moves the sum, as a part of what the mechanism pays for."""
    sensitivity = what.mechanism(BUDGET, len(private)).sensitivity
    first = _added(function, what, private, query)
    return (
        max(float(np.linalg.norm(_added(function, what, other, query) - first)) for other in _neighbours(private)) / sensitivity
    )


def _others_move(function: Any, private: Private, query: Query, *, grouped: bool) -> bool:
    """Tell whether a replaced record changes the row of any other one, by a single bit."""
    first = np.concatenate([block.left._open(_KEY) for block in _rows(function, private, query, grouped=grouped)])
    for other in _neighbours(private):
        again = np.concatenate([block.left._open(_KEY) for block in _rows(function, other, query, grouped=grouped)])
        if (first != again).any(axis=1).sum() > 1:  # its own row may
            return True
    return False


def _sums() -> tuple[NetworkSums, Sum, Query]:
    function = NetworkSums(RandomNetworks(3, 4), PIXELS)
    return (
        function,
        Sum(1.0, Form.GROUPED, function.width, groups=2, nonnegative=True),
        Query.statistic(Form.GROUPED, {"asks": "x"}),
    )


def _rounds() -> tuple[Missing, Sum, Query]:
    student = LinearRounds(axes=12, rounds=4, drawn=200).student(units=120, mu=1.0, shape=(1, 8, 8), classes=("a", "b"))
    what = Sum(1.0, Form.OUTER, 12, norm=student.clip, right=2, rounds=4)
    weights = np.random.default_rng(0).standard_normal((12, 2)) * 3
    return Missing(student.seen, PIXELS), what, Query.state(Form.OUTER, {"asks": "x"}, weights=weights)


def _moments() -> tuple[ClassMoments, Sum, Query]:
    network = RandomNetworks(1, 4).built((1, 8, 8))[0]
    function = ClassMoments(network, RandomNetworks(1, 4).features_of_one((1, 8, 8)), PIXELS, "a random network")
    return function, Sum(1.0, Form.GRAM, function.width, norm=function.norm, groups=2), Query.statistic(Form.GRAM, {"asks": "x"})


@pytest.mark.parametrize("made", [_sums, _rounds, _moments])
def test_one_record_moves_a_sum_by_no_more_than_is_paid_for(made: Callable[[], Any], private: Private) -> None:
    function, what, query = made()
    assert 0 < _worst(function, what, private, query) <= 1 + 1e-6
    assert not _others_move(function, private, query, grouped=what.groups > 1)


def test_the_features_of_neighbours_use_much_of_the_sensitivity(private: Private) -> None:
    """A bound that is never nearly reached would hide a wrong test."""
    function, what, query = _rounds()
    assert _worst(function, what, private, query) > 0.5


class _Loud:
    """Give rows that are far longer than the norm."""

    key = "a twin that bounds nothing"

    def prepare(self, inputs: np.ndarray) -> np.ndarray:
        return inputs.reshape(len(inputs), -1) * 50

    def __call__(self, query: Query, prepared: np.ndarray, labels: np.ndarray) -> Rows:
        return Rows(prepared)


def test_a_sum_without_a_clip_per_record_is_caught(private: Private) -> None:
    query = Query.statistic(Form.GROUPED, {"asks": "x"})
    clipped = Sum(1.0, Form.GROUPED, 64, norm=1.0, groups=2)
    assert _worst(_Loud(), clipped, private, query) <= 1 + 1e-6
    price = clipped.mechanism(BUDGET, len(private)).sensitivity
    unclipped = replace(clipped, norm=1e6)  # the twin: prices a norm of 1, and clips at another
    first = _added(_Loud(), unclipped, private, query)
    assert np.linalg.norm(_added(_Loud(), unclipped, _neighbours(private)[0], query) - first) > 10 * price


class _Counted(_Loud):
    """Divide by how many records of its class there are: a private count."""

    def __call__(self, query: Query, prepared: np.ndarray, labels: np.ndarray) -> Rows:
        return Rows(prepared / np.bincount(labels.astype(int), minlength=2)[labels.astype(int)][:, None])


class _Standardised:
    """Standardise features over the batch, as batch norm does."""

    key = "a twin with batch norm"

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layer = torch.nn.BatchNorm2d(1, track_running_stats=False).train()

    def prepare(self, inputs: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            found = self.layer(torch.as_tensor(PIXELS(inputs))).flatten(1)
        return np.asarray((found / found.norm(dim=1, keepdim=True)).numpy())

    def __call__(self, query: Query, prepared: np.ndarray, labels: np.ndarray) -> Rows:
        return Rows(prepared)


@pytest.mark.parametrize("twin", [_Counted, _Standardised])
def test_a_function_of_other_records_is_caught(twin: Callable[[], Any], private: Private) -> None:
    assert _others_move(twin(), private, Query.statistic(Form.GROUPED, {"asks": "x"}), grouped=True)


def test_class_means_use_noisy_counts_alone() -> None:
    function, _, _ = _sums()
    sums = np.zeros((2, function.width))
    sums[0, :-1], sums[0, -1], sums[1, -1] = 8.0, 10 * function.counted, -3.0
    means, counts = function.means(sums)
    assert counts.tolist() == [10.0, 1.0]  # an empty class goes on
    assert np.isfinite(np.concatenate(means, axis=1)).all()


def test_shares_must_be_the_whole_budget() -> None:
    assert planned(BUDGET, {"a": 0.36, "b": 0.64})["a"] == pytest.approx(0.6 * BUDGET.mu)
    with pytest.raises(RecipeError, match="shares"):
        planned(BUDGET, {"a": 0.5, "b": 0.4})


HOW = OneShot(
    networks=RandomNetworks(3, 4), matching=Matching(steps=6, per=6, drawn=2), improving=Matching(steps=3, per=6, drawn=1),
    width=4, middle=6, sums=0.4, moments=0.2, labels=0.4,
    labeller=LinearRounds(axes=16, rounds=5, drawn=200), judged=5,
)  # fmt: skip


def test_generate_verifies_goes_on_and_gives_the_same_images(private: Private, tmp_path: Path) -> None:
    given: dict[str, Any] = {"classes": ["dark", "bright", "empty"], "budget": BUDGET, "out": tmp_path / "run", "how": HOW}
    made = generate(private, test=Public.of(private.inputs[:30], private.targets[:30]), pages=pages, **given)
    assert "Generated images" in made.folder.report.read_text(encoding="utf-8")
    verdict = verify(tmp_path / "run")
    assert verdict.recomputed_epsilon == pytest.approx(4, rel=1e-6)
    assert made.guarantee["task"] == "images"
    images, labels = made.sample(7, random_state=2)
    assert images.shape == (7, 1, 8, 8)
    assert labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert (made.sample(4, "empty")[1] == 2).all()
    spent = len(made.guarantee["events"])
    again = generate(private, resume=True, **given)
    assert len(again.guarantee["events"]) == spent
    assert again.guarantee["data_independent_epsilon"] == made.guarantee["data_independent_epsilon"]
    assert (again.sample(7, random_state=2)[0] == images).all()
    assert again.labeller is not None
    app(
        ["generate", str(tmp_path / "run"), "-n", "9", "--label", "bright", "--out", str(tmp_path / "drawn")],
        standalone_mode=False,
    )
    assert len(list((tmp_path / "drawn" / "images").glob("*.png"))) == 9
    assert (tmp_path / "drawn" / "labels.csv").read_text().splitlines()[1] == "images/0.png,1,bright"
    with np.load(tmp_path / "drawn" / "images.npz") as archive:
        assert (archive["images"] == np.rint(255 * made.sample(9, "bright")[0])).all()
    with pytest.raises(RecipeError, match="empty folder"):
        app(["generate", str(tmp_path / "run"), "--out", str(tmp_path / "drawn")], standalone_mode=False)
    read = LinearRoundsModel.load(tmp_path / "run" / "release" / "student.npz")
    assert np.allclose(read.predict_proba(images), again.soft_labels(images), atol=1e-5)


def test_noise_of_all_releases_together_fits_the_budget_and_no_more(private: Private, tmp_path: Path) -> None:
    with opened(private.labelled(2), task="images", out=tmp_path / "run", budget=BUDGET, plan={}) as walk:
        function, what, query = _sums()
        walk.once(function, replace(what, share=0.9), query)
        with pytest.raises(Error):
            walk.once(function, replace(what, share=0.2), Query.statistic(Form.GROUPED, {"asks": "more"}))


def test_rounds_find_what_records_have_in_common(private: Private, tmp_path: Path) -> None:
    student = LinearRounds(axes=16, drawn=200).student(units=120, mu=Budget(100, 1e-5).mu, shape=(1, 8, 8), classes=("a", "b"))
    what = Sum(1.0, Form.OUTER, 16, norm=student.clip, right=2, rounds=student.rounds)
    with opened(private, task="images", out=tmp_path / "run", budget=Budget(100, 1e-5), plan={}) as walk:
        walk.rounds(Missing(student.seen, PIXELS), what, student)
    assert (student.result().predict(PIXELS(private.inputs)) == private.targets).mean() > 0.75


def test_the_rule_gives_more_axes_for_more_units_and_more_budget() -> None:
    how, shape = LinearRounds(), (1, 28, 28)
    small, large = how.ruled(units=60_000, mu=0.13, shape=shape), how.ruled(units=60_000, mu=0.27, shape=shape)
    assert small[0] < large[0]
    assert small[1] < large[1]
    assert LinearRounds(axes=7, half=3).ruled(units=10, mu=1.0, shape=shape) == (7, 3)


def test_classify_needs_no_public_images_and_verifies(private: Private, tmp_path: Path) -> None:
    student = LinearRounds(axes=16, rounds=8, drawn=200)
    test = Public.of(private.inputs[:30], private.targets[:30])
    found = classify(private, classes=2, budget=BUDGET, out=tmp_path / "run", student=student, test=test, pages=pages)
    assert verify(tmp_path / "run").recomputed_epsilon == pytest.approx(4, rel=1e-6)
    assert found.guarantee["labels"]["released"] == 8
    read = LinearRoundsModel.load(tmp_path / "run" / "release" / "student.npz")
    images = PIXELS(private.inputs[:9])
    assert (read.predict(images) == found.predict(images)).all()
    again = classify(private, classes=2, budget=BUDGET, out=tmp_path / "run", student=student, resume=True)
    assert (again.model.weights == found.model.weights).all()  # rounds are not repeated
