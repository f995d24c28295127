"""A recipe as text again: what a release says about how it was made. It reads back to the same hash."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from tutelage.recipes.own import FILES
from tutelage.recipes.recipe import Recipe
from tutelage.recipes.sets import ELSEWHERE

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def written(recipe: Recipe) -> str:
    """Write a recipe as TOML, with every value that it has and one form only. Folders of this machine are left out.

    Of further folders the last name stays: that there are such folders is part of the recipe.
    """
    content = recipe.model_dump(mode="json", exclude_none=True, exclude={"data": {"directory"}})
    for name in set(ELSEWHERE) & set(content["data"]):
        content["data"][name] = Path(content["data"][name]).name or "elsewhere"
    for name in set(FILES) & set(content["data"]):
        content["data"][name] = Path(content["data"][name]).name
    return _table(content, ())


def _table(content: dict[str, Any], place: tuple[str, ...]) -> str:
    plain = {key: value for key, value in content.items() if not isinstance(value, dict)}
    lines = [f"[{'.'.join(map(_key, place))}]"] if place else []
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    parts = ["".join(f"{line}\n" for line in lines)] if lines else []
    parts += [_table(value, (*place, key)) for key, value in content.items() if key not in plain]
    return "\n".join(parts)


def quoted(text: str) -> str:
    """Write a text as TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + "}"
    return "[" + ", ".join(map(_value, value)) + "]"
