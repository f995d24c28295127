"""Simulated teachers are as good and as much alike as they are said to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.privacy.errors import DataError, RecipeError, Unsealed
from tutelage.simulation import PublicVotes, read, right_chance, save, simulate, with_student


@pytest.mark.parametrize(
    ("classes", "accuracy", "agreement", "rival"),
    [(10, 0.9, 0.85, 0.5), (10, 0.6, 0.5, 0.2), (2, 0.7, 0.65, 0.5), (3, 0.5, 0.6, 1.0), (5, 0.3, 0.4, 0.0)],
)
def test_accuracy_and_agreement_are_what_was_asked_for(classes: int, accuracy: float, agreement: float, rival: float) -> None:
    votes = simulate(classes, 50, accuracy, agreement=agreement, rival=rival, queries=20_000)
    assert votes.accuracy == pytest.approx(accuracy, abs=0.01)
    assert votes.agreement == pytest.approx(agreement, abs=0.01)
    assert (votes.teachers, votes.classes, len(votes)) == (50, classes, 20_000)
    assert np.bincount(votes.truth, minlength=classes) == pytest.approx(20_000 / classes, rel=0.1)


def test_teachers_that_are_alike_are_wrong_together() -> None:
    """The twin that ignores agreement would find the plurality right nearly always."""
    alike = simulate(10, 100, 0.6, agreement=0.65, queries=5000)
    apart = simulate(10, 100, 0.6, agreement=0.42, queries=5000)
    assert alike.plurality < 0.7
    assert apart.plurality > 0.95


def test_a_seed_gives_the_same_votes() -> None:
    assert np.array_equal(simulate(10, 100, 0.9, seed=1).counts, simulate(10, 100, 0.9, seed=1).counts)
    assert not np.array_equal(simulate(10, 100, 0.9, seed=1).counts, simulate(10, 100, 0.9, seed=2).counts)


@pytest.mark.parametrize(("classes", "accuracy"), [(10, 0.95), (10, 0.7), (10, 0.2), (2, 0.8)])
def test_a_student_is_right_as_often_as_it_is_said_and_as_it_says(classes: int, accuracy: float) -> None:
    votes = with_student(simulate(classes, 50, 0.8, queries=20_000), accuracy)
    assert votes.student is not None
    right, sure = votes.student.argmax(axis=1) == votes.truth, votes.student.max(axis=1)
    assert right.mean() == pytest.approx(accuracy, abs=0.015)
    assert votes.student.sum(axis=1) == pytest.approx(1)
    for low, high in ((0.2, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.0)):  # calibrated
        some = (sure > low) & (sure <= high)
        if some.sum() > 500:
            assert right[some].mean() == pytest.approx(sure[some].mean(), abs=0.05)


def test_a_student_finds_hard_what_teachers_find_hard() -> None:
    teachers = simulate(10, 100, 0.7, queries=20_000)
    own = teachers.counts[np.arange(20_000), teachers.truth]

    def where_it_errs(alike: float) -> float:
        student = with_student(teachers, 0.8, alike=alike).student
        assert student is not None
        return float(own[student.argmax(axis=1) != teachers.truth].mean())

    apart, usual, same = (where_it_errs(alike) for alike in (0.0, 0.7, 1.0))
    assert apart == pytest.approx(own.mean(), rel=0.03)
    assert same < usual - 2 < apart - 8
    # A wrong guess is that of a wrong teacher: the rival's more often than any other's.
    student = with_student(teachers, 0.8).student
    assert student is not None
    wrong = teachers.counts.copy()
    wrong[np.arange(20_000), teachers.truth] = -1
    guess = student.argmax(axis=1)
    erring = (guess != teachers.truth) & (wrong.max(axis=1) > 0)
    assert 0.3 < np.mean(guess[erring] == wrong.argmax(axis=1)[erring]) < 0.7


def test_a_student_errs_also_where_no_teacher_does() -> None:
    votes = with_student(PublicVotes(np.tile([0, 9, 0], (2000, 1)), np.ones(2000, dtype=int)), 0.6)
    assert votes.student is not None
    guesses = np.bincount(votes.student.argmax(axis=1), minlength=3) / 2000
    assert guesses == pytest.approx([0.2, 0.6, 0.2], abs=0.05)


@pytest.mark.parametrize("sigma", [0.5, 5.0, 40.0])
def test_the_chance_to_be_right_is_that_of_the_noise(sigma: float) -> None:
    votes = simulate(10, 100, 0.5, queries=300)
    noise = np.random.default_rng(0)
    drawn = np.mean(
        [(votes.counts + noise.normal(0, sigma, votes.counts.shape)).argmax(axis=1) == votes.truth for _ in range(2000)], axis=0
    )
    chance = right_chance(votes, sigma)
    assert np.abs(chance - drawn).max() < 0.06  # five deviations of a mean of 2,000
    assert chance.mean() == pytest.approx(drawn.mean(), abs=0.004)


def test_two_classes_have_a_formula() -> None:
    from scipy.special import ndtr

    votes = PublicVotes(np.asarray([[70, 30], [45, 55]]), np.asarray([0, 0]))
    assert right_chance(votes, 20.0) == pytest.approx(ndtr(np.asarray([40, -10]) / (np.sqrt(2) * 20)), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"classes": 1}, "`classes` must be a whole number ≥ 2. Got 1"),
        ({"teachers": 0}, "`teachers` must be a whole number ≥ 1. Got 0"),
        ({"queries": 2.5}, "`queries` must be a whole number ≥ 1. Got 2.5"),
        ({"accuracy": 1.0}, r"`accuracy` must be in \(0, 1\). Got 1.0"),
        ({"rival": 1.5}, r"`rival` must be in \[0, 1\]. Got 1.5"),
        ({"agreement": 0.99}, "`agreement` must be between 0.812.* and 0.920.* at this accuracy. Got 0.99"),
        ({"agreement": 0.3}, "`agreement` must be between"),
    ],
)
def test_teachers_that_cannot_be_are_refused(change: dict[str, Any], rule: str) -> None:
    settings: dict[str, Any] = {"classes": 10, "teachers": 100, "accuracy": 0.9, **change}
    with pytest.raises(RecipeError, match=rule):
        simulate(**settings)


@pytest.mark.parametrize(
    ("accuracy", "alike", "rule"),
    [
        (0.1, 0.7, "`student_accuracy` must be above 1/10, as of chance, and below 1. Got 0.1"),
        (1.0, 0.7, "`student_accuracy` must be above 1/10, as of chance, and below 1. Got 1.0"),
        (0.9, 1.1, r"`alike` must be in \[0, 1\]. Got 1.1"),
    ],
)
def test_students_that_cannot_be_are_refused(accuracy: float, alike: float, rule: str) -> None:
    with pytest.raises(RecipeError, match=rule):
        with_student(simulate(10, 20, 0.8, queries=20), accuracy, alike=alike)


@pytest.mark.parametrize(
    "student", [[0, 1], [[0.5, 0.4], [1, 0]], [[2, -1], [1, 0]], [[np.nan, 1], [1, 0]], [["a", "b"], ["c", "d"]]]
)
def test_expectations_that_are_no_shares_are_refused(student: Any) -> None:
    with pytest.raises(DataError, match=r"`student` must hold shares in \[0, 1\] of shape \(2, 2\), 1 in every row"):
        PublicVotes(np.asarray([[1, 2], [2, 1]]), np.asarray([0, 1]), student=student)


@pytest.mark.parametrize(
    ("counts", "truth", "rule"),
    [
        (np.ones(3), [0], "`counts` must be votes"),
        ([[1, -1]], [0], "`counts` must be votes"),
        ([[np.nan, 1]], [0], "`counts` must be votes"),
        ([[1, 2], [2, 2]], [0, 0], "`counts` must have the same number of teachers"),
        ([[0, 0]], [0], "`counts` must have the same number of teachers"),
        ([[1, 2]], [2], "`truth` must be one class below 2"),
        ([[1, 2]], [0, 1], "`truth` must be one class below 2"),
        ([[1, 2]], [0.5], "`truth` must be one class below 2"),
    ],
)
def test_counts_that_are_none_are_refused(counts: Any, truth: Any, rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        PublicVotes(counts, truth)


def test_votes_are_read_again_as_they_were_written(tmp_path: Path) -> None:
    votes = simulate(10, 100, 0.7, queries=50)
    again = read(save(votes, tmp_path / "votes"))
    assert np.array_equal(again.counts, votes.counts)
    assert np.array_equal(again.truth, votes.truth)
    assert again.source == "votes.npz"
    assert again.student is None
    taught = with_student(votes, 0.8)
    once_more = read(save(taught, tmp_path / "taught"))
    assert once_more.student is not None
    assert np.array_equal(once_more.student, taught.student)  # type: ignore[arg-type]
    few = once_more.first(10)
    assert few.student is not None
    assert (len(few), few.student.shape, few.source) == (10, (10, 10), "taught.npz")


def test_counts_alone_take_the_plurality_for_right_and_say_so(tmp_path: Path) -> None:
    np.save(tmp_path / "counts.npy", np.asarray([[7, 3], [1, 9]]))
    votes = read(tmp_path / "counts.npy")
    assert votes.truth.tolist() == [0, 1]
    assert votes.source == "counts.npy, its plurality taken to be right"


def test_files_that_hold_no_votes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("no array", encoding="utf-8")
    np.savez(tmp_path / "other.npz", something=np.ones(3))
    np.save(tmp_path / "objects.npy", np.asarray([{}], dtype=object))
    for name in ("text.npy", "other.npz", "objects.npy"):
        with pytest.raises(RecipeError, match=f"`votes` must be .*{name}"):
            read(tmp_path / name)
    with pytest.raises(RecipeError, match=r"`votes` must be a readable .*No such file"):
        read(tmp_path / "absent.npy")


def test_votes_in_a_private_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    np.save(tmp_path / "private" / "counts.npy", np.ones((3, 2)))
    with pytest.raises(Unsealed, match="`votes` must be public or simulated"):
        read(tmp_path / "private" / "counts.npy")
