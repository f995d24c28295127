"""Answers spread over a graph of nearest neighbours (Zhou et al. 2004)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

STEPS = 60  # of the diffusion: 0.99⁶⁰ has lost half of what 0.99 would ever carry, and beyond that only noise travels


def spread(features: Tensor, answers: Tensor, classes: int, *, neighbours: int, diffusion: float) -> Tensor:
    """Give every record its share of each class: features (records, width), answers (records,) with -1 → (records, classes).

    Answers may be noisy shares (records, classes), not a number where there are none: spreading is linear, and noise averages
    out on the way.
    """
    count = len(features)
    width = min(neighbours, count - 1)
    features = F.normalize(features.float(), dim=1)
    near, likeness = [], []
    for block in features.split(1024):
        values, places = (block @ features.T).topk(width + 1, dim=1)
        near.append(places[:, 1:])  # the nearest is the record itself
        likeness.append(values[:, 1:])
    rows = torch.arange(count, device=features.device)[:, None].expand(-1, width).flatten()
    columns, weights = torch.cat(near).flatten(), torch.cat(likeness).flatten().clamp(min=0) ** 3
    source, target, weights = torch.cat([rows, columns]), torch.cat([columns, rows]), torch.cat([weights, weights])
    degree = torch.zeros(count, device=features.device).index_add_(0, source, weights).clamp(min=1e-12)
    weights = weights * (degree[source] * degree[target]).rsqrt()
    start = torch.zeros(count, classes, device=features.device)
    if answers.ndim == 2:
        known = ~answers[:, 0].isnan()
        start[known] = answers[known].float()
    else:
        known = answers >= 0
        start[known, answers[known]] = 1.0
    start = start / start.sum(dim=0).clamp(min=1)  # a class that was answered often must not flood the rest
    mass = start
    for _ in range(STEPS):
        flow = torch.zeros_like(mass).index_add_(0, target, weights[:, None] * mass[source])
        mass = diffusion * flow + (1 - diffusion) * start
    mass = mass.clamp(min=0)  # what is left of the noise below zero
    total = mass.sum(dim=1, keepdim=True)
    return torch.where(total > 0, mass / total.clamp(min=1e-30), torch.full_like(mass, 1 / classes))
