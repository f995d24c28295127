"""The consistency student uses the pool, survives wrong answers, and is stored without pickle."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tutelage.data.dataset import Public
from tutelage.nets.augmentation import Augmentation
from tutelage.nets.model import Model
from tutelage.nets.networks import ConvNet, Perceptron
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.students.consistency import Consistency, ConsistencyStudent, answered_loss
from tutelage.students.graph import spread

STRONG = Augmentation(rotation=20, scale=0.15, shear=10, shift=1, elastic=0.3, cutout=2)
SMALL = Consistency(
    steps=600,
    batch=32,
    ratio=3,
    rate=4e-3,
    alone=0.3,
    rounds=5,
    views=2,
    average=0.95,
    labelled=Augmentation(rotation=10, scale=0.1, shift=0.7, elastic=0.2),
    weak=Augmentation(shift=0.3, rotation=5),
    strong=STRONG,
)
NETWORK = ConvNet(shape=(1, 8, 8), widths=(16, 16), hidden=32)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give images, truth, and what was answered about the first 1,200: 100 answers, 4 of them wrong."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.images))
    images, truth = (bunch.images[order] / 16).astype(np.float32), bunch.target[order]
    labels = np.full(1200, -1)
    labels[:100] = truth[:100]
    labels[:100:25] = (labels[:100:25] + 1) % 10
    return images, truth, labels


def accuracy(student: ConsistencyStudent, images: np.ndarray, truth: np.ndarray) -> float:
    return float((student.predict(images[1200:]) == truth[1200:]).mean())


def test_the_pool_teaches_more_than_the_answers_alone(digits, tmp_path) -> None:
    images, truth, labels = digits
    seen: list[tuple[int, int]] = []
    student = ConsistencyStudent(NETWORK, settings=SMALL, device="cpu")
    assert student.fit(Public.of(images[:1200]), labels, progress=lambda *now: seen.append(now)) is student
    alone = ConsistencyStudent(NETWORK, settings=replace(SMALL, rounds=0), device="cpu")
    alone.fit(images[:1200], labels)
    with_pool, without = accuracy(student, images, truth), accuracy(alone, images, truth)
    assert with_pool > without + 0.01
    assert with_pool > 0.9
    assert seen[-1] == (600, 600)
    # What is saved is what predicts.
    path = student.save(tmp_path / "student")
    assert path.name == "student.safetensors"
    assert np.array_equal(Model.load(path, device="cpu").predict(images), student.predict(images))


def test_one_seed_one_student_and_a_mask_is_as_good_as_minus_one(digits) -> None:
    images, _, labels = digits
    short = replace(SMALL, steps=5)
    one = ConsistencyStudent(NETWORK, settings=short, device="cpu").fit(images[:1200], labels)
    two = ConsistencyStudent(NETWORK, settings=short, device="cpu").fit(images[:1200], np.maximum(labels, 0), labels >= 0)
    other = ConsistencyStudent(NETWORK, settings=short, device="cpu", seed=1).fit(images[:1200], labels)
    assert all(torch.equal(tensor, two.model.state[name]) for name, tensor in one.model.state.items())
    assert not all(torch.equal(tensor, other.model.state[name]) for name, tensor in one.model.state.items())


def test_where_everything_is_answered_nothing_is_named(digits, monkeypatch) -> None:
    from tutelage.students import consistency

    images, truth, labels = digits
    named: list[int] = []
    see = consistency.see_pool
    monkeypatch.setattr(consistency, "see_pool", lambda *a, **k: named.append(1) or see(*a, **k))
    tiny = replace(SMALL, steps=6, batch=4, ratio=1)
    ConsistencyStudent(NETWORK, settings=tiny, device="cpu").fit(images[:60], truth[:60])
    assert not named
    ConsistencyStudent(NETWORK, settings=tiny, device="cpu").fit(images[:1200], labels)
    assert named
    named.clear()
    doubting = replace(tiny, steps=20, rounds=4, doubt=True)
    ConsistencyStudent(NETWORK, settings=doubting, device="cpu").fit(images[:60], truth[:60])
    assert len(named) == 4  # names are no truths: the pool has its say


def test_names_that_are_no_truths_are_outvoted(digits) -> None:
    images, truth, _ = digits
    names = truth[:600].copy()
    names[::5] = (names[::5] + 1) % 10
    told = replace(SMALL, steps=300, flip_rate=0.2)
    plain = ConsistencyStudent(NETWORK, settings=told, device="cpu").fit(images[:600], names)
    doubting = ConsistencyStudent(NETWORK, settings=replace(told, doubt=True), device="cpu").fit(images[:600], names)
    assert accuracy(doubting, images, truth) > max(0.92, accuracy(plain, images, truth))


def test_a_default_network_fits_the_images(digits) -> None:
    images, _, labels = digits
    tiny = replace(SMALL, steps=1, batch=4, ratio=1)
    student = ConsistencyStudent(settings=tiny, classes=12, device="cpu").fit(images[:1200], labels)
    assert student.model.probabilities(images[:3]).shape == (3, 12)


def test_a_network_may_know_more_classes_than_were_heard(digits) -> None:
    images, _, labels = digits
    tiny = replace(SMALL, steps=10, batch=4, ratio=1)
    few = ConsistencyStudent(NETWORK, settings=tiny, device="cpu").fit(images[:1200], np.where(labels < 3, labels, -1))
    assert few.model.probabilities(images[:3]).shape == (3, 10)


def test_the_loss_of_a_wrong_answer_is_bounded_and_without_flips_it_is_cross_entropy() -> None:
    scores, labels = torch.tensor([[50.0, 0, 0], [0, 1, 2]]), torch.tensor([1, 2])
    assert torch.allclose(answered_loss(scores, labels, 0.0), F.cross_entropy(scores, labels))
    sure_and_wrong = answered_loss(scores[:1], labels[:1], 0.1)
    assert sure_and_wrong.item() == pytest.approx(-np.log(0.05), rel=1e-4)
    assert answered_loss(scores[1:], labels[1:], 1e-9).item() == pytest.approx(
        F.cross_entropy(scores[1:], labels[1:]).item(), rel=1e-4
    )


def test_rounds_divide_the_steps_that_the_answers_leave() -> None:
    settings = Consistency(steps=100, alone=0.2, rounds=4)
    rounds = [settings.round_at(step) for step in range(100)]
    assert [rounds.count(number) for number in range(5)] == [20, 20, 20, 20, 20]
    assert {replace(settings, rounds=0).round_at(step) for step in range(100)} == {0}


def test_answers_spread_along_clusters_and_outvote_a_wrong_one() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.eye(3).repeat_interleave(40, dim=0)  # three clusters of 40
    features = centres + 0.2 * torch.rand(120, 3, generator=generator)
    answers = torch.full((120,), -1)
    answers[[0, 1, 2, 40, 41, 80]] = torch.tensor([0, 0, 1, 1, 1, 2])  # record 2 was answered wrongly
    shares = spread(features, answers, 3, neighbours=8, diffusion=0.99)
    assert torch.allclose(shares.sum(dim=1), torch.ones(120))
    assert shares.argmax(dim=1).tolist() == [0] * 40 + [1] * 40 + [2] * 40


def test_a_record_that_hears_nothing_is_of_no_class() -> None:
    features = torch.tensor([[1.0, 0], [0.9, 0.1], [-1, 0], [-0.9, -0.1]])
    shares = spread(features, torch.tensor([1, -1, -1, -1]), 2, neighbours=1, diffusion=0.5)
    assert shares[2].tolist() == [0.5, 0.5]


def test_what_cannot_be_learned_is_refused(digits) -> None:
    images, _, labels = digits
    with pytest.raises(DataError, match="at least one answer"):
        ConsistencyStudent(device="cpu").fit(images[:10], np.full(10, -1))
    with pytest.raises(RecipeError, match="must hold images"):
        ConsistencyStudent(device="cpu").fit(images.reshape(len(images), -1)[:1200], labels)
    with pytest.raises(DataError, match="one entry per input"):
        ConsistencyStudent(device="cpu").fit(images, labels)
    with pytest.raises(DataError, match="must be fitted"):
        ConsistencyStudent().predict(images)
    with pytest.raises(RecipeError, match="`diffusion` must be"):
        Consistency(diffusion=1.0)
    with pytest.raises(RecipeError, match="`rounds` must be"):
        Consistency(rounds=-1)


def test_a_model_of_another_kind_is_refused(tmp_path) -> None:
    network = Perceptron(features=2, classes=2)
    path = Model(network, network().state_dict()).save(tmp_path / "model")
    path.write_bytes(path.read_bytes().replace(b"tutelage.model", b"tutelage.other"))
    with pytest.raises(DataError, match=r"of kind 'tutelage\.model/1'"):
        Model.load(path)
    with pytest.raises(DataError, match="whole safetensors file"):
        Model.load(tmp_path / "nothing.safetensors")
