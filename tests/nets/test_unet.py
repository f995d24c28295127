"""A U-Net draws masks of images and volumes of any size, and names the few parameters that a student may free."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from tutelage.nets.networks import describe, refuse_batch_mixing, restore
from tutelage.nets.unet import UNet, free_parameters
from tutelage.privacy.errors import RecipeError

SMALL = {"widths": (4, 8), "groups": 2}


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 13, 9), (2, 8, 12, 8), (1, 7, 9, 5)])
def test_one_logit_per_pixel_also_where_sizes_are_odd(shape: tuple[int, ...]) -> None:
    factory = UNet(shape=shape, **SMALL)
    network = factory()
    refuse_batch_mixing(network)
    assert network(torch.rand(2, *shape)).shape == (2, 1, *shape[1:])
    assert UNet(shape=shape, outputs=3, **SMALL)()(torch.rand(2, *shape)).shape == (2, 3, *shape[1:])
    assert restore(describe(factory)) == factory


def test_training_and_voting_are_the_same_function() -> None:
    network, x = UNet(shape=(1, 9, 11, 8), **SMALL)(), torch.rand(2, 1, 9, 11, 8)
    assert torch.allclose(network.train()(x), network.eval()(x), atol=1e-6)


@pytest.mark.parametrize(("which", "count"), [("head", 17), ("norms", 657), ("last", 27_729), ("all", 353_601)])
def test_a_student_may_free_a_few_parameters(which: str, count: int) -> None:
    network = UNet(shape=(1, 32, 48, 32))()
    sizes = {name: parameter.numel() for name, parameter in network.named_parameters()}
    assert sum(sizes[name] for name in free_parameters(network, which)) == count


def test_what_is_freed_moves_and_the_rest_does_not() -> None:
    network = UNet(shape=(1, 8, 8), widths=(4, 8, 8), groups=2)()
    assert free_parameters(network, "head") == ["head.weight", "head.bias"]
    assert all("norm" in name or "head" in name for name in free_parameters(network, "norms"))
    assert {name.split(".")[0] + name.split(".")[1] for name in free_parameters(network, "last")[:6]} == {"ups1"}
    with pytest.raises(RecipeError, match="`which` must be"):
        free_parameters(network, "first")
    with pytest.raises(RecipeError, match="`network` must be"):
        free_parameters(nn.Linear(2, 2), "head")


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 4, 6, 4)])
def test_stacked_gradients_are_each_network_s_own(shape: tuple[int, ...]) -> None:
    networks, images = [UNet(shape=shape, **SMALL)() for _ in range(3)], torch.rand(3, 2, *shape)
    states = [dict(network.named_parameters()) for network in networks]
    stack = {name: torch.stack([state[name].detach() for state in states]) for name in states[0]}

    def loss(parameters: dict, x: torch.Tensor) -> torch.Tensor:
        return functional_call(networks[0], parameters, (x,)).square().mean()

    together = vmap(grad(loss))(stack, images)
    networks[1](images[1]).square().mean().backward()
    for name, parameter in networks[1].named_parameters():
        assert torch.allclose(together[name][1], parameter.grad, atol=1e-4)


@pytest.mark.parametrize("wrong", [{"shape": (1, 8)}, {"groups": 5}, {"widths": (8,) * 8}, {"widths": ()}, {"outputs": 0}])
def test_networks_that_cannot_be_are_refused(wrong: dict) -> None:
    with pytest.raises(RecipeError, match="must"):
        UNet(**wrong)
