"""Give features the same spread along every axis, measured on public images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.errors import DataError

if TYPE_CHECKING:  # what is held needs no torch
    from torch import Tensor

Array = npt.NDArray[Any]
_MORE = 100  # axes that are followed beside the wanted ones, so that the last of these are right as well
_TURNS = 4


@final
@dataclass(frozen=True)
class Whitening:
    """Hold a centre (width,), axes (width, d) and the spread along them (d,). What comes out has length 1."""

    centre: Array
    axes: Array
    spread: Array

    def __call__(self, features: Array, *, device: str = "cpu") -> Array:
        """Give whitened features (n, d) of length 1, row by row."""
        import torch

        turned = torch.as_tensor(self.axes / self.spread, dtype=torch.float32, device=device)
        shift = torch.as_tensor(self.centre, dtype=torch.float32, device=device) @ turned
        out = np.empty((len(features), len(self.spread)), dtype=np.float32)
        for start in range(0, len(features), 4000):
            rows = torch.as_tensor(np.asarray(features[start : start + 4000]), device=device).float() @ turned - shift
            out[start : start + len(rows)] = (rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-6)).cpu().numpy()
        return out

    def tapered(self, half: float) -> Whitening:
        """Let later axes count less: axis number `half` counts half as much as the first."""
        return Whitening(self.centre, self.axes, self.spread * (1 + np.arange(len(self.spread)) / half).astype(np.float32))


def whitening(features: Array, axes: int, *, device: str = "cpu", random_state: int = 0) -> Whitening:
    """Find the principal axes of public features (n, width) and the spread along them.

    Never of private ones: that would be a release.
    """
    import torch

    if features.ndim != 2 or not 1 <= axes <= min(features.shape):
        raise DataError(f"`axes` must be between 1 and {min(features.shape)}. Got {axes} instead.")
    rows = torch.as_tensor(np.asarray(features), device=device).float()
    centre = rows.mean(dim=0)
    rows = rows - centre
    values, found = leading(rows.T @ rows / len(rows), axes, random_state=random_state)
    return Whitening(centre.cpu().numpy(), found.cpu().numpy(), values.clamp_min(1e-9).sqrt().cpu().numpy())


def leading(scatter: Tensor, axes: int, *, random_state: int = 0) -> tuple[Tensor, Tensor]:
    """Find the largest eigenvalues (axes,) of a second moment (width, width), largest first, and their axes (width, axes).

    By a few turns of subspace iteration (Halko et al., 2011): the whole decomposition takes many times as long.
    """
    import torch

    wide = min(axes + _MORE, len(scatter))
    start = np.random.Generator(np.random.PCG64(random_state)).standard_normal((len(scatter), wide)).astype(np.float32)
    found = torch.as_tensor(start, device=scatter.device)
    for _ in range(_TURNS):
        found = torch.linalg.qr(scatter @ found)[0]
    values, turn = torch.linalg.eigh((found.T @ (scatter @ found)).double())
    return values.flip(0)[:axes].float(), found @ turn.flip(1)[:, :axes].float()
