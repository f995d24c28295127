"""The command `tutelage distill`: parses, calls, prints."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from tutelage.console import bars, console, emit, say, table


def distill(
    private: Annotated[
        str,
        typer.Argument(help="A data set's name (digits, mnist, fashion-mnist, cifar-10, pneumoniamnist, …), or an .npz file."),
    ],
    folder: Annotated[Path, typer.Option("--out", help="The run folder to make: release/ and private/.")],
    epsilon: Annotated[float, typer.Option(help="ε of the whole run, or of all runs on --ledger.")] = 1.0,
    delta: Annotated[float, typer.Option(help="δ; keep it far below one over the number of units.")] = 1e-5,
    ipc: Annotated[int, typer.Option(help="Stored images per class.", min=1)] = 10,
    classes: Annotated[
        int | None, typer.Option(help="Of an .npz file with `inputs` and `labels`: how many classes.", min=2)
    ] = None,
    high: Annotated[float, typer.Option(help="Of an .npz file: the value of a white pixel (black is 0).")] = 1.0,
    test: Annotated[Path | None, typer.Option(help="Of an .npz file: a PUBLIC one like it, for scores alone.")] = None,
    formation: Annotated[
        int | None, typer.Option(help="Show so many images in each row and column of a stored one.", min=1)
    ] = None,
    networks: Annotated[int, typer.Option(help="Random networks whose class sums are released.", min=1)] = 16,
    width: Annotated[int, typer.Option(help="Channels of each.", min=1)] = 16,
    steps: Annotated[int, typer.Option(help="Steps of matching.", min=1)] = 400,
    mirror: Annotated[bool, typer.Option("--mirror", help="A mirror image has the same label.")] = False,
    no_labels: Annotated[bool, typer.Option("--class-labels", help="Spend nothing on soft labels.")] = False,
    init: Annotated[
        str, typer.Option(help="noise; or private, as in the papers: images begin as private records, and nothing is guaranteed.")
    ] = "noise",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an existing run; what was released is not paid for again.")
    ] = False,
    data: Annotated[Path, typer.Option(help="Folder with the data set's files (or where to download them).")] = Path("data"),
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger that all runs on the same data share (default: its own).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")] = False,
) -> None:
    """Make a few images a class that networks can be trained on, from private ones: one noisy release, then matching."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for pictures this small a second thread waits more than it works
    from tutelage.recipes.distilled import carry_out
    from tutelage.report.page import pages

    given = {"ipc": ipc, "formation": formation, "networks": networks, "width": width, "steps": steps, "mirror": mirror}
    with bars(as_json) as tell:
        outcome = carry_out(
            private, folder, epsilon=epsilon, delta=delta, classes=classes, high=high, test=test, labels=not no_labels, init=init,
            resume=resume, data=data, ledger=ledger, device=device, progress=tell, **given,
            pages=functools.partial(pages, name=f"{Path(private).stem}, distilled"),
        )  # fmt: skip
    controls = outcome.folder.private / "distilled-controls.json"
    if as_json:
        emit({"out": str(folder), "set": repr(outcome.set), "scores": outcome.scores, "guarantee": outcome.guarantee})
        return
    rows = {**outcome.scores, **(json.loads(controls.read_text()) if controls.exists() else {})}
    found = table(f"{outcome.set!r}, {outcome.guarantee['statement']}", "a network trained on", "accuracy")
    for name, value in rows.items():
        found.add_row(name, f"{100 * value:.2f} %")
    console().print(found)
    say(f"\nrelease/distilled.png shows the set; distilled.safetensors and distilled.npz hold it. Open {outcome.folder.report}.")
    if controls.exists():
        say("Rows about private images are read from private/distilled-controls.json: they stay inside.")
