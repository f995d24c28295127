"""Networks trained a few at a time in the same place learn what each would have learned alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tutelage.nets.networks import ConvNet
from tutelage.nets.recorded import Lane, train_recorded
from tutelage.nets.slices import Slices
from tutelage.nets.training import Stream, Training, train_one
from tutelage.nets.unet import UNet
from tutelage.nets.warps import Warp

WARP = Warp(rotation=10, shift=1, elastic=0.3, noise=0.05, keep=0.1)
TRAINING = Training(steps=19, batch=4, rate=3e-3, augmentation=WARP)  # one block of draws and a part of the next
SHARDS = [torch.arange(0, 9), torch.arange(9, 11), torch.arange(11, 20)]  # unequal; one is smaller than a batch
TEACHERS = [4, 0, 7]


def scenes(space: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor, UNet]:
    rng = np.random.default_rng(0)
    masks = rng.random((20, *space)) < 0.3
    images = (masks + 0.3 * rng.normal(size=masks.shape))[:, None].astype(np.float32)
    factory = UNet(shape=(1, *space), widths=(4, 8), groups=2)
    return torch.from_numpy(images), torch.from_numpy(masks.astype(np.uint8)), factory


def alone(factory, inputs, targets, training: Training, start=None) -> list[dict[str, torch.Tensor]]:
    return [
        train_one(
            factory, inputs[shard], targets[shard], training=training, seed=3, teacher=teacher, tick=lambda _: None,
            start=None if start is None else start[place],
        )
        for place, (shard, teacher) in enumerate(zip(SHARDS, TEACHERS, strict=True))
    ]  # fmt: skip


def recorded(factory, inputs, targets, training: Training, **told) -> dict[str, torch.Tensor]:
    settings = {"training": training, "seed": 3, "teachers": TEACHERS, "tick": lambda _: None} | told
    return train_recorded(factory, inputs, targets, SHARDS, **settings)


def furthest(stack: dict[str, torch.Tensor], states: list[dict[str, torch.Tensor]]) -> float:
    return max((stack[name][k] - state[name]).abs().max().item() for k, state in enumerate(states) for name in state)


@pytest.mark.parametrize(
    ("space", "soft", "lanes"), [((8, 10), False, 2), ((8, 10), True, 8), ((6, 4, 5), False, 8), ((6, 4, 5), True, 2)]
)
def test_lanes_learn_what_the_loop_learns(space: tuple[int, ...], soft: bool, lanes: int) -> None:
    inputs, targets, factory = scenes(space)
    targets = 0.1 + 0.8 * targets.float() if soft else targets
    told: list[int] = []
    stack = recorded(factory, inputs, targets, TRAINING, lanes=lanes, tick=told.append)
    states = alone(factory, inputs, targets, TRAINING)
    fresh = [Stream(3, teacher, torch.device("cpu")).build(factory).state_dict() for teacher in TEACHERS]
    assert furthest(stack, states) < 1e-3
    assert furthest(stack, fresh) > 1e-2  # or equality would say nothing
    assert furthest(stack, states[::-1]) > 1e-2
    assert sum(told) == 3 * TRAINING.steps


@pytest.mark.parametrize("bent", [True, False])
def test_a_lane_starts_where_it_is_told(bent: bool) -> None:
    inputs, targets, factory = scenes((8, 10))
    training = replace(TRAINING, steps=6, augmentation=WARP if bent else None)  # few: Adam makes rounding grow
    start = alone(factory, inputs, targets, training)
    stack = recorded(factory, inputs, targets, training, lanes=2, start=start)
    assert furthest(stack, alone(factory, inputs, targets, training, start=start)) < 1e-3
    assert furthest(stack, alone(factory, inputs, targets, training)) > 3e-3


def test_networks_that_look_at_volumes_slice_by_slice_learn_as_well() -> None:
    inputs, targets, _ = scenes((6, 4, 5))

    def factory() -> Slices:
        return Slices(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1)))

    stack, states = recorded(factory, inputs, targets, TRAINING), alone(factory, inputs, targets, TRAINING)
    assert furthest(stack, states) < 1e-3
    assert furthest(stack, states[::-1]) > 1e-2


def test_labels_are_learned_as_well() -> None:
    inputs, _, _ = scenes((8, 8))
    factory = ConvNet(shape=(1, 8, 8), classes=3, widths=(4, 4), hidden=8, groups=2)
    labels, training = torch.arange(20) % 3, replace(TRAINING, augmentation=None, smoothing=0.1)
    assert furthest(recorded(factory, inputs, labels, training, lanes=2), alone(factory, inputs, labels, training)) < 1e-3


def test_bytes_are_images_too() -> None:
    inputs, targets, factory = scenes((8, 10))
    grey = (255 * inputs.clamp(0, 1)).to(torch.uint8)
    training = replace(TRAINING, augmentation=None)
    assert furthest(recorded(factory, grey, targets, training), alone(factory, grey, targets, training)) < 1e-3


def test_a_lane_forgets_the_network_before() -> None:
    inputs, targets, factory = scenes((8, 10))
    lane = Lane(factory, inputs, targets, TRAINING)
    first, second = (Stream(3, teacher, torch.device("cpu")).build(factory) for teacher in (0, 1))
    images, wanted = inputs[:4], targets[:4].float()

    def learned(network: torch.nn.Module) -> dict[str, torch.Tensor]:
        lane.begin(network, None)
        for _ in range(3):
            lane.step(images, wanted, 1e-2)
        return lane.state()

    once = learned(first)
    learned(second)
    assert furthest({name: tensor[None] for name, tensor in learned(first).items()}, [once]) == 0.0


def test_what_one_teacher_learns_is_its_own_whoever_stands_beside_it() -> None:
    inputs, targets, factory = scenes((8, 10))
    other = inputs.clone()
    other[SHARDS[0]] = 7.0  # another record in the first shard
    one, two = (recorded(factory, some, targets, TRAINING, lanes=2) for some in (inputs, other))
    assert all(torch.equal(one[name][1:], two[name][1:]) for name in one)
    assert any(not torch.equal(one[name][0], two[name][0]) for name in one)


def test_training_leaves_everybody_else_s_chance_alone() -> None:
    inputs, targets, factory = scenes((8, 10))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    recorded(factory, inputs, targets, replace(TRAINING, steps=1))
    assert torch.equal(torch.rand(3), expected)
