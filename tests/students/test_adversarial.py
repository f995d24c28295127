"""The papers' student learns labels and what real images look like."""

import numpy as np
import pytest
import torch

from tutelage.nets.model import Model
from tutelage.nets.networks import Perceptron
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.students.adversarial import Adversarial, AdversarialStudent, Discriminator, critic_loss

SMALL = Adversarial(steps=400, batch=50, rate=2e-3, widths=(128, 64), generator=(64,), latent=20, average=0.98, hidden_noise=0.3)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.images))
    labels = np.full(1200, -1)
    labels[:80] = bunch.target[order][:80]
    return (bunch.images[order] / 16).astype(np.float32), bunch.target[order], labels


def test_it_learns_from_few_answers_and_is_stored_as_a_plain_network(digits, tmp_path) -> None:
    images, truth, labels = digits
    seen: list[tuple[int, int]] = []
    student = AdversarialStudent(settings=SMALL, device="cpu").fit(images[:1200], labels, progress=lambda *now: seen.append(now))
    assert (student.predict(images[1200:]) == truth[1200:]).mean() > 0.88
    assert seen[-1] == (400, 400)
    assert student.model.factory == Perceptron(features=64, classes=10, widths=(128, 64))
    path = student.save(tmp_path / "student")
    assert np.array_equal(Model.load(path, device="cpu").predict(images), student.predict(images))


def test_one_seed_one_student(digits) -> None:
    images, _, labels = digits
    tiny = Adversarial(steps=3, batch=10, widths=(8,), generator=(8,), latent=4)
    one, two = (AdversarialStudent(settings=tiny, device="cpu", seed=5).fit(images[:1200], labels).model.state for _ in range(2))
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())


def test_the_class_of_fakes_has_the_score_zero() -> None:
    critic = Discriminator([torch.nn.Linear(3, 4)], [0.0]).eval()
    some, labels = torch.rand(5, 3), torch.randint(4, (5,))
    scores, features = critic(some)
    whole = torch.cat([scores, torch.zeros(5, 1)], dim=1).log_softmax(dim=1)  # (5, classes + 1)
    named = scores.log_softmax(dim=1).gather(1, labels[:, None]).mean()
    real = (1 - whole[:, -1].exp()).log().mean()
    fake = whole[:, -1].mean()
    assert torch.allclose(critic_loss(critic, some, labels, some, some), -named - 0.5 * (real + fake), atol=1e-5)
    assert torch.equal(features, some)


def test_what_cannot_be_learned_is_refused(digits) -> None:
    images, _, _ = digits
    with pytest.raises(DataError, match="at least one answer"):
        AdversarialStudent(device="cpu").fit(images[:10], np.full(10, -1))
    with pytest.raises(DataError, match="must be fitted"):
        AdversarialStudent().predict(images)
    with pytest.raises(RecipeError, match="`steps` must be"):
        Adversarial(steps=0)
