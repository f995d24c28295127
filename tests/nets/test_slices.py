"""Volumes slice by slice: each slice gets what it would get alone."""

import torch
from torch import nn

from tutelage.nets.slices import Slices


def test_every_slice_is_looked_at_on_its_own_and_put_back() -> None:
    torch.manual_seed(0)
    plane = nn.Conv2d(2, 1, 3, padding=1)
    volumes = torch.rand(3, 2, 5, 7, 4)
    with torch.no_grad():
        found = Slices(plane)(volumes)
        alone = torch.stack([plane(volumes[..., depth]) for depth in range(4)], dim=-1)
    assert found.shape == (3, 1, 5, 7, 4)
    assert torch.allclose(found, alone, atol=1e-6)


def test_stacked_networks_see_slices_too() -> None:
    torch.manual_seed(0)
    networks = [Slices(nn.Conv2d(1, 1, 3, padding=1)) for _ in range(2)]
    volumes = torch.rand(2, 3, 1, 6, 6, 5)
    params, _ = torch.func.stack_module_state(networks)  # type: ignore[arg-type]
    with torch.no_grad():
        together = torch.vmap(lambda some, shown: torch.func.functional_call(networks[0], some, (shown,)))(params, volumes)
        alone = torch.stack([network(some) for network, some in zip(networks, volumes, strict=True)])
    assert torch.allclose(together, alone, atol=1e-5)
