"""A released student, read back in whatever form it was stored: one interface for predicting, checking and exporting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from tutelage import estimators
from tutelage.data import schema
from tutelage.data.accepted import Accepted
from tutelage.data.schema import Schema
from tutelage.estimators import Fitted
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.runs import RunFolder

Array = npt.NDArray[Any]
Form = Literal["estimator", "network", "masks", "linear"]
ENDINGS = (".skops", ".safetensors", ".npz")


@final
@dataclass(frozen=True, eq=False, repr=False)
class Student:
    """Hold a model with what a raw record looks like. `accepted` says what the model takes after that."""

    form: Form
    model: Any
    accepted: Accepted | None
    schema: Schema | None
    count: int  # of classes; 1 where it draws masks
    release: Path

    @property
    def names(self) -> tuple[str, ...]:
        """Give the names of the classes: the declared ones, or their numbers."""
        own = self.schema.classes if self.schema is not None else ()
        return own or tuple(str(number) for number in range(self.count))

    @property
    def draws(self) -> bool:
        """Tell whether it answers with masks."""
        return self.form == "masks"

    def shares(self, inputs: Any) -> Array:
        """Give class probabilities (records, classes), or every pixel's share (records, *space)."""
        if self.form != "estimator":
            return np.asarray(self.model.probabilities(inputs), dtype=np.float64)
        labels = np.asarray(self.model.classes_, dtype=np.int64)
        has = hasattr(self.model.model, "predict_proba")
        own = np.asarray(self.model.predict_proba(inputs) if has else self.model.predict(inputs)[:, None] == labels)
        found = np.zeros((len(own), self.count))
        found[:, labels] = own
        return found

    def predict(self, inputs: Any) -> Array:
        """Give labels (records,), as numbers, or masks (records, *space)."""
        return np.asarray(self.model.predict(inputs))

    def __repr__(self) -> str:
        return f"Student({self.form}, {self.count} classes)"


def read(run: Path | str, *, device: str = "cpu") -> Student:
    """Read the student of a run folder, of a release alone, or of an export that holds one."""
    release = _release(Path(run))
    declared = release / "inputs.json"
    known = schema.parse(declared.read_text(encoding="utf-8")) if declared.is_file() else None
    files = [release / f"student{ending}" for ending in ENDINGS if (release / f"student{ending}").is_file()]
    if len(files) != 1:
        raise RecipeError(
            "`run` must hold one student that this package can read (student.skops, .safetensors or .npz). "
            f"Got {len(files)} instead."
        )
    return _read(files[0], known, device)


def _release(place: Path) -> Path:
    if (place / "guarantee.json").is_file() and not (place / "release").is_dir():
        return place
    return RunFolder(place).existing().release


def _read(file: Path, known: Schema | None, device: str) -> Student:
    named = len(known.classes) if known is not None else 0
    if file.suffix == ".skops":
        fitted = estimators.load(file)
        if not isinstance(fitted, Fitted):
            raise DataError("`student.skops` must be a model that a run stored. Got another one instead.")
        labels = np.asarray(fitted.classes_, dtype=np.int64)
        return Student("estimator", fitted, Accepted.read(fitted.accepted), known, max(named, int(labels.max()) + 1), file.parent)
    if file.suffix == ".npz":
        from tutelage.students.linear import LinearModel

        model = LinearModel.load(file, device=device)
        return Student("linear", model, model.accepted, known, int(model.weights.shape[1]), file.parent)
    return _network(file, known, device)


def _network(file: Path, known: Schema | None, device: str) -> Student:
    from tutelage.nets import masks, model
    from tutelage.nets.storage import read_tensors

    try:
        read_tensors(file, kind=masks.KIND, only=True)
    except DataError:
        own = model.Model.load(file, device=device)
        count = int(getattr(own.factory, "classes", 0)) or _outputs(own)
        return Student("network", own, own.accepted, known, count, file.parent)
    drawing = masks.MaskModel.load(file, device=device)
    return Student("masks", drawing, drawing.accepted, known, 1, file.parent)


def _outputs(own: Any) -> int:
    shape = own.accepted.shape if own.accepted is not None else None
    if shape is None:
        raise DataError("`student.safetensors` must say what it takes. Got an older form instead.")
    return int(own.probabilities(np.zeros((1, *shape), np.float32)).shape[1])
