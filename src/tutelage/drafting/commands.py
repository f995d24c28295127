"""The commands for data of one's own: `init` writes a recipe, `data` shows what would be read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tutelage.console import emit, say
from tutelage.privacy.errors import RecipeError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def init(
    place: Annotated[
        Path, typer.Argument(metavar="FOLDER_OR_FILE", help="Your data: a table, arrays, or a folder of images or volumes.")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="The recipe to write (default: NAME.toml, here).")] = None,
    label: Annotated[str | None, typer.Option(help="The column that holds the label.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The column that says whose row it is.")] = None,
    epsilon: Annotated[float, typer.Option(help="ε of the recipe.")] = 3.0,
    size: Annotated[int | None, typer.Option(help="Side that images are brought to.", min=8)] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a recipe that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at your own data and write a recipe with comments: what was found, which unit, which method, what is missing."""
    from tutelage.drafting.draft import draft
    from tutelage.recipes.recipe import parse

    made = draft(place, label=label, id=id, epsilon=epsilon, size=size)
    target = out or Path(f"{place.resolve().stem}.toml")
    if target.exists() and not force:
        raise RecipeError(f"`out` must be a new file, or come with --force. Got {str(target)!r}, which exists, instead.")
    target.write_text(made.text, encoding="utf-8")
    whole, problem = True, ""
    try:
        parse(made.text, name=target.name, folder=target.parent)
    except RecipeError as error:
        whole, problem = False, str(error)
    missing = [*made.missing, *([problem] if problem else [])]
    if as_json:
        emit({"recipe": str(target), "found": list(made.found), "missing": missing, "complete": whole})
        return
    for line in made.found:
        say(f"found {line}")
    say(f"wrote {target}. Classes, columns, categories, ranges and sizes in it become public with the model.", style="bold")
    for line in missing:
        say(f"  still missing: {line}")
    say(f"Next: read it, set `declared = true`, then `tutelage plan {target}`, `tutelage run {target} --out runs/{target.stem}`.")


def data(
    place: Annotated[
        Path, typer.Argument(metavar="RECIPE_OR_FOLDER", help="A recipe for your own data, or a folder or file of it.")
    ],
    pictures: Annotated[Path | None, typer.Option(help="Write a page with pictures there: for the data's owner alone.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print what is read of your data: parts, shapes, classes, what was cleaned. For its owner, on their own machine."""
    from tutelage.drafting import shown

    facts = shown.facts(place)
    if pictures is not None:
        shown.page(place, pictures)
    if as_json:
        emit(facts)
        return
    shown.show(facts)
    say("This is a look at private data, for its owner alone: what stands here must not be published or tuned on.")
