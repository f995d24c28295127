"""Training that gives the same weights for the same seed on the same machine, and leaves torch's randomness as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, place: torch.device) -> Iterator[None]:
    """Let what torch draws hang on the seed alone, and what a GPU computes on nothing else."""
    with (
        torch.random.fork_rng(devices=[place] if place.type == "cuda" else []),
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True),
    ):
        torch.manual_seed(seed)
        yield
