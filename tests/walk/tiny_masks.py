"""A whole run about masks in half a second: ellipses of 16×16, five teachers, twenty questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.students.blobs import CODEC, NETWORK, QUICK, blobs

import tutelage as tt
from tutelage.students.masks import MaskStudent

TEACHERS, QUESTIONS, POOL = 5, 20, 24


def mask_run(out: Path, *, public_targets: bool = True, pool: int = POOL, **choices: Any) -> tt.Outcome:
    """Take the walk with `choices` passed to `transfer`."""
    inputs, targets = blobs(30, 0)
    asked, truth = blobs(pool, 1)
    rest, answers = blobs(9, 2)
    settings: dict[str, Any] = {
        "teachers": Painters(),
        "student": lambda: MaskStudent(NETWORK, training=QUICK, device="cpu"),
        "codec": CODEC,
        "budget": tt.Budget(8.0, 1e-5),
        "shards": TEACHERS,
        "queries": QUESTIONS,
        "test": tt.Public.of(rest, answers),
        "purpose": "tiny masks",
        **choices,
    }
    public = tt.Public.of(asked, truth if public_targets else None)
    return tt.transfer(tt.Private.of(inputs, targets), public, out=out, **settings)


class Painters:
    """Teachers that take what is bright for the object, each with a stain that it has from its own private shard."""

    def fit(self, private: tt.Private, shards: tt.Shards, *, progress: Any = None) -> Painters:
        parts = [private[shards[k]] for k in range(len(shards))]
        self.stains = np.stack([part.inputs.mean(axis=(0, 1)) for part in parts])  # (teachers, 16, 16)
        return self

    def paint(self, inputs: np.ndarray) -> np.ndarray:
        """Give masks (teachers, inputs, 16, 16), unsealed: for tests alone."""
        return np.clip(inputs[None, :, 0] + 0.3 * self.stains[:, None], 0, 1).astype(np.float32)

    def vote(self, inputs: np.ndarray) -> tt.Sealed:
        return tt.Sealed(self.paint(inputs))
