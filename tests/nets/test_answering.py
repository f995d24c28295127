"""The shape of an answer, without computing it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tutelage.nets import answering
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
@pytest.mark.parametrize("large", [0, 1 << 18])
def test_the_answer_s_shape(
    factory: Any, shape: tuple[int, ...], expected: Any, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "LARGE", large)
    assert answer(factory, shape) == expected


def test_nothing_is_computed_drawn_or_taken_away() -> None:
    huge = UNet(shape=(1, 512, 512, 512), widths=(8,))
    assert answer(huge, (1, 512, 512, 512)) == (1, 512, 512, 512)  # numbers would take 4 GiB a layer
    same, before = nn.Linear(2, 3), torch.get_rng_state()
    assert answer(lambda: same, (2,)) == (3,)
    assert same.weight.device.type == "cpu"
    assert same.training
    assert torch.equal(torch.get_rng_state(), before)


class Asked(nn.Module):
    """Note where it is asked, and answer there, or only where there are numbers."""

    def __init__(self, hangs_on_values: bool) -> None:
        super().__init__()
        self.places: list[str] = []
        self.hangs_on_values = hangs_on_values

    def __deepcopy__(self, memo: object) -> Asked:
        copied = Asked(self.hangs_on_values)
        copied.places = self.places
        return copied

    def forward(self, records: Tensor) -> Tensor:
        self.places.append(records.device.type)
        if self.hangs_on_values and float(records.sum()) > 0:
            return records
        return records[:, :1]


@pytest.mark.parametrize(
    ("large", "hangs", "places"), [(9, False, ["cpu"]), (7, False, ["meta"]), (7, True, ["meta", "cpu"]), (9, True, ["cpu"])]
)
def test_nothing_is_computed_to_see_the_shape_of_a_large_answer(
    large: int, hangs: bool, places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "LARGE", large)
    network = Asked(hangs)
    assert answering.blank(network, (2, 4)).shape == (1, 1, 4)
    assert network.places == places
