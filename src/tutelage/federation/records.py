"""A hospital's records, as they lie in its own folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tutelage.data.dataset import Private
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.files import reading


def read_records(folder: Path, classes: int) -> Private:
    """Read `records.npz` with `inputs`, `targets` and `patients`: whose record each is. Others must not be able to read it."""
    path = folder / "records.npz"
    if not path.is_file():
        raise RecipeError(f"`data` must be a folder with records.npz. Got {folder.name!r} without instead.")
    if path.stat().st_mode & 0o077:
        raise RecipeError("`data` must be readable by its owner alone: chmod 600. Got wider rights on records.npz instead.")
    with reading(path, "data"), np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if missing := {"inputs", "targets", "patients"} - set(arrays):
        raise DataError(f"`data` must hold inputs, targets and patients. Got none of {sorted(missing)[0]!r} instead.")
    private = Private.of(arrays["inputs"], arrays["targets"], units=arrays["patients"], unit="patient", source="hospital")
    return private if private.targets.ndim > 1 else private.labelled(classes)
