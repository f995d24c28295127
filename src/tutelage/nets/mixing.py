"""Blend images with others: what lies between classes, for a labeller to be asked about."""

from __future__ import annotations

import torch
from torch import Tensor


def mixed(images: Tensor, shares: Tensor, much: float = 0.5) -> tuple[Tensor, Tensor]:
    """Blend a part of the images (n, c, h, w), and their shares (n, classes), with others: half of these by a straight cut.

    Randomness is torch's own: seed it outside.
    """
    count, side, place = len(images), images.shape[-1], images.device
    other = torch.randperm(count, device=place)
    blended = torch.rand(count, device=place) * (torch.rand(count, device=place) < much)
    across = torch.arange(side, device=place)[None, :] < (blended * side)[:, None]
    cut = across[:, None, None, :].to(images.dtype)
    upright = torch.rand(count, device=place) < 0.5
    cut = torch.where(upright[:, None, None, None], cut, cut.transpose(2, 3))
    by_cut = torch.rand(count, device=place) < 0.5
    weight = torch.where(by_cut[:, None, None, None], cut, blended[:, None, None, None].expand_as(cut))
    part = (across.sum(1) / side * by_cut + blended * ~by_cut)[:, None]
    return images * (1 - weight) + images[other] * weight, shares * (1 - part) + shares[other] * part
