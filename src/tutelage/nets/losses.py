"""How wrong a network is about labels, or about masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def measure(scores: Tensor, targets: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Choose by what the targets are: whole numbers (int64) are labels, anything else is masks."""
    if targets.dtype == torch.int64:
        return F.cross_entropy(scores, targets, label_smoothing=smoothing)
    return dice_and_entropy(scores, targets)


def dice_and_entropy(logits: Tensor, masks: Tensor) -> Tensor:
    """Add soft Dice, image by image, to binary cross-entropy: one sees small objects, the other every pixel.

    logits (batch, 1, *space), masks (batch, *space) of zeros and ones or of shares in [0, 1] → one number.
    """
    logits = logits.squeeze(1)
    masks = masks.to(logits.dtype)
    given, wanted = logits.sigmoid().flatten(1), masks.flatten(1)  # (batch, pixels)
    # One pixel more above and below: an image without the object, and a network that finds none, agree.
    dice = (2 * (given * wanted).sum(1) + 1) / (given.sum(1) + wanted.sum(1) + 1)
    return (1 - dice).mean() + F.binary_cross_entropy_with_logits(logits, masks)
