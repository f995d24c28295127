"""The commands that make published figures again: published, at the published settings, and what is true."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tutelage.console import Commands, bars, console, emit, say, table

Data = Annotated[Path | None, typer.Option("--data", help="Folder with the data set's files (or where to download them).")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda: where networks learn.")]
Engine = Annotated[
    str, typer.Option(help="auto, sequential, stacked, recorded, processes or ray: how teachers that are networks learn.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")]
reproduce_app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Recompute the field's published tables: published, honest, ours."
)


@reproduce_app.command("accounting")
def reproduce_accounting(
    votes: Annotated[
        Path | None, typer.Option(help="Folder with Papernot et al.'s vote counts (.npy), for the vote-based rows.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute published privacy figures: published, at the published settings, and what is true."""
    from tutelage.reproduction.accounting import table as accounted

    found = accounted(votes)
    if as_json:
        emit([vars(row) for row in found])
        return
    headings = ("claim", "published", "at the published settings", "true", "remark")
    shown = table("published privacy figures, recomputed", *headings, numbers=False, lines=True)
    for row in found:
        shown.add_row(row.claim, row.published, row.as_published, f"[bold]{row.true}[/]", row.remark)
    console().print(shown)
    if votes is None:
        say("With --votes DIR (mnist_250_teachers.npy …) the vote-based rows are recomputed too.")


@reproduce_app.command("pate")
def reproduce_pate(
    only: Annotated[list[str] | None, typer.Option(help="A data set (mnist) or a row (mnist-ours); may be repeated.")] = None,
    small: Annotated[bool, typer.Option("--small", help="The rows for two CPU cores.")] = False,
    data: Data = Path("data"),
    out: Annotated[Path, typer.Option(help="Where the run folders and the summary go.")] = Path("runs/pate"),
    seeds: Annotated[int, typer.Option(help="Runs per row, for mean and spread.", min=1)] = 1,
    device: Device = "auto",
    engine: Engine = "auto",
    as_json: AsJson = False,
) -> None:
    """Run the papers' PATE and ours, row by row: published beside ours, with controls. Finished rows are not run again."""
    from tutelage.recipes.learners import possible
    from tutelage.reproduction import pate
    from tutelage.reproduction.rows import chosen

    possible(device=device, engine=engine)
    results, rows = [], chosen(tuple(only or ()), small=small)
    earlier = pate.before(out, rows)
    for row in rows:
        if not as_json:
            say(row.title, style="bold", stderr=True)
        with bars(as_json) as tell:
            result = pate.reproduce(row, out, data=data, seeds=seeds, device=device, engine=engine, progress=tell)
        if result.missing and not as_json:
            say(f"skipped: {result.missing}", style="yellow", stderr=True)
        if result.failed and not as_json:
            say(f"failed: {result.failed}", style="red", stderr=True)
        results.append(result)
        files = pate.write([*results, *earlier], out)  # after every row: whatever stops the next one, this one is told
    if as_json:
        emit(pate.document(results))
    else:
        if any(result.runs for result in results):  # a table without a figure says nothing that was not said above
            _show_pate(results)
        say("\n".join(f"wrote {file}" for file in files))
    if any(result.failed for result in results) or not any(result.runs for result in results):
        raise typer.Exit(2)
    if any(result.below for result in results):
        raise typer.Exit(1)


def _show_pate(results: list[Any]) -> None:
    """Show one table of accuracies and one of prices: all columns are too many for a terminal."""
    from tutelage.reproduction.pate import CAPTION, HEADINGS

    rows = [dict(zip(HEADINGS, result.cells(), strict=True)) for result in results]
    prices = ("ε published", "ε", "sanitised", "raw", "answered of asked")
    quality = tuple(name for name in HEADINGS if name not in ("row", *prices))
    for title, names in (("PATE: accuracy, published and ours", quality), ("PATE: what it cost", prices)):
        told = [name for name in names if any(row[name] for row in rows)]
        shown = table(title, "row", *told)
        for row in rows:
            shown.add_row(row["row"], *(row[name] for name in told))
        console().print(shown)
    say(CAPTION)


@reproduce_app.command("segmentation")
def reproduce_segmentation(
    only: Annotated[list[str] | None, typer.Option(help="A figure or table by its name (components); may be repeated.")] = None,
    small: Annotated[bool, typer.Option("--small", help="Drawn masks of 16×16, for two CPU cores.")] = False,
    data: Annotated[Path, typer.Option(help="Folder with the data sets' files; nothing is downloaded.")] = Path("data"),
    public_data: Annotated[
        bool, typer.Option("--public-data", help="The folder holds published data sets alone: show stages without noise, too.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where figures, runs and segmentation.md go (default: runs/segmentation; --small: …-small)."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs per column of a table, for mean and spread.", min=1)] = 1,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Make the papers' figures and tables about masks again: published, at their settings, honest. What is finished is read."""
    from tutelage.reproduction.printing import made, told

    out = out or Path("runs/segmentation-small" if small else "runs/segmentation")
    with bars(as_json) as tell:
        findings = made(
            tuple(only or ()), out, small=small, data=data, public_data=public_data, seeds=seeds, device=device, tell=tell
        )
    raise typer.Exit(told(findings, out, as_json=as_json))
