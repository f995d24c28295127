"""Tables with a header: CSV, and Parquet where pyarrow is installed. A line is a record, and is read by itself.

A line of CSV that has another number of cells than the header is left out, and keeps its place; a quote that is not closed ends
with its line. So no line decides how another one is read. The header is public: a table without a declared column is refused.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from tutelage.data.dataset import Private, Public, UnitName
from tutelage.data.schema import TableSchema, written
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.units import Roster

_PARQUET = (".parquet", ".pq")
_BROKEN = "lines with another number of cells than the header, in no shard"
ENDINGS = (".csv", ".tsv", ".txt", ".data", *_PARQUET)


@final
@dataclass(frozen=True, repr=False, eq=False)
class Cells:
    """Hold a table as texts, column by column. Lines that could not be divided are blank in every column."""

    columns: Mapping[str, list[Any]]
    rows: int
    broken: frozenset[int] = field(default_factory=frozenset)

    def __repr__(self) -> str:
        return f"Cells({self.rows} rows, {len(self.columns)} columns)"


def read(path: Path | str, *, separator: str = ",") -> Cells:
    """Read a table of either form."""
    path = Path(path)
    return _parquet(path) if path.suffix.lower() in _PARQUET else _csv(path, separator)


def private_from_table(
    path: Path | str,
    schema: TableSchema,
    *,
    unit: UnitName = "record",
    separator: str = ",",
    roster: Roster | None = None,
    part: Any = None,
) -> Private:
    """Read private rows: unknown words get one public code, and a row without a known label is in no shard.

    Without a column of ids every line is a unit, and its number is its id. `part` chooses rows by their ids alone.
    """
    cells = read(path, separator=separator)
    check_header(cells, schema, label=True)
    if schema.id is None and unit != "record":
        raise RecipeError(f"`id` must name the column that says whose row it is, where the unit is a {unit}. Got none instead.")
    if schema.id is None and roster is not None:
        raise RecipeError("`roster` must come with a column of ids. Got it alone instead.")
    ids = list(range(cells.rows)) if schema.id is None else written(cells.columns[schema.id])
    listed = Roster.places(max(1, cells.rows)) if schema.id is None else roster
    units = np.array(["" if row in cells.broken else str(one) for row, one in enumerate(ids)], dtype=object)
    notes = Counter({_BROKEN: len(cells.broken)})
    made = Private(
        schema.encode(cells.columns), schema.targets(cells.columns[schema.label]), units, unit, Path(path).name, listed,
        notes=+notes, schema=schema,
    )  # fmt: skip
    if part is None:
        return made
    own = part(made.units)
    # Without ids a row that is chosen out keeps its place and becomes nobody's.
    return made[np.flatnonzero(own)] if schema.id is not None else replace(made, units=np.where(own, made.units, ""))


def public_from_table(path: Path | str, schema: TableSchema, *, separator: str = ",", part: Any = None) -> Public:
    """Read public rows. The label's column may be missing, or a label: then there are no targets."""
    cells = read(path, separator=separator)
    check_header(cells, schema, label=False)
    if cells.broken:
        raise DataError(f"Every public row must have as many cells as the header. Got {len(cells.broken)} others instead.")
    targets = schema.targets(cells.columns[schema.label]) if schema.label in cells.columns else None
    inputs = schema.encode(cells.columns)
    if part is not None:
        named = schema.id in cells.columns if schema.id is not None else False
        own = part(np.array(written(cells.columns[schema.id] if named else range(cells.rows))))  # type: ignore[index]
        inputs, targets = inputs[own], None if targets is None else targets[own]
    if not len(inputs):
        raise DataError("A public table must hold one row at least. Got none instead.")
    if targets is not None and (targets < 0).all():
        targets = None
    return replace(Public.of(inputs, targets, source=Path(path).name), schema=schema)


def check_header(cells: Cells, schema: TableSchema, *, label: bool) -> None:
    """Refuse a table without a declared column. The header is public."""
    wanted = [column.name for column in schema.columns]
    wanted += [schema.label] if label else []
    wanted += [schema.id] if label and schema.id is not None else []
    if absent := [name for name in wanted if name not in cells.columns]:
        raise DataError(
            f"the table's header must have the declared columns. Got none named {', '.join(map(repr, absent))} instead."
        )


def _csv(path: Path, separator: str) -> Cells:
    if len(separator) != 1:
        raise RecipeError(f"`separator` must be one character. Got {separator!r} instead.")
    lines = _lines(path)
    header = _split(lines[0], separator) if lines else None
    if not header or len(set(header)) < len(header):
        raise DataError(f"`{path.name}` must begin with a header whose columns have different names. Got another line instead.")
    rows: list[list[str]] = []
    broken, blank = set(), [""] * len(header)
    for line in lines[1:]:
        cells = _split(line, separator)
        if cells is None or len(cells) != len(header):
            broken.add(len(rows))
            cells = blank
        rows.append(cells)
    columns = zip(*rows, strict=True) if rows else ((),) * len(header)
    return Cells({name: list(cells) for name, cells in zip(header, columns, strict=True)}, len(rows), frozenset(broken))


def _lines(path: Path) -> list[str]:
    """Split a text into lines; empty ones are no records."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"`{path.name}` must be a readable file. Got «{error.strerror}» instead.") from None
    if raw.startswith((b"\xff\xfe", b"\xfe\xff", b"PK\x03\x04", b"\x1f\x8b", b"PAR1")):
        raise DataError(f"`{path.name}` must be a text in UTF-8. Got another kind of file instead.")
    text = raw.decode("utf-8-sig", "replace")
    return [line for line in (piece.rstrip("\r") for piece in text.split("\n")) if line.strip()]


def _split(line: str, separator: str) -> list[str] | None:
    try:
        (found,) = csv.reader([line], delimiter=separator, skipinitialspace=True)
    except (csv.Error, ValueError):
        return None
    return [cell.strip() for cell in found]


def _parquet(path: Path) -> Cells:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise DataError(
            "`pyarrow` must be installed to read Parquet (pip install 'tutelage[tables]'). Got none instead."
        ) from None
    try:
        table = parquet.read_table(path)
        columns = {str(name): table.column(name).to_pylist() for name in table.column_names}
    except Exception as error:  # pyarrow's messages may quote what a file holds
        raise DataError(f"`{path.name}` must be a readable Parquet file. Got {type(error).__name__} instead.") from None
    return Cells(columns, table.num_rows)
