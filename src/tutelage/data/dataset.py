"""The two kinds of data: what may not leave, and what may."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, final

import numpy as np

from tutelage.data import cleaning
from tutelage.data.accepted import Accepted
from tutelage.data.labels import read, whole
from tutelage.data.mapped import forget
from tutelage.privacy.errors import DataError, RecipeError, Unsealed
from tutelage.privacy.units import Roster, Shards, Unit, spelled

if TYPE_CHECKING:
    from pathlib import Path

    from tutelage.data.schema import Schema, TableSchema

UnitName = Literal["record", "patient", "institution"]
_BYTES = 1 << 24  # hashed at a time
_NOBODY, _STRANGERS = "records without an id, in no shard", "records that are not on the roster, in no shard"
_UNLABELLED = "records whose label is no class, in no shard"


@final
@dataclass(frozen=True, repr=False, eq=False)
class Private:
    """Hold records that only teachers may learn from, each with the unit (record, patient, institution) it belongs to.

    Records are cleaned one by one with public constants (cleaning.py), so that none decides whether anything is released; what
    was cleaned is counted in `notes`, which are private. It prints sizes and these counts, for its owner's own terminal, and it
    cannot be pickled: a worker process is handed arrays by code that means it.
    """

    inputs: np.ndarray  # (records, ...)
    targets: np.ndarray  # (records, ...)
    units: np.ndarray  # (records,) ids; equal ids are one person or institution, an empty one is nobody
    unit: UnitName = "record"
    source: str = "memory"
    roster: Roster | None = None  # public; without one the number of units is private
    notes: Mapping[str, int] = field(default_factory=dict)  # private: what was cleaned, and how often
    schema: Schema | None = None  # public: what a raw record looks like, as it was declared

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", _array(self.inputs, "inputs"))
        object.__setattr__(self, "targets", _array(self.targets, "targets", labels=True))
        if not len(self.inputs) == len(self.targets) == len(self.units):
            raise DataError(
                "`inputs`, `targets` and `units` must have one entry per record. "
                f"Got {len(self.inputs)}, {len(self.targets)} and {len(self.units)} instead."
            )
        object.__setattr__(self, "targets", read(self.targets))
        Unit(self.unit)  # refuses what a budget could not be about
        ids = spelled(self.units)
        found = Counter(self.notes)
        cleaned = {"inputs": cleaning.inputs(self.inputs, found), "targets": cleaning.targets(self.targets, found), "units": ids}
        found[_NOBODY] = int((ids == "").sum()) - found[_UNLABELLED]
        if self.roster is not None:
            found[_STRANGERS] = int(((self.roster.find(ids) < 0) & (ids != "")).sum())
        notes = MappingProxyType({what: count for what, count in found.items() if count > 0})
        for name, value in {**cleaned, "notes": notes}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(
        cls,
        inputs: Any,
        targets: Any,
        *,
        units: Any = None,
        unit: UnitName = "record",
        source: str = "memory",
        roster: Roster | None = None,
    ) -> Private:
        """Wrap arrays. Without `units` every row is a unit, and the rows are the roster: a removed record leaves a blank.

        `inputs` and masks are NumPy arrays or data frames, whose type and shape are public; a list is refused, because its
        type follows from its rows. Tables become 64-bit floats, cell by cell. Labels and units may be lists.
        A `roster` is a public list of ids that was fixed before the data was collected, never one that is read off it.
        """
        inputs, targets = _array(inputs, "inputs"), _array(targets, "targets", labels=True)
        _check_masks(inputs, targets)
        if units is None and roster is not None:
            raise RecipeError("`units` must be given where `roster` is: whose row is whose. Got the roster alone instead.")
        if units is None:
            return cls(inputs, targets, np.arange(len(inputs)), unit, source, Roster.places(max(1, len(inputs))))
        return cls(inputs, targets, spelled(units), unit, source, roster)

    # ── readers: one file or folder of a public format each ───────────────────────────────────────────────────────────

    @classmethod
    def from_arrays(cls, inputs: Any, targets: Any, **choices: Any) -> Private:
        """Wrap arrays or data frames; words as labels need their `classes` (arrays.private_from_arrays)."""
        return _reader("arrays", "private_from_arrays")(inputs, targets, **choices)

    @classmethod
    def from_npz(cls, path: Path | str, **choices: Any) -> Private:
        """Read a .npz, MedMNIST's or with plain names, or a folder of .npy (arrays.private_from_npz)."""
        return _reader("arrays", "private_from_npz")(path, **choices)

    @classmethod
    def from_csv(cls, path: Path | str, schema: TableSchema, **choices: Any) -> Private:
        """Read a table whose columns are declared (tables.private_from_table)."""
        return _reader("tables", "private_from_table")(path, schema, **choices)

    from_parquet = from_csv

    @classmethod
    def from_folder(cls, directory: Path | str, **choices: Any) -> Private:
        """Read images in class folders (folders.private_from_folder)."""
        return _reader("folders", "private_from_folder")(directory, **choices)

    @classmethod
    def from_pairs(cls, directory: Path | str, **choices: Any) -> Private:
        """Read images with masks of the same names, images/ and masks/ (pairs.private_from_pairs)."""
        return _reader("pairs", "private_from_pairs")(directory, **choices)

    @classmethod
    def from_nifti(cls, directory: Path | str, **choices: Any) -> Private:
        """Read volumes with masks, imagesTr/ and labelsTr/ (scans.private_from_nifti)."""
        return _reader("scans", "private_from_nifti")(directory, **choices)

    @classmethod
    def from_dicom(cls, directory: Path | str, **choices: Any) -> Private:
        """Read DICOM series with masks (scans.private_from_dicom)."""
        return _reader("scans", "private_from_dicom")(directory, **choices)

    def labelled(self, classes: int) -> Private:
        """Leave out the records whose label is no whole number from 0 to `classes` − 1: they stay in no shard, with label 0."""
        if self.targets.ndim != 1:
            got = f"rows of shape {self.targets.shape[1:]}"
            raise DataError(f"`targets` must be one number per record (0, 1, 2, ...) where teachers vote. Got {got} instead.")
        known = (self.targets >= 0) & (self.targets < classes)
        notes = Counter(self.notes) + Counter({_UNLABELLED: int((~known & (self.units != "")).sum())})
        targets, units = np.where(known, self.targets, 0), np.where(known, self.units, "")
        return replace(self, targets=targets, units=units, notes=notes)

    def including(self, canaries: Any, inside: Any) -> Private:
        """Add the canaries (see tutelage.audits.canaries) that are inside: one truth value for each of their ids, in order.

        Where there is a roster, all of them have a place on it, inside or not: without one of them it is a neighbour.
        """
        ids, chosen = canaries.ids, np.asarray(inside, dtype=bool)
        if chosen.shape != ids.shape:
            raise RecipeError(f"`inside` must be one truth value per canary, {len(ids)}. Got shape {chosen.shape} instead.")
        known = self.units if self.roster is None else np.concatenate([self.units, self.roster.ids])
        if np.isin(ids, known).any():
            raise RecipeError("`canaries` must have ids that no record and no place on the roster has. Got one of these instead.")
        rows = np.isin(canaries.units, ids[chosen])
        roster = None if self.roster is None else Roster.of(np.concatenate([self.roster.ids, ids]))
        inputs = np.concatenate([self.inputs, np.asarray(canaries.inputs)[rows].astype(self.inputs.dtype)])
        targets = np.concatenate([self.targets, np.asarray(canaries.targets)[rows].astype(self.targets.dtype)])
        units = np.concatenate([self.units, canaries.units[rows]])
        return Private(inputs, targets, units, self.unit, self.source, roster, self.notes)

    @property
    def places(self) -> int | None:
        """Give the public number of places on the roster. None without one: then the number of units is private."""
        return None if self.roster is None else len(self.roster)

    def split(self, shards: int, *, seed: int = 0) -> Shards:
        """Divide the units, never the records of one unit, into disjoint shards: by the roster, or by a hash of each id."""
        if self.roster is None:
            return Shards.hashed(self.units, shards, key=str(seed))
        return Shards.placed(self.units, self.roster, shards, key=str(seed))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Any) -> Private:
        chosen = self.inputs[index], self.targets[index], self.units[index]
        return Private(*chosen, self.unit, self.source, self.roster, schema=self.schema)

    def __repr__(self) -> str:
        cleaned = "".join(f"; {count} {what}" for what, count in self.notes.items())
        people = len(np.unique(self.units[self.units != ""]))
        return f"Private({len(self)} records of {people} units, unit={self.unit!r}{cleaned})"

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
    schema: Schema | None = field(default=None, compare=False)  # what a raw record looks like, for a model that leaves

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
        if inputs.ndim <= 2:
            inputs = cleaning.inputs(inputs, Counter())  # as private tables: a gap has to mean the same in both
        elif holed := int(_holed(inputs).sum()):
            raise DataError(f"`inputs` must be finite numbers where records are images. Got {holed} with others instead.")
        return cls(inputs, targets, source)

    # ── readers: one file or folder of a public format each ───────────────────────────────────────────────────────────

    @classmethod
    def from_arrays(cls, inputs: Any, targets: Any = None, **choices: Any) -> Public:
        """Wrap arrays or data frames (arrays.public_from_arrays)."""
        return _reader("arrays", "public_from_arrays")(inputs, targets, **choices)

    @classmethod
    def from_npz(cls, path: Path | str, **choices: Any) -> Public:
        """Read a .npz, MedMNIST's or with plain names, or a folder of .npy (arrays.public_from_npz)."""
        return _reader("arrays", "public_from_npz")(path, **choices)

    @classmethod
    def from_csv(cls, path: Path | str, schema: TableSchema, **choices: Any) -> Public:
        """Read a table whose columns are declared (tables.public_from_table)."""
        return _reader("tables", "public_from_table")(path, schema, **choices)

    from_parquet = from_csv

    @classmethod
    def from_folder(cls, directory: Path | str, **choices: Any) -> Public:
        """Read images, in class folders or without labels (folders.public_from_folder)."""
        return _reader("folders", "public_from_folder")(directory, **choices)

    @classmethod
    def from_pairs(cls, directory: Path | str, **choices: Any) -> Public:
        """Read images, with masks of the same names or without (pairs.public_from_pairs)."""
        return _reader("pairs", "public_from_pairs")(directory, **choices)

    @classmethod
    def from_nifti(cls, directory: Path | str, **choices: Any) -> Public:
        """Read volumes, with masks or without (scans.public_from_nifti)."""
        return _reader("scans", "public_from_nifti")(directory, **choices)

    @classmethod
    def from_dicom(cls, directory: Path | str, **choices: Any) -> Public:
        """Read DICOM series, with masks or without (scans.public_from_dicom)."""
        return _reader("scans", "public_from_dicom")(directory, **choices)

    def unlabelled(self) -> Public:
        """Drop the targets: what a student is given."""
        return Public(self.inputs, None, self.source, self.sha256, self.accepted, self.schema)

    def takes(self) -> Accepted:
        """Say which inputs a model takes that learned from these."""
        return self.accepted or Accepted.of(self.inputs)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Any) -> Public:
        targets = None if self.targets is None else self.targets[index]
        return Public(self.inputs[index], targets, self.source, accepted=self.accepted, schema=self.schema)

    def __repr__(self) -> str:
        return f"Public({len(self)} records from {self.source!r}, sha256 {self.sha256[:12]})"


def _reader(module: str, name: str) -> Any:
    """Find a reader: each builds what is defined here, so that none of them can be imported first."""
    return getattr(import_module(f"tutelage.data.{module}"), name)


def _array(values: Any, name: str, *, labels: bool = False) -> np.ndarray:
    """Take an array or a data frame. A list is one of labels or nothing: one row would decide its type, or whether it has one."""
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    if hasattr(values, "__array__"):
        return np.asarray(values)
    if labels and isinstance(values, (list, tuple, range)):
        return np.fromiter(values, dtype=object, count=len(values))  # a label that is a list is one label, and no class
    hint = "; masks and shares, too" if labels else ""
    raise DataError(
        f"`{name}` must be a NumPy array or have `to_numpy`: the type of a list follows from its rows{hint}. "
        f"Got {type(values).__name__} instead."
    )


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
    """Mark the images (records,) that hold what is no finite number."""
    holed = np.zeros(len(inputs), dtype=bool)
    if inputs.dtype.kind != "f":
        return holed[:0]
    step = max(1, _BYTES * len(holed) // max(1, inputs.nbytes))
    for start in range(0, len(holed), step):
        part = inputs[start : start + step]
        holed[start : start + step] = ~np.isfinite(part).reshape(len(part), -1).all(axis=1)
        forget(inputs)
    return holed


def _hashed(inputs: np.ndarray) -> str:
    """Hash the bytes of all rows, some at a time: inputs may be mapped from a file that is larger than memory."""
    state, rows = hashlib.sha256(), np.atleast_1d(inputs)
    step = max(1, _BYTES * len(rows) // max(1, rows.nbytes))
    for start in range(0, len(rows), step):
        state.update(np.ascontiguousarray(rows[start : start + step]).tobytes())
        forget(rows)
    return state.hexdigest()
