"""Sets, formations, augmentations, lessons, and the matching methods of the literature."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tutelage.data.digits import digits
from tutelage.distillation.distributions import DistributionMatching
from tutelage.distillation.embedding import Embedding, joined
from tutelage.distillation.formations import expand, expand_labels
from tutelage.distillation.gradients import GradientMatching
from tutelage.distillation.kernels import KernelPoints, tangent_kernel
from tutelage.distillation.knowledge import KnowledgeTransfer
from tutelage.distillation.lessons import Lesson, accuracies, learn, learn_sets
from tutelage.distillation.matching import ReleasedMatching
from tutelage.distillation.sets import DistilledSet
from tutelage.distillation.siamese import KINDS, Siamese
from tutelage.distillation.stack import Stack
from tutelage.distillation.starts import chosen, noise
from tutelage.nets.classics import AlexNet, NormedConvNet
from tutelage.privacy.errors import DataError, RecipeError

NET = NormedConvNet(shape=(1, 8, 8), width=8, depth=2)
LESSON = Lesson(steps=80, batch=32, rate=0.05)


@pytest.fixture(scope="module")
def data():
    private, _, test = digits()
    return (
        torch.as_tensor(private.inputs)[:, None],
        torch.as_tensor(private.targets),
        torch.as_tensor(test.inputs)[:, None],
        test.targets,
    )


def hot(classes: int, each: int) -> torch.Tensor:
    return F.one_hot(torch.arange(classes).repeat_interleave(each), classes).float()


def judged(images, labels, data, factory=NET) -> float:
    weights = learn(factory, images, labels, lesson=LESSON, seeds=(0,))
    return accuracies(factory, weights, data[2], data[3])[0]


def test_formation_shows_quarters_and_labels_stay_beside_their_images():
    image = torch.arange(64.0).reshape(1, 1, 8, 8)
    shown = expand(image, 2)
    assert shown.shape == (4, 1, 8, 8)
    assert shown[0].max() <= image[..., :4, :4].max()
    assert shown[3].min() >= image[..., 4:, 4:].min()
    assert torch.equal(expand_labels(torch.eye(2), 2).argmax(1), torch.tensor([0] * 4 + [1] * 4))
    assert torch.equal(expand(image, 1), image)


@pytest.mark.parametrize("kind", KINDS)
def test_siamese_distorts_both_alike_and_lets_gradients_through(kind):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(3, 3, 8, 8, requires_grad=True)
    how = Siamese((kind,))
    name, draws = how.draw(1, generator=generator)
    one, alone = how(images, (name, draws)), how(images[1:2], (name, draws))
    assert torch.allclose(one[1:2], alone, atol=1e-6)
    one.sum().backward()
    assert images.grad is not None
    assert torch.isfinite(images.grad).all()


def test_siamese_without_kinds_changes_nothing_and_refuses_strangers():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(Siamese(())(images, Siamese(()).draw(1, generator=generator)), images)
    with pytest.raises(RecipeError, match="blur"):
        Siamese(("blur",))


def test_stack_gives_the_gradients_of_each_network_alone():
    stack = Stack(NET, device=torch.device("cpu"))
    weights, images, targets = stack.start([0, 1]), torch.rand(2, 5, 1, 8, 8), torch.eye(10)[torch.randint(10, (2, 5))]
    found = stack.gradients(weights, images, targets)
    alone = NET()
    alone.load_state_dict({name: value[1] for name, value in weights.items()})
    loss = -(targets[1] * alone(images[1]).log_softmax(1)).sum(1).mean()
    loss.backward()
    for name, parameter in alone.named_parameters():
        assert torch.allclose(found[name][1], parameter.grad, atol=1e-5)


def test_scores_do_not_depend_on_company():
    images = torch.rand(4, 3, 32, 32)
    for factory in (NormedConvNet(width=4), AlexNet()):
        network = factory().eval()
        with torch.no_grad():
            assert torch.allclose(network(images)[:1], network(images[:1]), atol=1e-5)
    assert sum(p.numel() for p in NormedConvNet()().parameters()) == 320_010


def test_sets_of_different_sizes_learn_side_by_side(data):
    one, other = data[0][:50], data[0][:200]
    labels = F.one_hot(data[1], 10).float()
    together = learn_sets(NET, [one, other], [labels[:50], labels[:200]], lesson=LESSON, seeds=[3, 3])
    alone = learn_sets(NET, [other], [labels[:200]], lesson=LESSON, seeds=[3])
    assert all(torch.allclose(together[name][1], alone[name][0], atol=1e-4) for name in alone)
    right = accuracies(NET, together, data[2], data[3])
    assert right[1] > right[0]


def test_distribution_matching_beats_its_start(data):
    start = noise(10, 3, (1, 8, 8), seed=0)
    plan = DistributionMatching(steps=120, batch=32, rate=3.0, width=16, depth=2, augmentation=Siamese(("scale", "rotate")))
    made = plan.fit(data[0], data[1], start)
    assert made.shape == start.shape
    assert judged(made.flatten(0, 1), hot(10, 3), data) > judged(start.flatten(0, 1), hot(10, 3), data) + 0.2


def test_gradient_matching_brings_gradients_together(data):
    start = noise(10, 1, (1, 8, 8), seed=0)
    plan = GradientMatching(networks=6, outer=4, inner=2, batch=32, rate=1.0, width=8, depth=2, augmentation=None)
    made = plan.fit(data[0], data[1], start)
    assert judged(made.flatten(0, 1), hot(10, 1), data) > judged(start.flatten(0, 1), hot(10, 1), data) + 0.1


def test_kernel_points_predict_better_than_random_records(data):
    start = chosen(data[0], data[1], 10, 1, seed=0)
    plan = KernelPoints(steps=60, batch=200, rate=0.02)
    images, answers = plan.fit(data[0], data[1], start)
    truth = torch.as_tensor(data[3])

    def right(shown, said):
        return (plan.predict(shown.flatten(0, 1), said, data[2]).argmax(1) == truth).float().mean().item()

    assert right(images, answers) > right(start, hot(10, 1) - 0.1) + 0.05


def test_tangent_kernel_is_that_of_a_wide_network():
    torch.manual_seed(0)
    x, width, bias = torch.randn(3, 6), 20_000, 0.0
    a, b = torch.randn(width, 6), torch.randn(width)

    def f(a, b, x):  # NTK parametrisation, ReLU scaled by √2
        return (b @ (2**0.5 * F.relu(a @ x / 6**0.5))) / width**0.5

    rows = [torch.cat([g.flatten() for g in torch.func.grad(f, argnums=(0, 1))(a, b, row)]) for row in x]
    direct = torch.stack([torch.stack([one @ other for other in rows]) for one in rows])
    assert torch.allclose(tangent_kernel(x, x, depth=1, bias=bias), direct, rtol=0.05, atol=0.05)


def test_teacher_teaches_what_labels_do_not(data):
    """On images of noise only the teacher's shares say anything; with alpha 0 they are not listened to."""
    teacher = learn(NET, data[0], F.one_hot(data[1], 10).float(), lesson=LESSON, seeds=(5,))
    stack = Stack(NET, device=torch.device("cpu"))
    ask = lambda images: stack.scores({name: value[0] for name, value in teacher.items()}, images)  # noqa: E731
    images, wrong = data[0][:200], F.one_hot((data[1][:200] + 1) % 10, 10).float()
    right = []
    for alpha in (1.0, 0.0):
        plan = KnowledgeTransfer(temperature=2.0, alpha=alpha, lesson=LESSON)
        weights = plan.fit(NET, images, wrong, ask, seeds=(0,))
        right.append(accuracies(NET, weights, data[2], data[3])[0])
    assert right[0] > 0.7
    assert right[1] < 0.2


def test_images_come_to_match_released_means(data):
    parts = Embedding(networks=4, width=8).built((1, 8, 8))
    features = joined(parts, data[0])
    means = [m * 2 for m in (torch.eye(10)[data[1]].T @ features / torch.eye(10)[data[1]].sum(0)[:, None]).chunk(4, dim=1)]
    start = noise(10, 2, (1, 8, 8), seed=0)
    _, near = ReleasedMatching(steps=60, drawn=4).fit(parts, means, start)
    _, far = ReleasedMatching(steps=1, drawn=4, rate=1e-6).fit(parts, means, start)
    assert near < 0.3 * far


def test_set_survives_its_files_and_refuses_what_does_not_fit(tmp_path):
    made = DistilledSet(np.random.default_rng(0).random((6, 1, 8, 8)), np.eye(3).repeat(8, axis=0), 2)
    made.save(tmp_path)
    again = DistilledSet.load(tmp_path)
    assert (again.formation, again.classes, again.ipc) == (2, 3, 2)
    assert np.array_equal(again.images, made.images)
    shown, labels = again.shown()
    assert shown.shape == (24, 1, 8, 8)
    assert len(labels) == 24
    assert (tmp_path / "distilled.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(DataError, match="labels"):
        DistilledSet(made.images, np.eye(3), 1)
    with pytest.raises(DataError, match="finite"):
        DistilledSet(made.images * np.nan, made.labels, 2)


def test_starts_refuse_classes_that_are_too_small(data):
    with pytest.raises(DataError, match="at least 5"):
        chosen(data[0][:20], data[1][:20], 10, 5)
    with pytest.raises(RecipeError, match="ipc"):
        noise(10, 0, (1, 8, 8))
