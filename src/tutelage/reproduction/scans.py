"""Volumes of patients for the papers' tables, and how patients are divided: BraTS as in 003, hippocampus in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private, Public
from tutelage.data.volumes import Volumes
from tutelage.privacy.units import Roster

Array = npt.NDArray[Any]
HIPPOCAMPUS, BRATS = Path("hippocampus"), Path("brats")
CROP, BRAIN = (32, 48, 32), (160, 192, 152)  # voxels that are kept about the middle; a head leaves the rest of BraTS' frame dark


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Scans:
    """Hold all volumes of a set, whose they are, and in which proportions its patients are divided."""

    name: str
    everyone: Public
    patients: Array  # (volumes,): who is in each; a patient may have several
    parts: tuple[int, int, int]  # private, public and test patients, as proportions
    norm: float | None = None  # of a mask, from the literature; without one a quantile of the public masks'
    thin: int = 1  # every so-many-th voxel of each axis was kept

    @classmethod
    def hippocampus(cls, folder: Path, *, thin: int = 1) -> Scans:
        """Read the Decathlon's Task04, every `thin`-th voxel of it: 260 volumes of 170 people, of whom 90 have both sides in."""
        norm = 58.0  # √(3.4 cm³ at 1 mm), which published studies give: no mask was looked at
        return _read("hippocampus", Volumes.decathlon(folder, size=CROP), thin, (200, 40, 20), norm)

    @classmethod
    def brats(cls, folder: Path, *, thin: int = 2) -> Scans:
        """Read a BraTS training folder, every `thin`-th voxel: 335 patients in full would be 48 GB. 003 had 248, 62 and 25."""
        return _read("brats", Volumes.brats(folder, size=BRAIN), thin, (248, 62, 25), None)

    def split(self, parts: Sequence[float], *, seed: int = 0) -> list[Array]:
        """Divide the patients, never the volumes of one, in these proportions: the volumes of each part, by their numbers."""
        names = np.unique(self.patients)
        order = np.random.default_rng(seed).permutation(len(names))
        ends = np.rint(np.cumsum(parts) * len(names) / sum(parts)).astype(int)
        return [np.flatnonzero(np.isin(self.patients, names[some])) for some in np.split(order, ends[:-1])]

    def block(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """Give a block of so many voxels of the scanner in voxels that were kept."""
        return tuple(max(1, side // self.thin) for side in sides)

    def divided(self, *, seed: int = 0) -> tuple[Private, Public, Public]:
        """Divide the patients into those who are private, who are asked about, and who are tested on."""
        inside, asked, tested = self.split(self.parts, seed=seed)
        every = self.everyone
        assert every.targets is not None
        own = self.patients[inside]
        private = Private.of(
            every.inputs[inside],
            every.targets[inside],
            units=own,
            unit="patient",
            source=every.source,
            roster=Roster.of(list(dict.fromkeys(own.tolist()))),  # the set is published, and so is the list of who is in it
        )
        return private, every[asked], every[tested]


def _read(name: str, volumes: Volumes, thin: int, parts: tuple[int, int, int], norm: float | None) -> Scans:
    """Read volumes one by one and keep every `thin`-th voxel of every axis, so that the whole is never held."""
    step = (slice(None, None, thin),) * 3
    pairs = [(image[(slice(None), *step)].copy(), mask[step].copy()) for image, mask in volumes.intact().read()]
    images, masks = (np.stack(some) for some in zip(*pairs, strict=True))
    everyone = Public.of(images, masks, source=f"{name}, every {thin}. voxel" if thin > 1 else name)
    return Scans(name=name, everyone=everyone, patients=volumes.patients, parts=parts, norm=norm, thin=thin)
