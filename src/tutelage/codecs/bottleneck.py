"""The network of an autoencoder: strided convolutions to a few bounded numbers, and back. What `autoencoder` trains and runs."""

from __future__ import annotations

import math
from typing import Literal, final, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Literal["tanh", "clip", "ball"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)


def bounded(values: Tensor, *, activation: Activation, norm: float) -> Tensor:
    """Squash values (..., numbers) into the cube [−1, 1]^dim, the ball of radius `norm`, or the unit ball (Eq. 5 of `ball.py`).

    'ball' takes one number more than it gives: the first sets the distance from the centre.
    """
    if activation == "tanh":
        return values.tanh()
    if activation == "clip":
        return values / (values.norm(dim=-1, keepdim=True) / norm).clamp_min(1.0)
    first, rest = values[..., :1], values[..., 1:]
    # sigmoid(x) ** (1 / dim) has an infinite slope where it rounds to nothing; its logarithm has none
    length = (F.logsigmoid(math.sqrt(8 / math.pi) * first) / rest.shape[-1]).exp()
    return rest / rest.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny) * length


def default_widths(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Halve until the longest side is at most 4: 16, 32, then 64 channels."""
    return tuple(16 << min(level, 2) for level in range(max(1, math.ceil(math.log2(max(shape) / 4)))))


@final
class Coder(nn.Module):
    """Encode masks (batch, *shape), flat or in space, to numbers (batch, dim), and decode those to logits (batch, *shape).

    Sides that do not halve evenly are padded with nothing and cut again. Full-size features are never made: the first layer
    halves a mask at once and the last one doubles straight into the logits, so a volume costs a few times its own size.
    """

    def __init__(self, shape: tuple[int, ...], *, dim: int, activation: Activation, norm: float, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.dim, self.activation, self.norm = shape, dim, activation, norm
        flat = len(shape) == 2
        halve, double = (nn.Conv2d, nn.ConvTranspose2d) if flat else (nn.Conv3d, nn.ConvTranspose3d)
        factor = 1 << len(widths)
        base = tuple(-(-size // factor) for size in shape)
        # F.pad counts from the last axis: (before, after) of each
        self.margins = [edge for small, size in zip(base[::-1], shape[::-1], strict=True) for edge in (0, small * factor - size)]
        inside = widths[-1] * math.prod(base)
        layers: list[nn.Module] = []
        for channels, width in zip((1, *widths), widths, strict=False):
            layers += [halve(channels, width, 3, stride=2, padding=1), _norm(width), nn.ReLU()]
        self.encoder = nn.Sequential(*layers, nn.Flatten(), nn.Linear(inside, dim + (activation == "ball")))
        layers = [nn.Linear(dim, inside), nn.Unflatten(1, (widths[-1], *base)), _norm(widths[-1]), nn.ReLU()]
        for channels, width in zip(widths[::-1], widths[-2::-1], strict=False):
            layers += [double(channels, width, 4, stride=2, padding=1), _norm(width), nn.ReLU()]
        self.decoder = nn.Sequential(*layers, double(widths[0], 1, 4, stride=2, padding=1))

    def encode(self, masks: Tensor) -> Tensor:
        """Give what the activation is to bound, (batch, dim), or (batch, dim + 1) for 'ball'."""
        return self.encoder(F.pad(masks.reshape(-1, 1, *self.shape), self.margins))

    def bounded(self, values: Tensor) -> Tensor:
        """Give codes (batch, dim) inside the bound."""
        return bounded(values, activation=self.activation, norm=self.norm)

    def decode(self, codes: Tensor) -> Tensor:
        """Give logits (batch, *shape)."""
        logits = self.decoder(codes)[:, 0]
        return logits[(slice(None), *(slice(size) for size in self.shape))]


def _norm(width: int) -> nn.Module:
    """Normalise each mask by itself: a batch norm would let one teacher's mask depend on another's.

    A group holds at least two channels. A channel alone in its group looks the same at full strength and at a hundredth of it,
    and a teacher that is hardly sure would be encoded as one that is; two have biases to be measured against.
    """
    return nn.GroupNorm(1 if width % 2 else math.gcd(8, width // 2), width)
