"""Convolutions as matrix products: the same sums in an order that a GPU likes when many networks are stacked.

Stacked over K networks a convolution becomes one with K groups, which GPU libraries run group by group; the same sum written
as a product becomes one batched matrix product. Parameters keep the names and shapes of the layers that are replaced.
"""

from __future__ import annotations

import copy
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@final
class ProductConv2d(nn.Module):
    """Compute a convolution of images as one matrix product over patches."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = conv.weight, conv.bias
        self.kernel, self.stride, self.dilation = conv.kernel_size, conv.stride, conv.dilation
        self.margins = (0, 0, conv.padding[1], conv.padding[1], conv.padding[0], conv.padding[0])

    def forward(self, x: Tensor) -> Tensor:
        x = narrowed(x)  # before the patches are copied, not after
        x = F.pad(x.permute(0, 2, 3, 1), self.margins)  # (batch, height, width, channels)
        (kh, kw), (sh, sw), (dh, dw) = self.kernel, self.stride, self.dilation
        rows = (x.shape[1] - dh * (kh - 1) - 1) // sh + 1
        columns = (x.shape[2] - dw * (kw - 1) - 1) // sw + 1
        patches = torch.cat(
            [
                x[:, i * dh : i * dh + (rows - 1) * sh + 1 : sh, j * dw : j * dw + (columns - 1) * sw + 1 : sw]
                for i in range(kh)
                for j in range(kw)
            ],
            dim=-1,
        )  # (batch, rows, columns, kh·kw·channels)
        weight = self.weight.permute(2, 3, 1, 0).flatten(0, 2)  # (kh·kw·channels, out)
        out = patches.flatten(0, 2) @ weight
        if self.bias is not None:
            out = out + self.bias
        return out.unflatten(0, (x.shape[0], rows, columns)).permute(0, 3, 1, 2)


@final
class ProductConv3d(nn.Module):
    """Compute a convolution of volumes, of stride 1, as a few matrix products whose sum it is.

    All 27 neighbours side by side would be 27 times the volume, and be kept for the gradient. Here the neighbours along the
    last axis alone lie side by side (3 times the volume). With the padded volume written as one long row, a step along either
    other axis is a fixed step along that row: each of the 9 products reads a stretch of it, in place.
    """

    def __init__(self, conv: nn.Conv3d) -> None:
        super().__init__()
        self.weight, self.bias = conv.weight, conv.bias
        self.kernel, self.dilation, self.padding = conv.kernel_size, conv.dilation, conv.padding

    def forward(self, x: Tensor) -> Tensor:
        (kd, kh, kw), (dd, dh, dw), (pd, ph, pw) = self.kernel, self.dilation, self.padding
        x = F.pad(narrowed(x).permute(0, 2, 3, 4, 1), (0, 0, pw, pw, ph, ph, pd, pd))  # (batch, depth, height, width, channels)
        batch, depth, height, width, _ = x.shape
        columns = width - dw * (kw - 1)
        if kw > 1:
            x = torch.cat([x.narrow(3, j * dw, columns) for j in range(kw)], dim=-1)
        row = x.flatten(0, 3)  # (batch·depth·height·columns, kw·channels)
        weight = self.weight.permute(2, 3, 4, 1, 0).flatten(2, 3)  # (kd, kh, kw·channels, out)
        reach = ((kd - 1) * dd * height + (kh - 1) * dh) * columns  # the last product begins here
        length = len(row) - reach
        out = sum(
            row.narrow(0, (i * dd * height + j * dh) * columns, length) @ weight[i, j] for i in range(kd) for j in range(kh)
        )
        if self.bias is not None:
            out = out + self.bias.to(out.dtype)
        if reach:
            out = F.pad(out, (0, 0, 0, reach))
        out = out.unflatten(0, (batch, depth, height, columns))
        # What was summed across the end of a plane or of a volume is no neighbour's sum: cut off.
        out = out[:, : depth - dd * (kd - 1), : height - dh * (kh - 1)]
        return out.permute(0, 4, 1, 2, 3).contiguous()  # a stacked group norm takes volumes in no other order


def narrowed(x: Tensor) -> Tensor:
    """Cast to what autocast multiplies in, where it is on."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x


def as_products(module: nn.Module) -> nn.Module:
    """Copy a network with its plain convolutions written as matrix products; same parameters, same function."""
    module = copy.deepcopy(module)
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) not in (nn.Conv2d, nn.Conv3d):
                continue
            if child.groups != 1 or child.padding_mode != "zeros" or isinstance(child.padding, str):
                continue
            if type(child) is nn.Conv2d:
                setattr(parent, name, ProductConv2d(child))
            elif child.stride == (1, 1, 1):
                setattr(parent, name, ProductConv3d(child))
    return module
