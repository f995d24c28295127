"""Arrays in files: .npz in MedMNIST's layout or with plain names, and folders of .npy. Nothing in a file is executed.

    clinic.npz     inputs, targets, and units where somebody has several records
    clinic/        inputs.npy, targets.npy, units.npy: mapped, and not read at once
    pathmnist.npz  train_images, train_labels (private), val_ (public pool), test_ (test)

Bytes of images become numbers in [0, 1], channels first. Labels are the declared names, or their numbers from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private, Public, UnitName
from tutelage.data.pixels import scale
from tutelage.data.schema import ArraySchema, class_names, places
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Roster, spelled

Array = npt.NDArray[Any]
Which = Literal["train", "val", "test"]
_NAMES = {
    "inputs": ("inputs", "images", "X", "x", "data"),
    "targets": ("targets", "labels", "y", "Y", "masks"),
    "units": ("units", "ids", "patients", "groups"),
}


def private_from_npz(
    path: Path | str,
    *,
    classes: Sequence[str] = (),
    unit: UnitName = "record",
    which: Which = "train",
    roster: Roster | None = None,
    part: Any = None,
) -> Private:
    """Read private records; without `units` in the file every row is a unit. `part` chooses rows by their ids alone."""
    found = _content(path, which)
    if "targets" not in found:
        raise DataError(f"`{Path(path).name}` must hold targets: teachers learn from them. Got none instead.")
    made = private_from_arrays(
        found["inputs"],
        found["targets"],
        classes=classes,
        units=found.get("units"),
        unit=unit,
        source=Path(path).name,
        roster=roster,
    )
    if part is None:
        return made
    own = part(made.units)
    return made[np.flatnonzero(own)] if "units" in found else replace(made, units=np.where(own, made.units, ""))


def public_from_npz(path: Path | str, *, classes: Sequence[str] = (), which: Which = "val", part: Any = None) -> Public:
    """Read public records, with targets where the file has them."""
    found = _content(path, which)
    inputs, targets = found["inputs"], found.get("targets")
    if part is not None:
        own = part(spelled(found.get("units", np.arange(len(inputs)))))
        inputs, targets = inputs[own], None if targets is None else targets[own]
    return public_from_arrays(inputs, targets, classes=classes, source=Path(path).name)


def private_from_arrays(
    inputs: Any,
    targets: Any,
    *,
    classes: Sequence[str] = (),
    units: Any = None,
    unit: UnitName = "record",
    source: str = "memory",
    roster: Roster | None = None,
) -> Private:
    """Wrap arrays or data frames. Labels that are words need their `classes`, which are public and never read off the data."""
    pixels = _pixels(inputs)
    labels = _labels(targets, classes)
    made = Private.of(pixels, labels, units=units, unit=unit, source=source, roster=roster)
    return replace(made, schema=ArraySchema(made.inputs.shape[1:], tuple(classes)))


def public_from_arrays(inputs: Any, targets: Any = None, *, classes: Sequence[str] = (), source: str = "memory") -> Public:
    """Wrap public arrays or data frames."""
    pixels = _pixels(inputs)
    labels = None if targets is None else _labels(targets, classes)
    if labels is not None and np.ndim(labels) == 1 and len(labels) and (np.asarray(labels) < 0).all():
        labels = None
    made = Public.of(pixels, labels, source=source)
    return replace(made, schema=ArraySchema(made.inputs.shape[1:], tuple(classes)))


def inputs(path: Path | str) -> Array:
    """Read the inputs of a file alone, as a model takes them."""
    path = Path(path)
    if path.suffix.lower() == ".npy":
        try:
            return np.asarray(_pixels(np.load(path, allow_pickle=False)))
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"`{path.name}` must be a readable .npy. Got {type(error).__name__} instead.") from None
    return np.asarray(_pixels(_content(path, "test")["inputs"]))


@final
@dataclass(frozen=True)
class Facts:
    """Say what a file of arrays holds, for its owner, who writes a recipe."""

    records: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    units: int | None
    labelled: bool


def facts(path: Path | str, which: Which) -> Facts:
    """Look at a file of arrays: how many records and units, and which labels."""
    found = _content(path, which)
    inputs, labels = np.asarray(_pixels(found["inputs"])), found.get("targets")
    names: tuple[str, ...] = ()
    if labels is not None and (labels.ndim == 1 or labels.shape[1:] == (1,)):
        words = [word for word in dict.fromkeys(spelled(labels.reshape(-1).tolist()).tolist()) if word]
        numbered = all(word.isdecimal() for word in words)
        names = (
            tuple(f"class {number}" for number in range(max(map(int, words)) + 1)) if numbered and words else tuple(sorted(words))
        )
    units = len(set(spelled(found["units"]).tolist())) if "units" in found else None
    return Facts(len(inputs), tuple(inputs.shape[1:]), names, units, labels is not None)


def _pixels(inputs: Any) -> Any:
    """Bring bytes of images to [0, 1] with channels first; everything else stays as it is."""
    array = inputs if isinstance(inputs, np.ndarray) else np.asarray(inputs.to_numpy()) if hasattr(inputs, "to_numpy") else inputs
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim < 3:
        return array
    if array.ndim == 3:
        return scale(array[:, None])
    last = array.ndim == 4 and array.shape[-1] in (1, 3) and array.shape[1] not in (1, 3)
    return scale(np.moveaxis(array, -1, 1) if last else array)


def _labels(targets: Any, classes: Sequence[str]) -> Any:
    array = np.asarray(targets.to_numpy()) if hasattr(targets, "to_numpy") else targets
    array = array if isinstance(array, np.ndarray) else np.fromiter(array, dtype=object, count=len(array))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]  # as MedMNIST writes them
    if array.ndim != 1:
        return array
    if not classes:
        if array.dtype.kind in "SU":
            raise RecipeError(
                "`classes` must be declared where labels are words: a list of names read off private labels would be a release. "
                "Got none instead."
            )
        return array
    names = class_names(classes)
    numbered = array.dtype.kind in "biuf" and not all(one.lstrip("+-").isdecimal() for one in spelled(list(names)).tolist())
    return array if numbered else places(array.tolist(), names, -1)


def _content(path: Path | str, which: Which) -> dict[str, Array]:
    path = Path(path)
    try:
        if path.is_dir():
            named = {file.stem: file for file in sorted(path.glob("*.npy"))}
            return _chosen({name: np.load(file, mmap_mode="r", allow_pickle=False) for name, file in named.items()}, which)
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            if not hasattr(content, "files"):
                raise DataError(
                    f"`{path.name}` must be .npz, or a folder with inputs.npy and targets.npy. Got one array instead."
                )
            wanted = [name for names in _NAMES.values() for name in names] + [f"{which}_images", f"{which}_labels"]
            return _chosen({name: content[name] for name in content.files if name in wanted}, which)
    except DataError:
        raise
    except Exception as error:  # zip, zlib, numpy and the file system each raise their own, some quoting content
        raise DataError(f"`{path.name}` must be a readable .npz. Got {type(error).__name__} instead.") from None


def _chosen(found: dict[str, Array], which: Which) -> dict[str, Array]:
    if f"{which}_images" in found:
        found = {
            "inputs": found[f"{which}_images"],
            **({"targets": found[f"{which}_labels"]} if f"{which}_labels" in found else {}),
        }
        return found
    chosen = {role: found[name] for role, names in _NAMES.items() for name in names[::-1] if name in found}
    if "inputs" not in chosen:
        raise DataError(
            f"the file must hold `inputs` (or {', '.join(_NAMES['inputs'][1:])}), or MedMNIST's names. Got others instead."
        )
    return chosen
