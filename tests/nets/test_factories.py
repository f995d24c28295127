"""A factory of networks builds new ones: teachers that shared weights would learn from each other's records."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tutelage.nets.networks import checked  # noqa: E402
from tutelage.privacy.errors import RecipeError  # noqa: E402
from tutelage.teachers.ensemble import Ensemble  # noqa: E402


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))


ONE = net()
HEAD = nn.Linear(4, 2)
SHARED = {"the same network": lambda: ONE, "a shared layer": lambda: nn.Sequential(nn.Flatten(), HEAD)}


@pytest.mark.parametrize("factory", SHARED.values(), ids=SHARED)
def test_weights_that_are_handed_out_twice_are_refused(factory) -> None:
    with pytest.raises(RecipeError, match="must build a new network at every call, with weights of its own"):
        checked(factory)
    with pytest.raises(RecipeError, match="must build a new network at every call"):
        Ensemble.fit(factory, torch.rand(4, 4), [0, 1, 0, 1], [[0, 1], [2, 3]], device="cpu")


def test_networks_that_begin_alike_are_their_own() -> None:
    def alike() -> nn.Module:
        made = net()
        made.load_state_dict(ONE.state_dict())
        return made

    assert checked(alike) is alike
