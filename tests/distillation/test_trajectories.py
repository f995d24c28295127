"""Trajectory matching: gradients against plain unrolling and against differences, memory, and images that do come to match."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tutelage.distillation.experts import Experts, ExpertTraining
from tutelage.distillation.siamese import Siamese
from tutelage.distillation.trajectories import Matching, TrajectoryMatching
from tutelage.nets.classics import NormedConvNet
from tutelage.nets.storage import read_tensors
from tutelage.privacy.errors import DataError, RecipeError, Unsealed

NET = NormedConvNet(shape=(1, 8, 8), classes=3, width=4, depth=2)
CPU = torch.device("cpu")


def setting(steps: int, *, augmentation: Siamese | None = None):
    torch.manual_seed(0)
    matching = Matching(NET, device=CPU, augmentation=augmentation)
    start, goal = ({name: value[0] for name, value in matching.stack.start([seed]).items()} for seed in (0, 1))
    images, labels = torch.rand(9, 1, 8, 8), F.one_hot(torch.arange(3).repeat(3), 3).float()
    streams = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    views = matching.views(9, steps, 6, generator=streams[0], kinds=streams[1])
    return matching, start, goal, images, labels, torch.tensor(0.05), views


def apart(one, other) -> float:
    return max(((a - b).norm() / b.norm().clamp_min(1e-12)).item() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("segments", [0, 3])
@pytest.mark.parametrize("augmentation", [None, Siamese()])
def test_gradients_are_those_of_plain_unrolling(segments, augmentation):
    matching, *given = setting(7, augmentation=augmentation)
    loss, exact = matching(*given, way="exact", segments=segments)
    other, plain = matching(*given, way="plain")
    assert loss == pytest.approx(other.item(), rel=1e-5)
    assert apart(exact, plain) < 1e-4


def test_thirty_steps_in_double_precision_are_plain_unrolling_to_the_last_digits():
    """In single precision a ReLU at zero may fall to the other side in one of the two, and a long way makes that visible."""
    matching, start, goal, images, labels, rate, views = setting(30, augmentation=Siamese())
    start, goal = ({name: value.double() for name, value in one.items()} for one in (start, goal))
    given = start, goal, images.double(), labels.double(), rate.double(), views
    loss, exact = matching(*given, way="exact", segments=5)
    other, plain = matching(*given, way="plain")
    assert loss == pytest.approx(other.item(), rel=1e-12)
    assert apart(exact, plain) < 1e-9


def test_teslas_gradient_is_exact_for_one_step_and_not_for_many():
    matching, *given = setting(1)
    assert apart(matching(*given, way="tesla")[1], matching(*given, way="plain")[1]) < 1e-4
    matching, *given = setting(6)
    assert apart(matching(*given, way="tesla")[1][:1], matching(*given, way="plain")[1][:1]) > 1e-3


def test_memory_does_not_grow_with_the_steps():
    def held(steps: int, way: str) -> int:
        """Count the bytes that autograd keeps for the way back."""
        most = now = 0

        def pack(tensor):
            nonlocal most, now
            now += tensor.numel()
            most = max(most, now)
            return Kept(tensor)

        class Kept:
            def __init__(self, tensor):
                self.tensor = tensor

            def __del__(self):
                nonlocal now
                now -= self.tensor.numel()

        matching, *given = setting(steps)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
            matching(*given, way=way)
        return most

    assert held(8, "exact") < 1.1 * held(2, "exact")
    assert held(8, "plain") > 3 * held(2, "plain")


def digits():
    from tutelage.data.digits import digits as load

    private, _, test = load()
    keep = private.targets < 3
    images = torch.as_tensor(private.inputs[keep])[:, None]
    return images, torch.as_tensor(private.targets[keep]), test


def test_images_come_to_match_an_expert():
    images, labels, _ = digits()
    experts = ExpertTraining(experts=2, epochs=4, batch=32, rate=0.2, augmentation=None).fit(NET, images, labels, 3)
    assert (experts.count, experts.epochs) == (2, 4)
    start = 0.5 + 0.1 * torch.randn(9, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    soft = F.one_hot(torch.arange(3).repeat(3), 3).float()
    plan = TrajectoryMatching(
        iterations=30, steps=6, epochs=1, latest=2, batch=9, image_rate=1, start_rate=0.1, rate_rate=1e-3, augmentation=None
    )
    moved, _, rate = plan.fit(NET, experts, start, soft)

    def far(shown: torch.Tensor, step: float) -> float:
        matching, total = Matching(NET, device=CPU), 0.0
        streams = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
        for expert in range(2):
            views = matching.views(9, 6, 9, generator=streams[0], kinds=streams[1])
            total += matching(experts.at(expert, 0), experts.at(expert, 1), shown, soft, torch.tensor(step), views)[0].item()
        return total / 2

    assert math.isfinite(rate)
    assert far(moved, rate) < 0.5 * far(start, 0.1)


def test_experts_together_are_experts_alone_and_stay_private(tmp_path):
    images, labels, _ = digits()
    alone = ExpertTraining(experts=3, epochs=1, batch=64, together=1, augmentation=None).fit(NET, images, labels, 3)
    together = ExpertTraining(experts=3, epochs=1, batch=64, together=3, augmentation=None).fit(NET, images, labels, 3)
    assert all(torch.allclose(alone.weights[name], together.weights[name], atol=1e-5) for name in alone.weights)
    with pytest.raises(Unsealed, match="private"):
        together.save(tmp_path / "release" / "experts.safetensors", NET)
    together.save(tmp_path / "private" / "experts.safetensors", NET)
    assert (tmp_path / "private" / "experts.safetensors").stat().st_mode & 0o077 == 0
    again = Experts.load(tmp_path / "private" / "experts.safetensors")
    assert all(torch.equal(again.weights[name], value) for name, value in together.weights.items())
    with pytest.raises(DataError):
        read_tensors(tmp_path / "private" / "experts.safetensors", kind="tutelage.model/1")


def test_experts_shorter_than_a_match_are_refused():
    experts = Experts({"w": torch.zeros(1, 2, 3)})
    with pytest.raises(RecipeError, match="epochs"):
        TrajectoryMatching(epochs=3).fit(NET, experts, torch.zeros(3, 1, 8, 8), torch.eye(3))
