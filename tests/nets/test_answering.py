"""The shape of an answer, without computing it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tutelage.nets.answering import answer
from tutelage.nets.networks import ConvNet
from tutelage.nets.unet import UNet


class Picky(nn.Module):
    """Looks at numbers, which a network without any cannot."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.sum()) == 0 else x[:, :0]


def two(x: Any = None) -> nn.Module:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return x, x

    return Two()


@pytest.mark.parametrize(
    ("factory", "shape", "expected"),
    [
        (UNet(shape=(1, 8, 8), widths=(8, 16)), (1, 8, 8), (1, 8, 8)),
        (UNet(shape=(1, 8, 8), widths=(8, 16)), (1, 1, 1), None),
        (UNet(shape=(1, 8, 8), widths=(8, 16)), (3, 8, 8), None),
        (ConvNet(classes=7), (1, 28, 28), (7,)),
        (lambda: nn.LazyLinear(4), (5,), (4,)),
        (lambda: nn.BatchNorm1d(5), (5,), (5,)),  # one record is enough where nothing is learned
        (Picky, (3,), (3,)),
        (two, (3,), None),
    ],
)
def test_the_answer_s_shape(factory: Any, shape: tuple[int, ...], expected: Any) -> None:
    assert answer(factory, shape) == expected


def test_nothing_is_computed_drawn_or_taken_away() -> None:
    huge = UNet(shape=(1, 512, 512, 512), widths=(8,))
    assert answer(huge, (1, 512, 512, 512)) == (1, 512, 512, 512)  # numbers would take 4 GiB a layer
    same, before = nn.Linear(2, 3), torch.get_rng_state()
    assert answer(lambda: same, (2,)) == (3,)
    assert same.weight.device.type == "cpu"
    assert same.training
    assert torch.equal(torch.get_rng_state(), before)
