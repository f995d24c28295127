"""The commands of models that leave: export, predict, compare."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tutelage.console import emit, say

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a release alone.")],
    format: Annotated[str, typer.Option("--format", help="onnx, torchscript, safetensors or skops.")] = "onnx",
    out: Annotated[Path | None, typer.Option("--out", help="The folder to make (default: RUN-FORMAT beside it).")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the student for another runtime, with its preprocessing, guarantee and a model card, and check it."""
    from tutelage.deployment.exporting import export as write

    place = run.resolve()
    target = out or place.with_name(f"{place.name if place.name != 'release' else place.parent.name}-{format}")
    made = write(run, target, format=format)
    if as_json:
        emit({"folder": str(made.folder), "model": str(made.model), "format": made.format, "checked_on": made.records,
              "apart": made.apart})  # fmt: skip
        return
    say(f"wrote {made.model}, with README.md and guarantee.json")
    say(f"checked against the student on {made.records:,} public records: shares differ by {made.apart:.1g} at most")


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An exported folder or .onnx file, a run folder, or a release.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Tables, arrays, images, folders of them, or volumes.")],
    out: Annotated[Path | None, typer.Option("--out", help="Where answers go: a .csv, or a folder for masks.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda: where a student that is a network runs.")] = "cpu",
) -> None:
    """Predict for new files: names of classes with their probabilities, or masks (NIfTI with the input's affine)."""
    from tutelage.deployment.serving import Predictor
    from tutelage.deployment.serving import predict as answer

    text, written = answer(Predictor.load(model, device=device), files, out)
    if text is not None:
        sys.stdout.write(text)
    for path in written:
        say(f"wrote {path}")


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or releases alone.")],
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw score against ε there (.svg or .png).")] = None,
    as_json: AsJson = False,
) -> None:
    """Put finished runs side by side: scores, controls that may be shown, and what each cost."""
    from tutelage.deployment import comparing

    rows = comparing.rows(runs)
    if plot is not None:
        comparing.draw(rows, plot)
    if as_json:
        emit(rows)
        return
    comparing.show(rows)
