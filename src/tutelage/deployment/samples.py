"""Public raw records to check an exported model on: those that the release shows, and rows made of what was declared."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.data.schema import Category, TableSchema
from tutelage.deployment.graphs import input_name
from tutelage.deployment.students import Student

Array = npt.NDArray[Any]
_MADE = 200


def raw(student: Student) -> Any:
    """Give raw records: cells by their column, or arrays as files would give them."""
    shown = _shown(student)
    if isinstance(student.schema, TableSchema):
        cells = made(student.schema, _MADE)
        if shown is not None:
            for name, column in student.schema.decode(shown).items():
                cells[name] = [*column, *cells[name]]
        return cells
    assert student.accepted is not None
    if shown is None or shown.shape[1:] != student.accepted.shape:
        return _drawn(student)
    return np.rint(shown * 255).astype(np.uint8) if student.accepted.scaled else shown.astype(np.float32)


def made(schema: TableSchema, rows: int) -> dict[str, list[Any]]:
    """Make rows of the declared columns alone: every category, numbers in and out of range, unknown words and gaps."""
    cells: dict[str, list[Any]] = {}
    for place, column in enumerate(schema.columns):
        steps = [(row * (2 * place + 3) + place) % 97 for row in range(rows)]
        if isinstance(column, Category):
            words = [*column.categories, None]
            cells[column.name] = [words[step % len(words)] for step in steps]
        else:
            wide = column.high - column.low
            cells[column.name] = [None if step == 96 else column.low + wide * (step / 80 - 0.1) for step in steps]
    return cells


def encoded(student: Student, given: Any) -> Array:
    """Bring raw records to what the student takes."""
    if isinstance(student.schema, TableSchema):
        return student.schema.encode(given).astype(np.float64)
    return np.asarray(given)


def fed(student: Student, given: Any) -> dict[str, Array]:
    """Bring raw records to the inputs of an exported model."""
    if not isinstance(student.schema, TableSchema):
        scaled = student.accepted is not None and student.accepted.scaled
        return {"inputs": np.ascontiguousarray(given, dtype=np.uint8 if scaled else np.float32)}
    return feeds(student.schema, given)


def feeds(schema: TableSchema, cells: Any) -> dict[str, Array]:
    """Give cells as the columns of an exported model: declared words as they were declared, numbers, NaN where there is none."""
    from tutelage.data.schema import number, places

    found: dict[str, Array] = {}
    for column in schema.columns:
        own = cells[column.name]
        if isinstance(column, Category):
            words = np.array([*column.categories, column.unknown], dtype=object)
            found[input_name(column.name)] = words[places(own, column.categories, len(column.categories))][:, None]
        else:
            found[input_name(column.name)] = np.fromiter(map(number, own), np.float64, len(own))[:, None]
    return found


def _shown(student: Student) -> Array | None:
    path = student.release / "samples.npz"
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        found = file["inputs"] if "inputs" in file else file.get("images", None)
    return None if found is None or not len(found) else np.asarray(found)


def _drawn(student: Student) -> Array:
    """Draw smooth inputs in the range of the pool, where the release shows none."""
    accepted = student.accepted
    assert accepted is not None
    count = int(np.prod(accepted.shape))
    waves = np.sin(np.outer(np.arange(1, 9), np.linspace(0, 40, count))) * 0.5 + 0.5
    if accepted.scaled:
        return np.rint(waves * 255).astype(np.uint8).reshape(8, *accepted.shape)
    low, high = (end if np.isfinite(end) else float(side) for end, side in ((accepted.low, 0), (accepted.high, 1)))
    return (low + (high - low) * waves).astype(np.float32).reshape(8, *accepted.shape)
