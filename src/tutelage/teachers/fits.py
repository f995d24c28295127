"""Identify a fit by all that its weights depend on, so that a file of another one is not taken for its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from tutelage.nets.networks import describe
from tutelage.nets.pieces import Pieces, Source
from tutelage.teachers.engines import Job

LIKE = 1e-4  # of the largest number in a tensor: sums differ by a fiftieth of it from CPU to CPU
LOOKED_AT = 64  # numbers of each tensor


@final
@dataclass(frozen=True)
class Fit:
    """Identify a fit by digests, and by its network's first weights and what it computes, which a network's name does not tell.

    The digests are exact. The numbers are compared up to `LIKE`: another CPU, or another number of threads, sums in another
    order, and a run may go on there.
    """

    settings: str  # a digest of what is public
    digest: str  # of the same, and of records and shards
    begins: tuple[tuple[float, ...], ...]  # some numbers of every tensor, the last of what it makes of an image of noise

    @classmethod
    def of(cls, job: Job, records: Source, targets: Source, shards: tuple[Tensor, ...]) -> Fit:
        """Digest settings, seed, records and shards, and try the network."""
        settings = {
            "network": describe(job.factory),
            "training": asdict(job.training),
            "seed": job.seed,
            "module": str(job.factory()),
            "teachers": len(shards),
        }
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        public = digest.hexdigest()
        for tensor in (records, targets, *shards):
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            for part in tensor.each() if isinstance(tensor, Pieces) else (tensor,):
                digest.update(part.contiguous().numpy())  # read where it lies: half a million images are gigabytes
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(job.seed)
            network, shown = job.factory().eval(), torch.rand(1, *records.shape[1:])
            begins = tuple(_some(tensor) for tensor in (*network.state_dict().values(), network(shown)))
        return cls(public, digest.hexdigest(), begins)

    @property
    def metadata(self) -> dict[str, str]:
        """Give what a file's metadata hold of it."""
        return {"settings": self.settings, "fingerprint": self.digest, "begins": json.dumps(self.begins)}

    def asked(self, metadata: Mapping[str, str]) -> bool:
        """Tell whether a file with these metadata is of a fit with these settings, whatever it learned from."""
        if metadata.get("settings") != self.settings:
            return False
        found = json.loads(metadata.get("begins", "[]"))
        return len(found) == len(self.begins) and all(map(_alike, found, self.begins))

    def wrote(self, metadata: Mapping[str, str]) -> bool:
        """Tell whether a file with these metadata is of this fit."""
        return self.asked(metadata) and metadata.get("fingerprint") == self.digest


def _some(tensor: Tensor) -> tuple[float, ...]:
    """Take numbers from all over a tensor."""
    flat = tensor.detach().flatten()
    places = torch.linspace(0, len(flat) - 1, min(LOOKED_AT, len(flat)), dtype=torch.float64).round().long()
    return tuple(float(f"{value:.6g}") for value in flat[places].double().tolist())


def _alike(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Compare numbers with the largest of them in mind: beside it, those near zero are rounding."""
    mine, theirs = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
    return mine.shape == theirs.shape and bool(np.allclose(mine, theirs, rtol=0.0, atol=LIKE * largest, equal_nan=True))
