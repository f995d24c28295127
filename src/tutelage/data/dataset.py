"""The two kinds of data: what may not leave, and what may."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, final

import numpy as np

from tutelage.data.accepted import Accepted
from tutelage.data.labels import whole
from tutelage.data.mapped import forget
from tutelage.privacy.errors import DataError, Unsealed
from tutelage.privacy.units import Shards, Unit

UnitName = Literal["record", "patient", "institution"]
_BYTES = 1 << 24  # hashed at a time
_NOBODY = "`units` must have an id for every record. Got records without one instead."


@final
@dataclass(frozen=True, repr=False, eq=False)
class Private:
    """Hold records that only teachers may learn from, each with the unit (record, patient, institution) it belongs to.

    It prints its size and nothing else, and it cannot be pickled: a worker process is handed arrays by code that means it.
    """

    inputs: np.ndarray  # (records, ...)
    targets: np.ndarray  # (records, ...)
    units: np.ndarray  # (records,) ids; equal ids are one person or institution
    unit: UnitName = "record"
    source: str = "memory"
    notes: Mapping[str, int] = field(default_factory=dict)  # private: what was cleaned or left out, and how often

    def __post_init__(self) -> None:
        if not len(self.inputs) == len(self.targets) == len(self.units):
            raise DataError(
                "`inputs`, `targets` and `units` must have one entry per record. "
                f"Got {len(self.inputs)}, {len(self.targets)} and {len(self.units)} instead."
            )
        object.__setattr__(self, "targets", whole(self.targets))
        Unit(self.unit)  # refuses what a budget could not be about
        _check_ids(np.asarray(self.units))

    @classmethod
    def of(cls, inputs: Any, targets: Any, *, units: Any = None, unit: UnitName = "record", source: str = "memory") -> Private:
        """Wrap arrays; without `units` every record is its own unit."""
        inputs, targets = np.asarray(inputs), np.asarray(targets)
        _check_masks(inputs, targets)
        if _holed(inputs).any():
            raise DataError("`inputs` must be finite numbers where records are images. Got others instead (withheld).")
        return cls(inputs, targets, np.arange(len(inputs)) if units is None else _ids(units), unit, source)

    def split(self, shards: int, *, seed: int = 0) -> Shards:
        """Divide the units, never the records of one unit, into disjoint shards."""
        return Shards.split(self.units, shards, seed=seed)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Any) -> Private:
        return Private(self.inputs[index], self.targets[index], self.units[index], self.unit, self.source)

    def __repr__(self) -> str:
        return f"Private({len(self)} records of {len(np.unique(self.units))} units, unit={self.unit!r})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Unsealed("`Private` must stay in the process that read it. Got a request to pickle it instead.")


@final
@dataclass(frozen=True, repr=False, eq=False)
class Public:
    """Hold records anyone may see. Codecs, scalers and students are fitted on these and on released answers alone.

    `targets`, where they exist, serve evaluation and the public-only control; a student never reads them.
    """

    inputs: np.ndarray  # (records, ...)
    targets: np.ndarray | None = None
    source: str = "memory"
    sha256: str = field(default="", compare=False)
    accepted: Accepted | None = field(default=None, compare=False)  # where a model is to take other inputs than these

    def __post_init__(self) -> None:
        if self.targets is not None and len(self.inputs) != len(self.targets):
            raise DataError(
                f"`targets` must have one entry per record. Got {len(self.targets)} for {len(self.inputs)} records instead."
            )
        if self.targets is not None:
            object.__setattr__(self, "targets", whole(self.targets))
        if not self.sha256:
            object.__setattr__(self, "sha256", _hashed(np.asarray(self.inputs)))

    @classmethod
    def of(cls, inputs: Any, targets: Any = None, *, source: str = "memory") -> Public:
        """Wrap arrays."""
        inputs, targets = np.asarray(inputs), None if targets is None else np.asarray(targets)
        if targets is not None:
            _check_masks(inputs, targets)
        if holed := int(_holed(inputs).sum()):
            raise DataError(f"`inputs` must be finite numbers where records are images. Got {holed} with others instead.")
        return cls(inputs, targets, source)

    def unlabelled(self) -> Public:
        """Drop the targets: what a student is given."""
        return Public(self.inputs, None, self.source, self.sha256, self.accepted)

    def takes(self) -> Accepted:
        """Say which inputs a model takes that learned from these."""
        return self.accepted or Accepted.of(self.inputs)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Any) -> Public:
        return Public(
            self.inputs[index], None if self.targets is None else self.targets[index], self.source, accepted=self.accepted
        )

    def __repr__(self) -> str:
        return f"Public({len(self)} records from {self.source!r}, sha256 {self.sha256[:12]})"


def _check_masks(inputs: np.ndarray, targets: np.ndarray) -> None:
    """Refuse masks (records, *space) of another size than their images, whose channels come first, last or not at all.

    Targets of one number or one row per record are no masks, nor are images told from tables that stand in for them.
    """
    if targets.ndim < 3 or inputs.ndim not in (targets.ndim, targets.ndim + 1):
        return
    space, image = targets.shape[1:], inputs.shape[1:]
    several = targets.ndim == inputs.ndim > 3 and space[1:] == image[1:]  # masks, or images, with channels of their own
    if space not in (image, image[1:], image[:-1]) and not several:
        raise DataError(f"`targets` must be masks of their images' size, of shape {image}. Got masks of shape {space} instead.")


def _holed(inputs: np.ndarray) -> np.ndarray:
    """Mark the images (records,) that hold what is no finite number; tables may have gaps, which trees can read."""
    holed = np.zeros(len(inputs) if inputs.ndim > 2 else 0, dtype=bool)
    if inputs.dtype.kind != "f":
        return holed[:0]
    step = max(1, _BYTES * len(holed) // max(1, inputs.nbytes))
    for start in range(0, len(holed), step):
        part = inputs[start : start + step]
        holed[start : start + step] = ~np.isfinite(part).reshape(len(part), -1).all(axis=1)
        forget(inputs)
    return holed


def _ids(units: Any) -> np.ndarray:
    """Give ids as an array. A list is looked through first: NumPy writes what is missing among strings as "nan"."""
    if isinstance(units, (list, tuple)) and any(_is_nobody(one) for one in units):
        raise DataError(_NOBODY)
    return np.asarray(units)


def _check_ids(units: np.ndarray) -> None:
    """Refuse a record that is nobody's: if it is somebody's who has others, they would not be kept together."""
    if units.ndim != 1:
        raise DataError(f"`units` must be one id per record. Got shape {units.shape} instead.")
    if units.dtype.kind in "fcmM":
        nobody = bool(np.isnat(units).any() if units.dtype.kind in "mM" else np.isnan(units).any())
    elif units.dtype.kind in "US":
        nobody = bool((np.char.str_len(np.char.strip(units)) == 0).any())
    elif units.dtype.kind == "O":
        nobody = any(_is_nobody(one) for one in units)
        if not nobody and len({type(one) for one in units}) > 1:  # 7 and "7" may be one person
            raise DataError("`units` must be ids of one kind. Got several instead.")
    else:
        nobody = False
    if nobody:
        raise DataError(_NOBODY)
    if units.dtype.kind in "USO":
        _check_spelling({one for one in units.tolist() if isinstance(one, (str, bytes))})


def _check_spelling(names: set[str | bytes]) -> None:
    """Refuse names that differ in spaces at their ends or in how an accent is written: one person would count as two."""
    plain = {name.strip() if isinstance(name, bytes) else unicodedata.normalize("NFC", name).strip() for name in names}
    if len(plain) < len(names):
        raise DataError(
            "`units` must be spelled alike wherever they are the same. Got ids that differ in spaces or accents instead."
        )


def _is_nobody(one: Any) -> bool:
    """Tell a missing id: nothing, blank, or what is not equal to itself (not a number, not a time, pandas' NA)."""
    if one is None or (isinstance(one, str) and not one.strip()):
        return True
    try:
        return not bool(one == one)
    except (TypeError, ValueError):
        return True


def _hashed(inputs: np.ndarray) -> str:
    """Hash the bytes of all rows, some at a time: inputs may be mapped from a file that is larger than memory."""
    state, rows = hashlib.sha256(), np.atleast_1d(inputs)
    step = max(1, _BYTES * len(rows) // max(1, rows.nbytes))
    for start in range(0, len(rows), step):
        state.update(np.ascontiguousarray(rows[start : start + step]).tobytes())
        forget(rows)
    return state.hexdigest()
