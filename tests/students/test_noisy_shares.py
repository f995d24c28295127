"""Students of noisy shares: unbiased where students of winners lean, and refused where they would be ignored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import tutelage as tt
from tutelage.estimators import flat, load
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.networks import ConvNet
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.students import consistency
from tutelage.students.adversarial import AdversarialStudent
from tutelage.students.consistency import Consistency, ConsistencyStudent, Names, Seen, believed, own_names, shares_loss
from tutelage.students.graph import spread
from tutelage.students.shares import centred

NETWORK = ConvNet(shape=(1, 8, 8), widths=(16, 16), hidden=32)
SMALL = Consistency(
    steps=400, batch=64, ratio=2, rate=4e-3, alone=0.3, rounds=4, views=1, judged=1, average=0.95,
    labelled=Augmentation(rotation=10, scale=0.1, shift=0.7), weak=Augmentation(shift=0.3),
    strong=Augmentation(rotation=20, shift=1, cutout=2),
)  # fmt: skip


# ── reading them ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_add_up_to_one_and_stay_unbiased() -> None:
    generator = np.random.default_rng(0)
    true = np.asarray([0.9, 0.1, 0.0])
    rows = centred(true + generator.normal(size=(40_000, 3)))
    assert np.allclose(rows.sum(axis=1), 1)
    assert np.allclose(rows.mean(axis=0), true, atol=0.02)  # sd of the mean: 0.004
    assert np.allclose(rows.var(axis=0), 2 / 3, atol=0.02)  # a third of the noise was the same for all classes
    assert np.mean(np.clip(rows, 0, 1), axis=0)[2] > 0.2  # what clipping would make of a share of 0


def test_rows_without_an_answer_stay_so_and_broken_ones_are_refused() -> None:
    rows = np.asarray([[np.nan, np.nan], [2.0, 1.0]])
    assert np.isnan(centred(rows)[0]).all()
    assert centred(rows)[1].tolist() == [1.0, 0.0]
    for broken in ([[np.nan, 1.0]], [[np.inf, 0.0]], [[1.0]]):
        with pytest.raises(DataError, match="`labels` must be finite shares of two classes or more"):
            centred(np.asarray(broken))


@pytest.mark.parametrize("student", [tt.SpreadingStudent("kernel"), AdversarialStudent(device="cpu")])
def test_students_of_winners_refuse_shares(student: object) -> None:
    with pytest.raises(RecipeError, match=r"`method` must be one that gives labels for the student '(spreading|adversarial)'"):
        student.fit(tt.Public.of(np.zeros((4, 3))), np.full((4, 2), 0.5))


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def table(seed: int, sigma: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw records, the teachers' shares of two classes (a slope along the first feature), and what noise makes of them."""
    generator = np.random.default_rng(seed)
    inputs = generator.uniform(-1, 1, size=(1000, 4)).astype(np.float32)
    right = np.clip(0.5 + 0.4 * inputs[:, 0], 0, 1)
    shares = np.stack([1 - right, right], axis=1)
    return inputs, shares, shares + sigma * generator.normal(size=shares.shape)


@pytest.mark.parametrize(("kind", "gain"), [("linear", -0.01), ("forest", 0.02), ("boosted", 0.01)])  # trees learn noise by heart
def test_a_student_of_shares_is_nearer_to_the_teachers_than_one_of_winners(kind: str, gain: float) -> None:
    ours, winners = [], []
    for seed in range(3):
        inputs, shares, heard = table(seed, 0.5)
        truth = shares.argmax(axis=1)
        pool = tt.Public.of(inputs)
        ours.append(np.mean(tt.SupervisedStudent(kind).fit(pool, heard).predict(inputs) == truth))
        winners.append(np.mean(tt.SupervisedStudent(kind).fit(pool, heard.argmax(axis=1)).predict(inputs) == truth))
    assert np.mean(ours) > 0.9
    assert np.mean(ours) > np.mean(winners) + gain


def test_the_estimate_is_of_the_share_itself() -> None:
    inputs, shares, heard = table(0, 0.5)
    student = tt.SupervisedStudent("linear").fit(tt.Public.of(inputs), heard)
    slope, height = np.polyfit(shares[:, 1], student.probabilities(inputs)[:, 1], 1)
    assert slope == pytest.approx(1, abs=0.15)
    assert height == pytest.approx(0, abs=0.1)


def test_unanswered_rows_are_not_learned_from_and_models_are_stored(tmp_path: Path) -> None:
    inputs, _, heard = table(1, 0.1)
    some = np.where(np.arange(1000)[:, None] < 300, heard, np.nan)
    student = tt.SupervisedStudent("boosted", seed=3).fit(tt.Public.of(inputs), some)
    alone = tt.SupervisedStudent("boosted", seed=3).fit(tt.Public.of(inputs[:300]), heard[:300])
    assert np.array_equal(student.probabilities(inputs), alone.probabilities(inputs))
    assert np.array_equal(load(student.save(tmp_path / "student")).predict(flat(inputs)), student.predict(inputs))
    nothing = tt.SupervisedStudent("boosted").fit(tt.Public.of(inputs), np.full((1000, 2), np.nan))
    assert (nothing.predict(inputs) == 0).all()
    with pytest.raises(RecipeError, match=r"`kind` must be one of linear, forest, boosted. Got 'kernel'"):
        tt.SupervisedStudent("kernel").fit(tt.Public.of(inputs), heard)


# ── images ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.images))
    return (bunch.images[order] / 16).astype(np.float32), bunch.target[order]


def test_noise_leaves_the_loss_s_gradient_where_it_was() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1, 4, generator=generator).requires_grad_()
    true = torch.tensor([[0.7, 0.3, 0.0, 0.0]])
    noisy = true + torch.empty(200_000, 4).normal_(generator=generator)
    gradients = [torch.autograd.grad(shares_loss(scores.expand(len(rows), -1), rows), scores)[0] for rows in (true, noisy)]
    assert torch.allclose(*gradients, atol=0.01)
    sure = torch.tensor([[0.0, 200.0]])
    assert shares_loss(sure, torch.tensor([[-3.0, 4.0]])) == 18  # bounded below, wherever the noise pulls
    best = [shares_loss(torch.tensor([[0.0, score]]), torch.tensor([[0.3, 0.7]])).item() for score in (0.0, np.log(7 / 3), 3.0)]
    assert best[1] == min(best) == pytest.approx(0, abs=1e-7)


def test_noise_averages_out_as_shares_spread() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(3).repeat_interleave(40)
    features = torch.eye(3)[truth] + 0.2 * torch.rand(120, 3, generator=generator)
    noisy = torch.eye(3)[truth] + torch.empty(120, 3).normal_(generator=generator)
    noisy[::4] = torch.nan
    known = ~noisy[:, 0].isnan()
    shares = spread(features, noisy, 3, neighbours=8, diffusion=0.99)
    assert (noisy[known].argmax(dim=1) == truth[known]).float().mean() < 0.8
    assert (shares.argmax(dim=1) == truth).all()
    assert torch.allclose(shares.sum(dim=1), torch.ones(120))
    assert shares.min() >= 0
    exact = torch.nn.functional.one_hot(truth, 3).float()
    hard = spread(features, truth, 3, neighbours=8, diffusion=0.99)
    assert torch.allclose(spread(features, exact, 3, neighbours=8, diffusion=0.99), hard)


def test_a_network_of_shares_beats_one_of_winners_where_noise_is_large(digits) -> None:
    images, truth = digits
    noisy = np.eye(10)[truth[:1200]] + np.random.default_rng(1).normal(size=(1200, 10)) * 0.9  # most winners are wrong
    found = {}
    for name, lesson in (("shares", noisy), ("winners", noisy.argmax(axis=1))):
        student = ConsistencyStudent(NETWORK, settings=replace(SMALL, flip_rate=0.6), device="cpu").fit(images[:1200], lesson)
        found[name] = np.mean(student.predict(images[1200:]) == truth[1200:])
    assert np.mean(noisy.argmax(axis=1) == truth[:1200]) < 0.5
    assert found["shares"] > 0.9
    assert found["shares"] > found["winners"] + 0.02


def test_shares_of_all_the_pool_are_still_named_and_none_is_set_aside(digits, monkeypatch) -> None:
    images, truth = digits
    named: list[int] = []
    see = consistency.see_pool
    monkeypatch.setattr(consistency, "see_pool", lambda *a, **k: named.append(1) or see(*a, **k))
    tiny = replace(SMALL, steps=6, batch=4, ratio=1)
    ConsistencyStudent(NETWORK, settings=tiny, device="cpu").fit(images[:60], np.eye(10)[truth[:60]])
    assert named
    names = Names(torch.eye(2), torch.ones(2))
    wrong = torch.tensor([[0.1, 0.9], [0.2, 0.8]])
    assert believed(torch.arange(2), wrong, names).tolist() == [0, 1]
    assert believed(torch.arange(2), torch.tensor([1, 1]), names).tolist() == [1]
    assert believed(torch.arange(2), torch.tensor([1, 0]), names).tolist() == [0, 1]  # some answers must be left


def test_shares_of_other_classes_than_the_network_s_are_refused(digits) -> None:
    images, _ = digits
    with pytest.raises(DataError, match=r"shares of the network's 10 classes. Got 3"):
        ConsistencyStudent(NETWORK, device="cpu").fit(images[:9], np.full((9, 3), 1 / 3))
    with pytest.raises(DataError, match="at least one answer"):
        ConsistencyStudent(NETWORK, device="cpu").fit(images[:9], np.full((9, 10), np.nan))
    tiny = replace(SMALL, steps=2, batch=4, ratio=1)
    shares = np.full((9, 3), 1 / 3)
    masked = ConsistencyStudent(settings=tiny, device="cpu").fit(images[:9], shares, np.arange(9) < 4)
    missing = ConsistencyStudent(settings=tiny, device="cpu").fit(images[:9], np.where(np.arange(9)[:, None] < 4, shares, np.nan))
    assert all(torch.equal(tensor, missing.model.state[name]) for name, tensor in masked.model.state.items())
    assert masked.model.probabilities(images[:2]).shape == (2, 3)


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_own_names_count_the_names_before_as_far_as_they_were_believed() -> None:
    seen = Seen(torch.zeros(3, 1), torch.tensor([[0.8, 0.2]] * 3))
    before = Names(torch.tensor([[0.0, 1.0]] * 3), torch.tensor([0.0, 0.5, 1.0]))
    names = own_names(seen, before)
    assert torch.allclose(names.shares[:, 0], torch.tensor([0.8, 0.8 / 1.5, 0.4]))
    assert torch.allclose(names.shares.sum(dim=1), torch.ones(3))
    assert names.weights.tolist() == [1, 1, 1]
