"""A network of images that looks at volumes, slice by slice."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn


@final
class Slices(nn.Module):
    """Show a network every slice along the last axis: (batch, channels, *plane, depth) → logits (batch, 1, *plane, depth).

    Slices do not know of each other, and their volume's come as one batch.
    """

    def __init__(self, plane: nn.Module) -> None:
        super().__init__()
        self.plane = plane

    def forward(self, volumes: Tensor) -> Tensor:
        """Cut, look, and put together."""
        batch, depth = volumes.shape[0], volumes.shape[-1]
        flat = volumes.movedim(-1, 1).reshape(batch * depth, volumes.shape[1], *volumes.shape[2:-1])
        logits: Tensor = self.plane(flat)
        return logits.reshape(batch, depth, *logits.shape[1:]).movedim(1, -1)
