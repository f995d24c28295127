"""A model card, as Hugging Face reads it: what the model takes and gives, what it scored, and what its guarantee says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tutelage import __version__
from tutelage.data.schema import ImageSchema, TableSchema, VolumeSchema
from tutelage.deployment.students import Student
from tutelage.privacy.files import read_json
from tutelage.report import measures
from tutelage.rounding import percent, rounded_up

_TAGS = {True: "image-segmentation", False: "tabular-classification"}


def write(student: Student, target: Path, model: Path, format: str, checked: int, apart: float) -> Path:
    """Write README.md beside an exported model."""
    guarantee: dict[str, Any] = read_json(student.release / "guarantee.json", "guarantee")
    scores = read_json(student.release / "scores.json", "scores") if (student.release / "scores.json").is_file() else {}
    epsilon = "infinity" if guarantee["epsilon"] == "infinity" else rounded_up(guarantee["epsilon"], 3)
    kind = "image-classification" if isinstance(student.schema, ImageSchema) and not student.draws else _TAGS[student.draws]
    lines = [
        "---",
        "library_name: tutelage",
        f"pipeline_tag: {kind}",
        "tags: [differential-privacy, knowledge-transfer, tutelage]",
        "---",
        "",
        f"# A student trained with (ε = {epsilon}, δ = {guarantee['delta']:g})-differential privacy",
        "",
        guarantee["statement"],
        "",
        f"Whoever tries to tell whether one {guarantee['unit']} was in the private data, and accepts one false alarm in a "
        f"thousand, finds at most {percent(guarantee['implied_tpr_at_fpr_0.001'])} of the true cases. "
        "The whole promise is guarantee.json. It is bound to its release by a manifest and a ledger; "
        "`tutelage verify` checks them on the release, not on this copy.",
        "",
        "## What it takes",
        "",
        *_takes(student),
        "",
        "## What it gives",
        "",
        *_gives(student, format),
        "",
        "## Scores on public test data",
        "",
        *([f"| {'what'} | score |", "|---|---|", *(f"| {name} | {value:.3f} |" for name, value in scores.items())]),
        "",
        *([f"| {what} | {score} |" for what, score in measures.rows(measures.read(student.release))]),
        "",
        "## Use",
        "",
        "```",
        f"tutelage predict {model.name} FILES...",
        "```",
        "",
        f"`{model.name}` ({format}) was checked on {checked} public records: it is within {apart:.1g} of the student.",
        f"Written by tutelage {__version__}.",
        *([f"Warning: {said}" for said in guarantee["warnings"]]),
        "",
    ]
    path = target / "README.md"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def _takes(student: Student) -> list[str]:
    schema = student.schema
    if isinstance(schema, TableSchema):
        rows = [f"| `{column.name}` | {_column(column)} |" for column in schema.columns]
        return ["A row of a table, a column each:", "", "| column | declared |", "|---|---|", *rows]
    if isinstance(schema, ImageSchema):
        kind = "grey" if schema.channels == 1 else "RGB"
        return [f"An image, {kind}, of {schema.size[0]} × {schema.size[1]} pixels: bytes, channels first."]
    if isinstance(schema, VolumeSchema):
        spacing = "" if schema.spacing is None else f", voxels of {schema.spacing} mm"
        return [f"A volume of {schema.channels} channels about its middle, {schema.size}{spacing}."]
    shape = "any" if student.accepted is None else str(student.accepted.shape)
    return [f"An array of shape {shape} for each record."]


def _column(column: Any) -> str:
    found = column.plain()
    return f"a number, cut to [{found['low']:g}, {found['high']:g}]" if "low" in found else ", ".join(found["categories"])


def _gives(student: Student, format: str) -> list[str]:
    if student.draws:
        return ["A mask of the input's size, and every pixel's share."]
    return [f"One of the classes {json.dumps(list(student.names), ensure_ascii=False)}, and a probability for each."]
