"""The papers' student learns labels and what real images look like."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from tutelage.nets.allconv import AllConv
from tutelage.nets.model import Model
from tutelage.nets.networks import Perceptron, refuse_batch_mixing
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.students.adversarial import Adversarial, AdversarialStudent
from tutelage.students.convolutions import Convolutions
from tutelage.students.game import Game, critic_loss
from tutelage.students.perceptrons import Perceptrons, Shake
from tutelage.students.players import Discriminator, Players

SMALL = Adversarial(steps=400, batch=50, rate=2e-3, widths=(128, 64), generator=(64,), latent=20, average=0.98, hidden_noise=0.3)
PLAYERS = {"widths": (12, 24), "generator": (32, 16), "latent": 20, "hidden_noise": 0.3}
COLOUR = Adversarial(kind="convolutional", steps=320, batch=25, rate=6e-3, average=0.98, **PLAYERS)
TINY = dataclasses.replace(COLOUR, steps=3, batch=6, widths=(4, 4), generator=(4, 4), latent=3)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.images))
    labels = np.full(1200, -1)
    labels[:80] = bunch.target[order][:80]
    return (bunch.images[order] / 16).astype(np.float32), bunch.target[order], labels


@pytest.fixture(scope="module")
def coloured(digits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    images, truth, labels = digits
    grey = np.kron(images, np.ones((1, 2, 2), dtype=np.float32))
    return np.stack([grey, 1 - grey, 0.5 * grey + 0.2], axis=1), truth, labels  # (records, 3, 16, 16)


def test_it_learns_from_few_answers_and_is_stored_as_a_plain_network(digits, tmp_path) -> None:
    images, truth, labels = digits
    seen: list[tuple[int, int]] = []
    student = AdversarialStudent(settings=SMALL, device="cpu").fit(images[:1200], labels, progress=lambda *now: seen.append(now))
    assert (student.predict(images[1200:]) == truth[1200:]).mean() > 0.88
    assert seen[-1] == (400, 400)
    assert student.model.factory == Perceptron(features=64, classes=10, widths=(128, 64))
    path = student.save(tmp_path / "student")
    assert np.array_equal(Model.load(path, device="cpu").predict(images), student.predict(images))


def test_convolutions_learn_coloured_digits_and_are_stored_as_a_plain_network(coloured, tmp_path) -> None:
    images, truth, labels = coloured
    student = AdversarialStudent(settings=COLOUR, device="cpu").fit(images[:1200], labels)
    assert (student.predict(images[1200:]) == truth[1200:]).mean() > 0.65
    assert student.model.factory == AllConv(shape=(3, 16, 16), classes=10, widths=(12, 24))
    refuse_batch_mixing(student.model.factory())
    path = student.save(tmp_path / "student")
    assert np.array_equal(Model.load(path, device="cpu").predict(images), student.predict(images))


def test_labels_of_other_images_teach_convolutions_nothing(coloured) -> None:
    images, truth, labels = coloured
    mixed = labels.copy()
    mixed[:80] = np.random.default_rng(0).permutation(labels[:80])
    student = AdversarialStudent(settings=COLOUR, device="cpu").fit(images[:1200], mixed)
    assert (student.predict(images[1200:]) == truth[1200:]).mean() < 0.4  # the bar above can be missed


@pytest.mark.parametrize("settings", [Adversarial(steps=3, batch=10, widths=(8,), generator=(8,), latent=4), TINY])
def test_one_seed_one_student(coloured, settings) -> None:
    images, _, labels = coloured
    one, two = (
        AdversarialStudent(settings=settings, device="cpu", seed=5).fit(images[:1200], labels).model.state for _ in range(2)
    )
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())


def test_bytes_and_numbers_are_the_same_images(coloured) -> None:
    images, _, labels = coloured
    as_bytes = (images[:1200] * 255).round().astype(np.uint8)
    states = [
        AdversarialStudent(settings=TINY, device="cpu").fit(pool, labels).model.state
        for pool in (as_bytes, as_bytes.astype(np.float32) / 255)
    ]
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


def test_the_class_of_fakes_has_the_score_zero() -> None:
    critic = Discriminator(nn.Identity(), nn.Linear(3, 4)).eval()
    some, labels = torch.rand(5, 3), torch.randint(4, (5,))
    scores, features = critic(some)
    whole = torch.cat([scores, torch.zeros(5, 1)], dim=1).log_softmax(dim=1)  # (5, classes + 1)
    named = scores.log_softmax(dim=1).gather(1, labels[:, None]).mean()
    real = (1 - whole[:, -1].exp()).log().mean()
    fake = whole[:, -1].mean()
    assert torch.allclose(critic_loss(critic, some, labels, some, some), -named - 0.5 * (real + fake), atol=1e-5)
    assert torch.equal(features, some)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(Perceptrons(widths=(30, 20), generator=(16,)), (1, 6, 6)), (Convolutions(widths=(8, 8), generator=(8, 4)), (3, 12, 20))],
)
def test_players_fit_their_inputs(kind, shape) -> None:
    some, latent = torch.rand(20, *shape), torch.rand(20, 10)
    players = kind.players(kind.factory(shape, 7), shape, some, latent)
    scores, features = players.critic(some)
    assert (scores.shape, features.ndim) == ((20, 7), 2)
    forged = players.forger(latent)
    assert forged.shape == some.shape
    assert 0 < forged.min() < forged.max() < 1
    shaken = players.critic(some)[0]
    assert not torch.equal(scores, shaken)  # learning is shaken, judging is not
    assert torch.equal(players.critic.eval()(some)[0], players.critic(some)[0])


def test_convolutions_begin_with_scales_that_suit_their_images() -> None:
    torch.manual_seed(0)
    kind, some = Convolutions(widths=(8, 8), generator=(8, 4)), 0.3 * torch.rand(400, 3, 12, 12)
    players = kind.players(kind.factory((3, 12, 12), 7), (3, 12, 12), some, torch.rand(400, 10))
    assert torch.allclose(players.critic(some)[0].std(dim=0), torch.full((7,), 0.1), rtol=0.3)
    normed = [layer for layer in players.network if hasattr(layer, "parametrizations")]
    free = [layer.parametrizations.weight.original0.requires_grad for layer in normed]
    assert free == [False] * (len(free) - 1) + [True]


def test_what_is_published_says_what_the_critic_said() -> None:
    kind, some = Convolutions(widths=(8, 8), generator=(8, 4)), torch.rand(9, 3, 12, 12)
    players = kind.players(kind.factory((3, 12, 12), 4), (3, 12, 12), some, torch.rand(9, 5))
    scores = players.critic.eval()(some)[0]
    network = kind.factory((3, 12, 12), 4)().eval()
    network.load_state_dict(players.published())
    assert torch.allclose(network(some), scores, atol=1e-5)


def test_a_step_moves_both_players() -> None:
    linear, forger = nn.Linear(2, 3), nn.Linear(4, 2)
    game = Game(
        Players(linear, Discriminator(Shake(0.5), linear), forger, nn.functional.mse_loss),
        torch.rand(30, 2), torch.zeros(30).long(), torch.arange(30), batch=5, latent=4,
    )  # fmt: skip
    game.rate.fill_(0.01)
    before = [weight.detach().clone() for weight in (*linear.parameters(), *forger.parameters())]
    game()
    moved = [not torch.equal(*pair) for pair in zip(before, (*linear.parameters(), *forger.parameters()), strict=True)]
    assert all(moved)
    assert len(game.turns[0].param_groups[0]["params"]) == len(game.turns[1].param_groups[0]["params"]) == 2


def test_what_cannot_be_learned_is_refused(digits) -> None:
    images, _, _ = digits
    with pytest.raises(DataError, match="at least one answer"):
        AdversarialStudent(device="cpu").fit(images[:10], np.full(10, -1))
    with pytest.raises(DataError, match="must be fitted"):
        AdversarialStudent().predict(images)
    with pytest.raises(RecipeError, match="`steps` must be"):
        Adversarial(steps=0)
    with pytest.raises(RecipeError, match=r"`rate` must be > 0 and `average` in \[0, 1\)\. Got 0 and 0.999 instead"):
        Adversarial(rate=0)
    with pytest.raises(RecipeError, match=r"`kind` must be one of 'perceptron', 'convolutional'\. Got 'round' instead"):
        Adversarial(kind="round")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match=r"`widths` must name widths ≥ 1\. Got \(8, 0\) instead"):
        Adversarial(widths=(8, 0))


@pytest.mark.parametrize("shape", [(12,), (3, 12, 16), (3, 16, 20), (2, 3, 16, 16)])
def test_convolutions_refuse_what_they_cannot_draw(shape) -> None:
    student = AdversarialStudent(settings=dataclasses.replace(TINY, generator=(4, 4, 4)), device="cpu")
    with pytest.raises(DataError, match=r"`public` must hold images, channels first, whose sides are multiples of 8, .*instead"):
        student.fit(np.zeros((4, *shape), dtype=np.float32), np.zeros(4))


def test_convolutions_refuse_images_that_halving_leaves_nothing_of() -> None:
    with pytest.raises(RecipeError, match=r"`widths` must leave 3×3 pixels of a \(8, 8\) image"):
        AdversarialStudent(settings=TINY, device="cpu").fit(np.zeros((4, 3, 8, 8), dtype=np.float32), np.zeros(4))
