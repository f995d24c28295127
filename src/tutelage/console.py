"""How the command line prints: tables that never cut a figure off, lines as they are, bars with the time left."""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from typer.core import TyperGroup

from tutelage.rounding import rounded_up


@final
class Commands(TyperGroup):
    """Suggest the nearest command once: newer versions of click and of typer do it both."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and leave the suggestion to click where it makes one."""
        self.suggest_commands = not hasattr(click.exceptions, "NoSuchCommand")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it with one line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say(
                "\nStopped. A run goes on with the same command and --resume: what was answered is kept, and not paid for again.",
                stderr=True,
            )
            raise SystemExit(130) from None


def console(*, stderr: bool = False) -> Console:
    """Open the terminal, or a pipe as wide as one."""
    opened = Console(stderr=stderr)
    if not opened.is_terminal and "COLUMNS" not in os.environ:
        opened.width = 130  # a pipe has no width of its own
    return opened


def say(text: str, *, style: str | None = None, stderr: bool = False) -> None:
    """Print a line as it is: no wrapping inside a path, no markup inside a name."""
    console(stderr=stderr).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def warn(said: Sequence[str]) -> None:
    """Print warnings."""
    for warning in said:
        say(f"warning: {warning}", style="yellow")


def unforeseen(error: Exception) -> str:
    """Tell a failure's kind and place, and withhold its message, which may quote private values; or let it go on, if wanted."""
    if os.environ.get("TUTELAGE_TRACEBACK"):
        raise error
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    if isinstance(error, OSError) and error.strerror:
        where += f" («{error.strerror}»)"  # the system's own words; which file it was may be somebody's name
    return f"{type(error).__name__} at {where}. Its message may quote private values: TUTELAGE_TRACEBACK=1 shows it."


def table(title: str, *headings: str, numbers: bool = True, lines: bool = False) -> Table:
    """Make a table that folds what is too wide: a figure is never cut off."""
    made = Table(title=title, title_justify="left", show_lines=lines)
    for place, heading in enumerate(headings):
        made.add_column(heading, justify="right" if numbers and place else "left", overflow="fold")
    return made


def emit(document: Any) -> None:
    """Print JSON for programs."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def figure(value: float | int | str | None) -> str:
    """Show a figure: 'infinity' is how our files write what JSON cannot."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return "∞" if value == "infinity" or math.isinf(float(value)) else f"{value:.6g}"


def promised(value: float | str | None) -> str:
    """Show a figure that is promised (ε, δ, μ): rounded up, so that it is never more than a run keeps."""
    return "" if value is None else rounded_up(value, 6)


@contextmanager
def bars(quiet: bool) -> Iterator[Any]:
    """Show one bar per stage, with the time left."""
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), disable=quiet) as progress:
        tasks: dict[str, Any] = {}
        reached: dict[str, int] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            elif done < reached[what]:  # a second student begins at nothing: its time left is its own
                progress.reset(tasks[what], total=total)
            progress.update(tasks[what], completed=done, total=total)
            reached[what] = done

        yield tell
