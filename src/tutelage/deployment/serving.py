"""Predict from raw files: tables to names of classes, images to names or masks, volumes to NIfTI with the input's affine."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data import schema as schemas
from tutelage.data.accepted import Accepted
from tutelage.data.schema import ImageSchema, Schema, TableSchema, VolumeSchema
from tutelage.deployment import exporting, samples, students
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Predictor:
    """Hold a model that leaves, whatever it runs on: a released student, or an exported file."""

    names: tuple[str, ...]
    draws: bool
    schema: Schema | None
    threshold: float
    _ask: Any  # raw records to shares
    accepted: Accepted | None = None
    draw: Any = None  # a volume (channels, x, y, z) to shares of its own size

    @classmethod
    def load(cls, place: Path | str, *, device: str = "cpu") -> Predictor:
        """Read a run folder, a release, an export, or a model.onnx alone."""
        path = Path(place)
        if path.is_dir() and (path / "model.onnx").is_file():
            path = path / "model.onnx"
        if path.suffix == ".onnx":
            return cls._onnx(path)
        student = students.read(path.parent if path.is_file() else path, device=device)
        threshold = float(student.model.threshold) if student.draws else 0.5

        def ask(raw: Any) -> Array:
            return student.shares(samples.encoded(student, raw))

        def draw(volume: Any) -> Array:
            from tutelage.deployment import boxes

            return np.asarray(boxes.whole(student, volume))

        return cls(student.names, student.draws, student.schema, threshold, ask, student.accepted, draw)

    @classmethod
    def _onnx(cls, path: Path) -> Predictor:
        if not path.is_file():
            raise DataError(f"`model` must be a file that exists. Got {path.name!r}, which does not, instead.")
        session = exporting.onnx_session(path)
        try:
            about = json.loads(session.get_modelmeta().custom_metadata_map[exporting.METADATA])
            plain = about["schema"]
            schema = None if plain is None else schemas.parse(json.dumps({"version": 1, **plain}))
        except (KeyError, ValueError):
            raise DataError(f"`{path.name}` must be a model that `tutelage export` wrote. Got another one instead.") from None
        inputs = {one.name: one.type for one in session.get_inputs()}
        wanted = "shares" if about["draws"] else "probabilities"

        def ask(raw: Any) -> Array:
            feeds = samples.feeds(schema, raw) if isinstance(schema, TableSchema) else {"inputs": _typed(raw, inputs["inputs"])}
            return np.asarray(session.run([wanted], feeds)[0])

        def draw(volume: Any) -> Array:
            return np.asarray(session.run(["shares"], {"volume": np.asarray(volume, np.float32)})[0])

        return cls(tuple(about["names"]), bool(about["draws"]), schema, float(about.get("threshold", 0.5)), ask, None, draw)

    def shares(self, raw: Any) -> Array:
        """Give class probabilities (records, classes), or every pixel's share, of cells by their column or of arrays."""
        return np.asarray(self._ask(raw))

    def predict_proba(self, raw: Any) -> Array:
        """Give class probabilities (records, classes), under the name that scikit-learn has for them."""
        return self.shares(raw)

    def predict(self, raw: Any) -> Array:
        """Give the names of classes (records,), or masks (records, *space)."""
        found = self.shares(raw)
        if self.draws:
            return (found > self.threshold).astype(np.uint8)
        return np.asarray(self.names, dtype=object)[found.argmax(axis=1)]


def _typed(raw: Any, kind: str) -> Array:
    array = np.asarray(raw)
    if "uint8" in kind and array.dtype != np.uint8:
        array = np.rint(np.clip(array, 0, 1) * 255)
    return np.ascontiguousarray(array, dtype=np.uint8 if "uint8" in kind else np.float32)


def load(place: Path | str, *, device: str = "cpu") -> Predictor:
    """Load a model that may leave: a run folder, a release, an export, or a model.onnx alone."""
    return Predictor.load(place, device=device)


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def predict(model: Predictor, files: Sequence[Path], out: Path | None) -> tuple[str | None, tuple[Path, ...]]:
    """Predict for files. Give a table as text where it was not written to `out`, and the files that were written."""
    if isinstance(model.schema, VolumeSchema):
        from tutelage.deployment import volumes

        return None, volumes.predict(model, model.schema, files, _folder(out))
    if model.draws:
        from tutelage.deployment import images

        return None, images.masks(model, files, _folder(out))
    if isinstance(model.schema, TableSchema):
        text = _written(_table(model, model.schema, files))
    elif isinstance(model.schema, ImageSchema):
        from tutelage.deployment import images

        text = _written(_rows(model, ("file",), images.read(model.schema, files)))
    else:
        text = _written(_rows(model, ("file", "row"), _arrays(files)))
    if out is None:
        return text, ()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    return None, (out,)


def _folder(out: Path | None) -> Path:
    if out is None or out.is_file():
        raise RecipeError("`out` must be a folder where a model draws masks: --out FOLDER. Got none instead.")
    out.mkdir(parents=True, exist_ok=True)
    return out


def _table(model: Predictor, schema: TableSchema, files: Sequence[Path]) -> Iterable[Sequence[Any]]:
    from tutelage.data import tables

    several, head = len(files) > 1, False
    for file in files:
        cells = tables.read(file, separator=separator(file))
        tables.check_header(cells, schema, label=False)
        own: Mapping[str, list[Any]] = cells.columns
        shares = model.shares(own) if cells.rows else np.zeros((0, len(model.names)))
        ids = own.get(schema.id) if schema.id is not None else None
        if not head:
            yield [*(["file"] if several else []), schema.id if ids is not None else "row", *_headings(model)]
            head = True
        for row, share in enumerate(shares):
            whose = ids[row] if ids is not None else row + 1
            yield [*([file.name] if several else []), whose, *_answer(model, share)]


def separator(file: Path) -> str:
    """Take the separator that a table's header has most of."""
    if file.suffix.lower() in (".parquet", ".pq"):
        return ","
    try:
        with file.open("rb") as stream:
            header = stream.readline().decode("utf-8", "replace")
    except OSError as error:
        raise DataError(f"`files` must be readable. Got «{error.strerror}» for {file.name} instead.") from None
    return max((",", ";", "\t", "|"), key=header.count)


def _rows(model: Predictor, head: Sequence[str], records: Iterable[tuple[Sequence[Any], Array]]) -> Iterable[Sequence[Any]]:
    yield [*head, *_headings(model)]
    for names, record in records:
        yield [*names, *_answer(model, model.shares(record[None])[0])]


def _headings(model: Predictor) -> list[str]:
    return ["label", *(f"p({name})" for name in model.names)]


def _answer(model: Predictor, share: Array) -> list[Any]:
    return [model.names[int(share.argmax())], *(f"{value:.6f}" for value in share)]


def _arrays(files: Sequence[Path]) -> Iterable[tuple[Sequence[Any], Array]]:
    from tutelage.data import arrays

    for file in files:
        inputs = arrays.inputs(file)
        for row, record in enumerate(inputs):
            yield (file.name, row), record


def _written(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
