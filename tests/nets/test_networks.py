"""Factories build what they describe, mixing layers are refused."""

import pytest
import torch
from torch import nn

from tutelage.nets.allconv import AllConv
from tutelage.nets.networks import ConvNet, Halve, Perceptron, ResidualNet, describe, refuse_batch_mixing, restore
from tutelage.privacy.errors import RecipeError

FACTORIES = [
    (ConvNet(), (1, 28, 28), 10),
    (ConvNet(shape=(3, 32, 32), classes=100, widths=(16, 32, 32), kernel=5, groups=0), (3, 32, 32), 100),
    (ResidualNet(shape=(3, 32, 32), classes=7, widths=(8, 16)), (3, 32, 32), 7),
    (AllConv(classes=7, widths=(8, 16)), (3, 32, 32), 7),
    (AllConv(shape=(1, 9, 12), classes=3, widths=(8, 8)), (1, 9, 12), 3),
    (Perceptron(features=12, classes=2, widths=(8, 8)), (12,), 2),
]


@pytest.mark.parametrize(("factory", "shape", "classes"), FACTORIES)
def test_a_factory_builds_and_survives_its_description(factory, shape, classes) -> None:
    network = factory()
    assert network(torch.rand(2, *shape)).shape == (2, classes)
    assert restore(describe(factory)) == factory
    refuse_batch_mixing(network)


def test_training_and_voting_halve_alike() -> None:
    for shape in ((2, 3, 9, 8), (2, 3, 5, 6, 7)):  # what is odd is dropped by both
        x = torch.rand(shape)
        assert torch.equal(Halve().train()(x), Halve().eval()(x))


def test_a_foreign_factory_is_named_but_not_rebuilt() -> None:
    with pytest.raises(RecipeError, match="`factory` must be given"):
        restore(describe(nn.Identity))


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm2d(4),
        nn.SyncBatchNorm(4),
        nn.LazyBatchNorm2d(),
        nn.InstanceNorm2d(4, track_running_stats=True),
    ],
)
def test_layers_that_mix_a_batch_are_refused_with_a_suggestion(layer: nn.Module) -> None:
    with pytest.raises(RecipeError, match=r"GroupNorm.*at 'inner\.1'"):
        refuse_batch_mixing(nn.ModuleDict({"inner": nn.Sequential(nn.ReLU(), layer)}))


def test_layers_that_do_not_are_let_in() -> None:
    allowed = nn.Sequential(nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.InstanceNorm2d(4), nn.Dropout())
    assert refuse_batch_mixing(allowed) is None


@pytest.mark.parametrize("wrong", [{"kernel": 2}, {"groups": 5}, {"widths": (8,) * 6}])
def test_networks_that_cannot_be_are_refused(wrong: dict) -> None:
    with pytest.raises(RecipeError, match="must"):
        ConvNet(**wrong)
