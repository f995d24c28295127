"""A stack of teachers learns what each would have learned alone, whoever stands beside it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tutelage.nets.training import Stream, Training, distorted, train_one, train_stack
from tutelage.nets.warps import Warp
from tutelage.privacy.errors import RecipeError

CPU = torch.device("cpu")


def quiet(_: int) -> None:
    return None


def both(task, training: Training, *, products: bool, numbers: list[int]):
    inputs, targets = torch.from_numpy(task.inputs)[:, None], torch.from_numpy(task.targets)
    shards = [torch.from_numpy(task.shards[k]) for k in numbers]
    stack = train_stack(
        task.network, inputs, targets, shards, training=training, seed=3, teachers=numbers, tick=quiet,
        compiled=False, products=products,
    )  # fmt: skip
    alone = [
        train_one(task.network, inputs[s], targets[s], training=training, seed=3, teacher=k, tick=quiet)
        for k, s in zip(numbers, shards, strict=True)
    ]
    return stack, alone


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize(("optimizer", "rate", "tolerance"), [("sgd", 0.05, 1e-4), ("adam", 2e-3, 2e-3)])
def test_stacked_training_equals_sequential_training(task, products: bool, optimizer: str, rate: float, tolerance: float) -> None:
    training = replace(task.training, optimizer=optimizer, rate=rate)
    stack, alone = both(task, training, products=products, numbers=[0, 1, 2, 3])
    fresh = [Stream(3, k, CPU).build(task.network).state_dict() for k in range(4)]
    moved = 0.0
    for name, tensor in stack.items():
        for k, state in enumerate(alone):
            assert torch.allclose(tensor[k], state[name], atol=tolerance), (name, k)
            moved = max(moved, (state[name] - fresh[k][name]).abs().max().item())
    assert moved > 10 * tolerance  # or equality would say nothing


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_stacked_training_on_masks_equals_sequential_training(masks, products: bool, soft: bool) -> None:
    training = replace(masks.training, optimizer="sgd", rate=0.1)
    inputs, targets = torch.from_numpy(masks.inputs), torch.from_numpy(masks.targets)
    targets = 0.1 + 0.8 * targets.float() if soft else targets
    shards = [torch.from_numpy(shard) for shard in masks.shards]
    stack = train_stack(
        masks.network, inputs, targets, shards, training=training, seed=3, teachers=range(3), tick=quiet,
        compiled=False, products=products,
    )  # fmt: skip
    for k, shard in enumerate(shards):
        alone = train_one(masks.network, inputs[shard], targets[shard], training=training, seed=3, teacher=k, tick=quiet)
        fresh = Stream(3, k, CPU).build(masks.network).state_dict()
        assert all(torch.allclose(stack[name][k], alone[name], atol=1e-4) for name in stack)
        assert max((alone[name] - fresh[name]).abs().max() for name in stack) > 1e-2


def test_a_warp_bends_masks_with_their_images_and_leaves_labels_alone(masks) -> None:
    images, targets = torch.from_numpy(masks.targets[:6])[:, None].float(), torch.from_numpy(masks.targets[:6])
    bend = Warp(rotation=20, shift=2)
    draws = bend.draw(6, generator=torch.Generator().manual_seed(0))
    moved, wanted = distorted(bend, images, targets, draws)
    assert torch.allclose(moved[:, 0], wanted, atol=1e-6)
    assert not torch.equal(moved, images)
    moved, labels = distorted(bend, images, torch.arange(6), draws)
    assert torch.allclose(moved[:, 0], wanted, atol=1e-6)
    assert labels.tolist() == list(range(6))


def test_a_teacher_does_not_depend_on_its_neighbours(task) -> None:
    training = replace(task.training, optimizer="sgd", rate=0.05)
    together, _ = both(task, training, products=False, numbers=[0, 2, 3])
    apart, _ = both(task, training, products=False, numbers=[2])
    for name, tensor in apart.items():
        assert torch.allclose(tensor[0], together[name][1], atol=1e-4)


def test_teachers_differ_from_each_other(task) -> None:
    stack, _ = both(task, task.training, products=False, numbers=[0, 2])
    assert not torch.allclose(stack["1.weight"][0], stack["1.weight"][1], atol=1e-2)


def test_every_record_is_seen_once_each_time_around() -> None:
    order = Stream(0, 5, CPU).order(7, 30)
    assert order.shape == (30,)
    for start in (0, 7, 14, 21):
        assert sorted(order[start : start + 7].tolist()) == list(range(7))
    assert order[:7].tolist() != order[7:14].tolist()


def test_dropout_and_buffers_are_carried(task) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 10))
            self.register_buffer("scale", torch.tensor(2.0))

        def forward(self, x):
            return self.layers(x) * self.scale

    inputs, targets = torch.from_numpy(task.inputs)[:, None], torch.from_numpy(task.targets)
    shards = [torch.from_numpy(s) for s in task.shards[:2]]
    state = train_stack(
        Net, inputs, targets, shards, training=task.training, seed=0, teachers=[0, 1], tick=quiet, compiled=False, products=False
    )  # fmt: skip
    assert state["scale"].tolist() == [2.0, 2.0]
    assert state["layers.2.weight"].shape == (2, 10, 64)


def test_the_rate_climbs_and_then_falls_to_nothing() -> None:
    training = Training(steps=100, rate=1.0, warmup=0.1)
    rates = [training.rate_at(step) for step in range(100)]
    assert rates[0] < 0.2
    assert max(rates) == rates[9]
    assert rates[-1] < 0.001


@pytest.mark.parametrize(
    ("precision", "device", "has", "half"),
    [
        ("auto", "cuda", "avx2", True),
        ("auto", "cpu", "avx512_bf16", False),  # one recipe, the same networks on all CPUs
        ("bfloat16", "cuda", "avx2", True),
        ("bfloat16", "cpu", "avx512_bf16", True),
        ("bfloat16", "cpu", "amx_bf16", True),
        ("bfloat16", "cpu", "avx2", False),  # emulated, it would take fifty times as long
        ("float32", "cuda", "avx512_bf16", False),
        ("float32", "cpu", "avx512_bf16", False),
    ],
)
def test_products_are_narrow_where_hardware_makes_them_so(
    monkeypatch: pytest.MonkeyPatch, precision: str, device: str, has: str, half: bool
) -> None:
    known = torch.cpu.get_capabilities()
    assert known["architecture"] != "x86_64" or has in known  # as torch spells it
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {**dict.fromkeys(known, False), has: True})
    assert Training(precision=precision).half(torch.device(device)) is half


def test_a_cpu_learns_in_bfloat16_what_it_learns_in_float32(masks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})  # slower without, and no other numbers
    inputs, targets = torch.from_numpy(masks.inputs), torch.from_numpy(masks.targets)
    wide, narrow = (
        train_one(
            masks.network, inputs, targets, training=replace(masks.training, precision=precision, optimizer="sgd", rate=0.1),
            seed=3, teacher=0, tick=quiet,
        )
        for precision in ("float32", "bfloat16")
    )  # fmt: skip
    apart = max((wide[name] - narrow[name]).abs().max().item() for name in wide)
    assert 0 < apart < 0.05
    assert all(tensor.dtype == torch.float32 for tensor in narrow.values())  # weights stay wide
    training = replace(masks.training, precision="bfloat16", optimizer="sgd", rate=0.1)
    stacked = train_stack(
        masks.network, inputs, targets, [torch.arange(len(inputs))], training=training, seed=3, teachers=[0], tick=quiet,
        compiled=False, products=False,
    )  # fmt: skip
    assert all((stacked[name][0] - narrow[name]).abs().max() < 0.05 for name in narrow)


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"rate": 0}, {"optimizer": "adagrad"}, {"precision": "half"}, {"smoothing": 1.0}]
)
def test_impossible_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(RecipeError, match=f"`{next(iter(wrong))}` must be"):
        Training(**wrong)
