"""The walk with the whole noisy histogram in place of its winner: the same price, and more to learn from."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from tests.statistical.audit import audit
from tests.walk.tiny import CLASSES, QUESTIONS, TEACHERS, Killed, MeanTeachers, clouds, kill_after, tiny_run

import tutelage as tt
from tutelage.planning import Aggregation
from tutelage.privacy import accounting
from tutelage.privacy.bounds import OneHot
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.privacy.sealed import Sealed
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import run
from tutelage.reproduction.pate import read
from tutelage.runs import RunFolder
from tutelage.verification import verify

MEAN = Aggregation("mean")
DIGITS = """
name = "shares"
[data]
set = "digits"
[privacy]
epsilon = 8.0
delta = 1e-5
[teachers]
kind = "linear"
shards = 20
[aggregation]
method = "mean"
queries = 200
[student]
learner = "supervised"
kind = "linear"
"""


def votes() -> np.ndarray:
    """Give what the tiny walk's teachers say about its questions, before noise: shares (questions, classes)."""
    inputs, targets = clouds(120, 0)
    private = tt.Private.of(inputs, targets)
    opened: list[np.ndarray] = []
    teachers = MeanTeachers().fit(private, private.split(TEACHERS, seed=0))
    teachers.vote(clouds(60, 1)[0][:QUESTIONS]).map(lambda said: opened.append(said) or said)
    return (opened[0][..., None] == np.arange(CLASSES)).mean(axis=0)


# ── the price ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reach", [1, 2])
def test_the_histogram_costs_what_its_winner_costs(reach: int) -> None:
    budget = tt.Budget(1.0, 1e-5, tt.Unit("record", reach))
    mechanisms = {name: Aggregation(name).built(budget, 90, 250, OneHot(10))[0] for name in ("mean", "gnmax")}
    assert mechanisms["mean"].sigma == pytest.approx(mechanisms["gnmax"].sigma, rel=1e-12)
    for sigma in (None, 300.0):
        prices = [
            accounting.cost(Aggregation(name, sigma=sigma).planned(budget, 90, 250, OneHot(10)), 1e-5) for name in mechanisms
        ]
        assert prices[0].epsilon == pytest.approx(prices[1].epsilon, rel=1e-12)
        assert prices[0].mu == pytest.approx(prices[1].mu, rel=1e-12)


def test_a_run_quotes_that_price(tmp_path: Path) -> None:
    told = {}
    for name in ("mean", "gnmax"):
        outcome = tiny_run(tmp_path / name, aggregation=Aggregation(name), student=lambda: tt.SupervisedStudent("forest"))
        told[name] = outcome.guarantee
        verify(tmp_path / name)  # raises where the book says otherwise
    assert told["mean"]["epsilon"] == pytest.approx(told["gnmax"]["epsilon"], rel=1e-12) == pytest.approx(8.0)
    assert told["mean"]["labels"] == told["gnmax"]["labels"] == {"released": QUESTIONS, "distinct": QUESTIONS, "reinforced": 0}
    [event] = told["mean"]["events"]
    assert (event["kind"], event["count"]) == ("Gaussian", QUESTIONS)


def differences(bound_sensitivity: float) -> tuple[np.ndarray, np.ndarray]:
    """Ask one question often, of teachers of whom one changes its vote, with noise meant for a sensitivity; μ is 1."""
    mechanism = NoisyMean(OneHot(CLASSES), bound_sensitivity, TEACHERS)
    sides = []
    for last in (0, 1):
        ballots = np.eye(CLASSES)[[0] * (TEACHERS - 1) + [last]]
        released = mechanism.contribute(Sealed(np.repeat(ballots[:, None], 100_000, axis=1)))
        sides.append(TEACHERS * (released[:, 1] - released[:, 0]) / math.sqrt(2))  # along what changed: the best attack
    return sides[0], sides[1]


def test_noise_for_the_diameter_holds_and_noise_for_the_radius_is_caught() -> None:
    claim = accounting.cost([(NoisyMean(OneHot(CLASSES), math.sqrt(2), TEACHERS).event(), 1)], 1e-5)
    assert claim.mu == pytest.approx(1)
    assert not audit(*differences(math.sqrt(2)), claim).refuted
    assert audit(*differences(1.0), claim).refuted  # a vote is a vector of length 1, but a changed vote moves two classes
    planned, _ = MEAN.built(tt.Budget(1.0, 1e-5), 1, TEACHERS, OneHot(CLASSES))
    assert planned.sigma == pytest.approx(math.sqrt(2) / accounting.epsilon_mu(1.0, 1e-5))


# ── what comes through the door ───────────────────────────────────────────────────────────────────────────────────────


def test_shares_of_the_votes_reach_the_student(tmp_path: Path) -> None:
    lessons: list[np.ndarray] = []

    class Student:
        def fit(self, public: tt.Public, labels: np.ndarray) -> tt.SupervisedStudent:
            lessons.append(labels)
            return tt.SupervisedStudent("linear").fit(public, labels)

    budget = tt.Budget(1e6, 1e-5)  # so little noise that the votes can be told
    outcome = tiny_run(tmp_path / "run", aggregation=MEAN, student=Student, budget=budget)
    assert lessons[0].shape == (60, CLASSES)
    assert np.allclose(lessons[0][:QUESTIONS], votes(), atol=0.1)
    assert np.isnan(lessons[0][QUESTIONS:]).all()
    assert np.array_equal(outcome.labels[:QUESTIONS], votes().argmax(axis=1))
    assert (outcome.labels[QUESTIONS:] == -1).all()
    assert outcome.scores["private student"] > 0.9
    assert outcome.guarantee["sanitised_epsilon"] is None
    assert not list((tmp_path / "run" / "private").glob("counts-*"))  # the price does not depend on votes: none are kept
    scores = json.loads((tmp_path / "run" / "release" / "scores.json").read_text())
    assert scores["control: same questions, true labels"] > 0.9


def test_the_noise_on_a_share_is_as_planned_and_has_mean_zero(tmp_path: Path) -> None:
    off = []
    for number in range(20):
        outcome = tiny_run(tmp_path / str(number), aggregation=MEAN, student=lambda: tt.SupervisedStudent("linear"), test=None)
        off.append(outcome.answers.shares[:QUESTIONS] - votes())
    planned, _ = MEAN.built(tt.Budget(8.0, 1e-5), QUESTIONS, TEACHERS, OneHot(CLASSES))
    sd = planned.sigma / TEACHERS
    assert abs(np.mean(off)) < 5 * sd / math.sqrt(np.size(off))
    assert np.std(off) == pytest.approx(sd, rel=0.1)


def test_what_was_answered_is_given_again_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = {"aggregation": MEAN, "student": lambda: tt.SupervisedStudent("linear")}
    with monkeypatch.context() as patched:
        kill_after(patched, 3)
        with pytest.raises(Killed):
            tiny_run(tmp_path / "run", **choices)
    once = tiny_run(tmp_path / "run", **choices, resume=True)
    again = tiny_run(tmp_path / "run", **choices, resume=True)
    answered = ~np.isnan(once.answers.shares[:, 0])
    assert 0 < answered.sum() < QUESTIONS  # one block was paid for and never heard
    assert np.array_equal(once.answers.shares, again.answers.shares, equal_nan=True)
    assert once.guarantee["epsilon"] <= 8.0 + 1e-9


# ── recipes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_recipe_of_shares_runs_and_is_read_by_the_table(tmp_path: Path) -> None:
    recipe = parse(DIGITS)
    outcome = run(recipe, tmp_path / "run")
    assert outcome.answers.shares.shape[1] == 10
    assert outcome.scores["private student"] > 0.5  # the largest class has a tenth
    figures = read(RunFolder(tmp_path / "run"), recipe)
    assert (figures.asked, figures.answered, figures.raw, figures.sanitised) == (200, 200, None, None)
    assert figures.epsilon == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('learner = "supervised"\nkind = "linear"', 'learner = "spreading"', "`student.learner` must be 'supervised', 'consis"),
        (
            'learner = "supervised"\nkind = "linear"',
            'learner = "adversarial"',
            "or 'linear' for 'mean'. Got 'adversarial'",
        ),
        (
            'learner = "supervised"\nkind = "linear"',
            'kind = "kernel"',
            "`student.kind` must be one of 'linear', 'forest', 'boosted'",
        ),
        ("queries = 200", "queries = 200\ngamma = 0.1", "`aggregation.gamma` must stay open for 'mean'"),
        ("queries = 200", "queries = 200\nanswers = 10", "`aggregation.answers` must stay open for 'mean'"),
        (
            "queries = 200",
            "queries = 200\n[aggregation.sanitise]\norder = 3.0\nbeta = 0.02\nsigma = 20.0",
            "`aggregation.sanitise` must stay open for 'mean'",
        ),
    ],
)
def test_recipes_that_cannot_use_shares_are_refused(old: str, new: str, message: str) -> None:
    assert old in DIGITS
    with pytest.raises(RecipeError, match=message.replace("(", r"\(")):
        parse(DIGITS.replace(old, new))


def test_learners_of_shares_are_taken() -> None:
    for student in ('learner = "consistency"', 'kind = "forest"', 'kind = "boosted"', ""):
        assert parse(DIGITS.replace('learner = "supervised"\nkind = "linear"', student)).how().vectors
