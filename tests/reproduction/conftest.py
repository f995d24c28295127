"""A folder of volumes that is written once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

PEOPLE, SIDE = 24, 8


@pytest.fixture(scope="session")
def hippocampi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write both sides of everyone's hippocampus: 24 people, volumes of 8×8×8; brightness says who it is."""
    nibabel, root = pytest.importorskip("nibabel"), tmp_path_factory.mktemp("data")
    folder = root / "hippocampus"
    for part in ("imagesTr", "labelsTr"):
        (folder / part).mkdir(parents=True)
    for number in range(1, 2 * PEOPLE + 1):
        rng, person = np.random.default_rng(number), (number + 1) // 2
        volume = np.full((SIDE,) * 3, 100 + person, dtype=np.int16)
        mask = np.zeros((SIDE,) * 3, dtype=np.int16)
        low = rng.integers(1, 4, 3)
        mask[tuple(slice(start, start + 4) for start in low)] = 1
        volume[0, 0, 0] = 1  # normalised alone: this one voxel keeps a deviation, and its value tells nobody
        for part, values in (("imagesTr", volume), ("labelsTr", mask)):
            nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), folder / part / f"hippocampus_{number:03d}.nii.gz")
    return root
