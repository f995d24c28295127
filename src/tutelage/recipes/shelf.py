"""Where a recipe comes from: a file, or the package's own shelf by its name."""

from __future__ import annotations

from pathlib import Path

from tutelage.privacy.errors import RecipeError
from tutelage.recipes import sets
from tutelage.recipes.recipe import Recipe, read
from tutelage.recipes.run import DEMO, carried, embedded
from tutelage.recipes.sections import nearest


def taken(path: Path) -> Recipe:
    """Read a file where there is one; else take a recipe of the package, with or without its folder and its ending."""
    if path.is_file():
        return read(path)
    name, shelf = path.as_posix().removesuffix(".toml"), carried()
    for one in shelf:
        if name in (one, one.rpartition("/")[2]):
            return embedded(one)
    short = [one.rpartition("/")[2] for one in shelf]
    raise RecipeError(
        f"`recipe` must be a readable TOML file, or one that the package carries: {', '.join(short)}. "
        f"Got {str(path)!r} instead.{nearest(Path(name).name, short)}"
    )


def check_templates(place: Path) -> None:
    """Refuse somebody's silhouettes that are not there or cannot be read, before anything is said or written."""
    if not place.exists():
        raise RecipeError(f"`templates` must be a folder that exists. Got {str(place)!r}, which does not, instead.")
    sets.scenes(embedded(DEMO).data, place).draw(1, seed=0)


def of_templates(recipe: Recipe) -> Recipe:
    """Let a recipe's scenes be made of somebody's silhouettes in place of drawn ones: another recipe, with another hash."""
    data = recipe.data.model_copy(update={"silhouettes": "templates"})
    return recipe.model_copy(update={"data": data, "name": f"{recipe.name}-templates"})
