"""Write a released student for another runtime, with preprocessing inside, and check it against the student on public records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.schema import TableSchema, VolumeSchema
from tutelage.deployment import card, samples
from tutelage.deployment.students import Student, read
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
FORMATS = ("onnx", "torchscript", "safetensors", "skops")
CLOSE = 1e-4
METADATA = "tutelage"
_ALONG = ("guarantee.json", "inputs.json", "metrics.json", "scores.json")


@final
@dataclass(frozen=True)
class Exported:
    """Say what was written, on how many public records it was checked, and how far it is from the student at most."""

    folder: Path
    model: Path
    format: str
    records: int
    apart: float


def export(run: Path | str, out: Path | str, *, format: str = "onnx", public: Any = None) -> Exported:
    """Write a student into a new folder, with its guarantee, its schema and a model card.

    It is checked on public records: those that the release shows, rows made of the declared columns, and `public` raw records.
    """
    if format not in FORMATS:
        raise RecipeError(f"`format` must be one of {', '.join(map(repr, FORMATS))}. Got {format!r} instead.")
    student, target = read(run), Path(out)
    if target.exists() and any(target.iterdir()):
        raise RecipeError(f"`out` must be a new or empty folder. Got {str(target)!r} with files instead.")
    if target.resolve().is_relative_to(student.release.resolve()):
        raise RecipeError("`out` must lie outside of the release, whose files the manifest lists. Got a place inside instead.")
    target.mkdir(parents=True, exist_ok=True)
    model = _write(student, target, format)
    given = samples.raw(student) if public is None else public
    count, apart = _check(student, model, format, given)
    for name in _ALONG:
        if (student.release / name).is_file():
            shutil.copyfile(student.release / name, target / name)
    card.write(student, target, model, format, count, apart)
    return Exported(target, model, format, count, apart)


def _write(student: Student, target: Path, format: str) -> Path:
    path = target / {"onnx": "model.onnx", "torchscript": "model.pt"}.get(format, f"student.{format}")
    if format == "onnx":
        content = onnx_model(student).SerializeToString(deterministic=True)
        path.write_bytes(content)
    elif format == "torchscript":
        _of_torch(student, format)
        from tutelage.deployment import networks

        networks.torchscript(student, path)
    else:
        source = student.release / path.name
        if not source.is_file():
            other = "skops" if format == "safetensors" else "safetensors"
            raise RecipeError(f"`format` must be one that this student has. Got {format!r} instead: try 'onnx' or {other!r}.")
        shutil.copyfile(source, path)
    return path


def _of_torch(student: Student, format: str) -> None:
    if student.form == "estimator" or (student.form == "linear" and len(student.model.sight.features.arrays()) == 4):
        raise RecipeError(f"`format` must be 'onnx' or the student's own: it is no torch network. Got {format!r} instead.")


def onnx_model(student: Student) -> Any:
    """Make the ONNX model: raw records in, names and probabilities, or shares and masks, out."""
    from tutelage.deployment import graphs

    told = {"version": 1, "names": list(student.names), "draws": student.draws, "schema": _plain(student)}
    if student.draws:
        told["threshold"] = student.model.threshold
    about = {METADATA: json.dumps(told)}
    about["license"] = "see README.md: the guarantee in guarantee.json holds for this model"
    graph = graphs.Graph()
    bins = student.form == "linear" and getattr(student.model.sight.features, "kind", "") == "bins"
    if student.form == "estimator" or bins:
        if isinstance(student.schema, TableSchema):
            rows, width = graphs.table(graph, student.schema), len(student.schema.features)
        else:
            accepted = student.accepted
            assert accepted is not None
            rows, width = graphs.raw(graph, accepted), int(np.prod(accepted.shape))
        shares = (
            graphs.linear(graph, rows, student.model)
            if bins
            else graphs.estimator(graph, rows, student.model.model, student.count, width)
        )
        graphs.named(graph, shares, student.names)
        return graph.model(about)
    from tutelage.deployment import networks

    inner, accepted = networks.onnx(student), networks.taken(student)
    opset = next(one.version for one in inner.opset_import if one.domain == "")
    if isinstance(student.schema, VolumeSchema):
        from tutelage.deployment import boxes

        box, shape = boxes.taken(graph, student.schema)
        boxes.given(graph, graph.inline(inner, {"inputs": box})[0], shape, student.schema, student.model.threshold)
        return graph.model(about, opset=opset)
    kind = "UINT8" if accepted.scaled else "FLOAT"
    values = graph.input("inputs", kind, ["records", *accepted.shape])
    (shares,) = graph.inline(inner, {"inputs": values})
    if student.draws:
        cut = graph.constant(np.float32(student.model.threshold))
        graph.output("shares", "FLOAT", ["records", *accepted.shape[1:]], shares)
        graph.output("mask", "UINT8", ["records", *accepted.shape[1:]], graph.cast(graph.add("Greater", [shares, cut]), "UINT8"))
    else:
        graphs.named(graph, shares, student.names)
    return graph.model(about, opset=opset)


def _plain(student: Student) -> dict[str, Any] | None:
    return None if student.schema is None else student.schema.plain()


# ── the check ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check(student: Student, model: Path, format: str, given: Any) -> tuple[int, float]:
    """Compare what was written with the student, record by record; refuse what differs, or what nothing could be compared on."""
    if format == "onnx" and isinstance(student.schema, VolumeSchema):
        return _check_volumes(student, model)
    wanted = student.shares(samples.encoded(student, given))
    if not len(wanted):
        raise DataError("`public` must hold one record at least, to check what was written. Got none instead.")
    if format in ("safetensors", "skops"):
        from tutelage.deployment.students import _read

        found = _read(model, student.schema, "cpu").shares(samples.encoded(student, given))
    elif format == "torchscript":
        from tutelage.deployment import networks

        found = networks.run_torchscript(model, samples.fed(student, given)["inputs"])
    else:
        answers = run_onnx(model, samples.fed(student, given))
        found = np.asarray(answers["shares" if student.draws else "probabilities"])
    apart = float(np.abs(np.asarray(found, np.float64) - wanted).max())
    if not apart <= CLOSE:
        raise DataError(
            f"the exported model must give the student's answers to {CLOSE:g}. Got {apart:.2g} instead; do not use it."
        )
    if format == "onnx" and not student.draws:
        _check_words(student, np.asarray(answers["label"], dtype=object).reshape(-1), wanted)
    return len(wanted), apart


def _check_volumes(student: Student, model: Path) -> tuple[int, float]:
    """Compare whole volumes, larger and smaller than the model's box: what is done before and after is checked with it."""
    from tutelage.deployment import boxes

    apart, volumes = 0.0, boxes.made(student.schema)  # type: ignore[arg-type]
    for volume in volumes:
        found = run_onnx(model, {boxes.INPUT: volume})["shares"]
        apart = max(apart, float(np.abs(found - boxes.whole(student, volume)).max()))
    if not apart <= CLOSE:
        raise DataError(
            f"the exported model must give the student's answers to {CLOSE:g}. Got {apart:.2g} instead; do not use it."
        )
    return len(volumes), apart


def _check_words(student: Student, given: Array, wanted: Array) -> None:
    """Compare names, but where two classes are equally likely."""
    top = np.sort(wanted, axis=1)
    clear = top[:, -1] - top[:, -2] > 2 * CLOSE
    words = np.asarray(student.names, dtype=object)[wanted.argmax(axis=1)]
    if (given[clear] != words[clear]).any():
        raise DataError("the exported model must give the student's labels. Got others instead; do not use it.")


def run_onnx(model: Path | bytes, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Ask an ONNX model."""
    session = onnx_session(model)
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(feeds)), strict=True))


def onnx_session(model: Path | bytes) -> Any:
    """Open an ONNX model, on the CPU."""
    try:
        import onnxruntime
    except ImportError:
        raise RecipeError(
            "`onnxruntime` must be installed to run it (pip install 'tutelage[export]'). Got none instead."
        ) from None
    try:
        return onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises its own kinds
        raise DataError(f"`model` must be a readable ONNX file. Got {type(error).__name__} instead.") from None
