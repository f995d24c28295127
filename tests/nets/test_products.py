"""Convolutions as matrix products are the same function with the same gradients, alone and stacked."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from tutelage.nets.products import ProductConv3d, as_products

CONVS = [
    nn.Conv2d(3, 5, 3, padding=1),
    nn.Conv2d(3, 5, (3, 5), stride=2, padding=(1, 2), bias=False),
    nn.Conv2d(3, 5, 3, dilation=2, stride=(1, 3)),
    nn.Conv2d(3, 5, 1),
    nn.Conv3d(3, 5, 3, padding=1),
    nn.Conv3d(3, 5, (3, 1, 5), padding=(0, 2, 1), bias=False),
    nn.Conv3d(3, 5, (1, 3, 1), dilation=(1, 2, 1), padding=1),
    nn.Conv3d(3, 5, 1),
]


def images(conv: nn.Module) -> torch.Tensor:
    return torch.rand(4, 3, 11, 13) if isinstance(conv, nn.Conv2d) else torch.rand(2, 3, 5, 7, 6)


@pytest.mark.parametrize("conv", CONVS)
def test_products_are_the_same_function_with_the_same_gradients(conv: nn.Module) -> None:
    one, two = (images(conv).requires_grad_() for _ in range(2))
    two.data.copy_(one.data)
    plain, product = nn.Sequential(conv), as_products(nn.Sequential(conv))
    assert type(product[0]) not in (nn.Conv2d, nn.Conv3d)
    assert torch.allclose(plain(one), product(two), atol=1e-5)
    plain(one).square().sum().backward()
    product(two).square().sum().backward()
    assert torch.allclose(one.grad, two.grad, atol=1e-3)
    for (name, mine), (other, theirs) in zip(plain.named_parameters(), product.named_parameters(), strict=True):
        assert name == other
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-3)


@pytest.mark.parametrize("conv", CONVS)
def test_stacked_products_are_stacked_convolutions(conv: nn.Module) -> None:
    x = torch.stack([images(conv) for _ in range(3)])
    stack = {name: torch.rand(3, *parameter.shape) for name, parameter in conv.named_parameters()}
    product = as_products(nn.Sequential(conv))[0]

    def loss(module: nn.Module):
        return lambda parameters, x: functional_call(module, parameters, (x,)).square().mean()

    plain, other = (vmap(grad(loss(module)))(stack, x) for module in (conv, product))
    for name in stack:
        assert torch.allclose(plain[name], other[name], rtol=1e-3, atol=1e-3)


def test_a_volume_s_products_keep_three_copies_and_not_twenty_seven() -> None:
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.rand(1, 8, 16, 16, 16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        ProductConv3d(nn.Conv3d(8, 8, 3, padding=1))(x)
    assert sum(kept.values()) < 3 * 1.5 * x.numel() * 4  # the rim is the half


def test_products_are_multiplied_as_autocast_says() -> None:
    conv, x = nn.Conv3d(3, 8, 3, padding=1), torch.rand(1, 3, 4, 4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = ProductConv3d(conv)(x)
    assert narrow.dtype == torch.bfloat16
    assert torch.allclose(narrow.float(), conv(x), atol=0.05)


OTHERS = [
    nn.Conv2d(4, 4, 3, groups=2),
    nn.Conv2d(4, 4, 3, padding="same"),
    nn.Conv3d(4, 4, 3, stride=2),
    nn.Conv3d(4, 4, 3, groups=2),
]


@pytest.mark.parametrize("conv", OTHERS)
def test_other_convolutions_stay_as_they_are(conv: nn.Module) -> None:
    assert type(as_products(nn.Sequential(conv))[0]) is type(conv)
