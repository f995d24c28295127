"""Gradients by one backward pass: the same as one by one, and no unit in another's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from tutelage.baselines.backprops import backward_gradients, convolved, sampled, sampler  # noqa: E402
from tutelage.baselines.gradients import built, trainable, unit_gradients  # noqa: E402
from tutelage.nets.networks import ConvNet, Perceptron, ResidualNet  # noqa: E402
from tutelage.nets.unet import UNet  # noqa: E402

CPU = torch.device("cpu")
NET = UNet(shape=(1, 6, 4, 4), widths=(2, 4), groups=2)


class Mixing(torch.nn.Module):
    """A stranger's layer: everyone's mean is taken off."""

    def forward(self, x: Any) -> Any:
        return x - x.mean(dim=0, keepdim=True)


def mixed() -> Any:
    return torch.nn.Sequential(torch.nn.Flatten(), Mixing(), torch.nn.Linear(64, 3))


def seen(shape: tuple[int, ...], *, masks: bool, seed: int = 0) -> tuple[Any, Any]:
    """Three units with two views each."""
    chance = torch.Generator().manual_seed(seed)
    images = torch.rand(3, 2, *shape, generator=chance)
    return images, (images[:, :, 0] > 0.5).float() if masks else torch.randint(0, 3, (3, 2), generator=chance)


@pytest.mark.parametrize(
    "factory",
    [
        UNet(shape=(1, 8, 8), widths=(4, 8), groups=2),
        NET,
        ConvNet(shape=(1, 8, 8), classes=3, widths=(4,), groups=2, hidden=8),
        ResidualNet(shape=(1, 8, 8), classes=3, widths=(4, 8), groups=2),
        Perceptron(features=64, classes=3, widths=(8,)),
    ],
)
def test_they_are_those_of_one_unit_at_a_time(factory: Any) -> None:
    network, shape = built(factory, seed=0, device=CPU), getattr(factory, "shape", (1, 8, 8))
    images, targets = seen(shape, masks=isinstance(factory, UNet))
    assert sampled(network)
    ours = backward_gradients(network, trainable(network), images, targets)
    slow = unit_gradients(network, trainable(network), images, targets, shared=True)
    assert ours.keys() == slow.keys()
    for name, slope in slow.items():
        torch.testing.assert_close(ours[name], slope, rtol=1e-3, atol=1e-5)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_weights_that_are_held_fast_get_none() -> None:
    network = built(NET, seed=0, device=CPU)
    network.head.weight.requires_grad_(False)
    found = backward_gradients(network, trainable(network), *seen(NET.shape, masks=True))
    assert found.keys() == dict(trainable(network)).keys()
    assert "head.weight" not in found


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
def test_what_one_unit_breaks_reaches_no_other(poison: float) -> None:
    network = built(NET, seed=0, device=CPU)
    images, targets = seen(NET.shape, masks=True)
    before = backward_gradients(network, trainable(network), images, targets)
    images[1] = poison
    after = backward_gradients(network, trainable(network), images, targets)
    for name, slope in after.items():
        assert torch.isfinite(slope).all()
        assert torch.equal(slope[[0, 2]], before[name][[0, 2]])


CONVOLUTIONS = [
    torch.nn.Conv2d(1, 16, 3, padding=1),
    torch.nn.Conv2d(12, 4, 3, padding=1, bias=False),
    torch.nn.Conv2d(6, 4, (3, 2), padding=(0, 1), stride=2, groups=2),
    torch.nn.Conv2d(3, 5, 3, dilation=2, padding=2),
    torch.nn.Conv3d(1, 4, 3, padding=1, bias=False),
    torch.nn.Conv3d(12, 4, 3, padding=1),
    torch.nn.Conv3d(16, 1, 1),
    torch.nn.Conv3d(4, 6, 3, stride=2, padding=1, groups=2),
]


def passed(layer: Any, *, records: int = 3) -> tuple[Any, Any]:
    """What a layer saw, and what it was blamed for."""
    chance, space = torch.Generator().manual_seed(0), (7, 6, 5)[: len(layer.kernel_size)]
    given = torch.randn(records, layer.in_channels, *space, generator=chance)
    return given, torch.randn(layer(given).shape, generator=chance)


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=str)
def test_a_group_per_record_gives_what_opacus_gives(layer: Any) -> None:
    from opacus.grad_sample import GradSampleModule

    given, slopes = passed(layer)
    assert sampler(layer, CPU) is convolved
    ours, theirs = (way(layer, [given], slopes) for way in (convolved, GradSampleModule.GRAD_SAMPLERS[type(layer)]))
    assert ours.keys() == theirs.keys() == set(layer.parameters())
    for weight, rows in theirs.items():
        torch.testing.assert_close(ours[weight], rows, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
def test_a_group_reaches_no_other(layer: Any, poison: float) -> None:
    """Kernels fill groups up to the width of their registers: were those shared, a zero times a NaN would be one, too."""
    given, slopes = passed(layer)
    before = convolved(layer, [given], slopes)
    given[1] = slopes[1] = poison
    after = convolved(layer, [given], slopes)
    for weight, rows in before.items():
        assert torch.equal(after[weight][[0, 2]], rows[[0, 2]])
        assert not torch.equal(after[weight][1], rows[1])


def test_padding_that_is_a_word_is_left_to_opacus() -> None:
    layer = torch.nn.Conv2d(1, 2, 3, padding="same")
    assert sampler(layer, CPU) is not convolved
    assert set(sampler(layer, CPU)(layer, [torch.ones(2, 1, 4, 4)], torch.ones(2, 2, 4, 4))) == set(layer.parameters())


def test_a_layer_that_might_mix_units_is_not_let_in() -> None:
    network = built(mixed, seed=0, device=CPU)
    assert not sampled(network)
    images, targets = seen((1, 8, 8), masks=False)
    before = backward_gradients(network, trainable(network), images, targets)  # the twin that asks nobody
    images[1] += 1
    after = backward_gradients(network, trainable(network), images, targets)
    assert not torch.equal(after["2.weight"][0], before["2.weight"][0])


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"),
        torch.nn.Flatten(0),
        torch.nn.BatchNorm2d(1),
        torch.nn.LSTM(2, 2),
    ],
)
def test_what_opacus_would_get_wrong_goes_one_by_one(layer: Any) -> None:
    assert not sampled(torch.nn.Sequential(layer))


def test_weights_that_two_layers_share_go_one_by_one() -> None:
    one, two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    two.weight = one.weight
    assert not sampled(torch.nn.Sequential(one, two))


def test_a_layer_that_overwrites_what_the_one_before_gave_is_not_let_in() -> None:
    def small(inplace: bool) -> Any:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4), torch.nn.ReLU(inplace), torch.nn.Linear(4, 3))

    assert sampled(small(inplace=False))
    assert not sampled(small(inplace=True))
