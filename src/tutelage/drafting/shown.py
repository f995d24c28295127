"""What would be read of one's own data, in figures and pictures: for its owner, on their own machine."""

from __future__ import annotations

import base64
import html
import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tutelage.console import console, say, table
from tutelage.data.dataset import Private, Public
from tutelage.privacy.errors import RecipeError

_PICTURES = 24


def facts(place: Path) -> dict[str, Any]:
    """Describe every part that a recipe reads, or what a folder or file seems to hold."""
    if place.suffix != ".toml":
        return _seen(place)
    recipe, parts = _parts(place)
    names = tuple(recipe.data.classes or ())
    return {
        "recipe": recipe.name,
        "set": recipe.data.set,
        "parts": {name: _described(part, names) for name, part in parts.items()},
    }


def _seen(place: Path) -> dict[str, Any]:
    from tutelage.drafting.draft import draft
    from tutelage.drafting.found import look

    found = look(place)
    paths = {name: str(path) for name in ("private", "public", "test") if (path := getattr(found, name)) is not None}
    return {"set": found.kind, "paths": paths, "found": list(draft(place).found)}


def _parts(place: Path) -> tuple[Any, dict[str, Private | Public]]:
    from tutelage.recipes import own
    from tutelage.recipes.recipe import read
    from tutelage.recipes.run import loaded

    recipe = read(place)
    if not (own.has(recipe.data) or recipe.about_masks):
        raise RecipeError(f"`place` must be a recipe for your own data. Got one for {recipe.data.set!r} instead.")
    if own.has(recipe.data):  # its owner may look before confirming
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"declared": True})})
    private, public, test = loaded(recipe, None)
    return recipe, {"private": private, "public": public, "test": test}


def _described(part: Private | Public, names: tuple[str, ...]) -> dict[str, Any]:
    inputs = np.asarray(part.inputs)
    found: dict[str, Any] = {"records": len(part), "shape": list(inputs.shape[1:])}
    if inputs.size and inputs.dtype.kind in "fiu":
        found["range"] = [float(inputs.min()), float(inputs.max())]
    targets = part.targets
    if isinstance(part, Private):
        units = part.units[part.units != ""]
        found["units"], found["of nobody"] = len(np.unique(units)), int((part.units == "").sum())
        found["notes"] = dict(part.notes)
    if targets is not None and np.ndim(targets) == 1:
        counted = Counter(np.asarray(targets).tolist())
        found["labels"] = {_name(label, names): count for label, count in sorted(counted.items())}
    elif targets is not None:
        masks = np.asarray(targets)
        found["masks"] = {
            "empty": sum(not mask.any() for mask in masks),
            "voxels of the object, mean": float(masks.sum() / len(masks)),
        }
    return found


def _name(label: int, names: tuple[str, ...]) -> str:
    return "no class" if label < 0 else names[label] if label < len(names) else str(label)


def show(found: Mapping[str, Any]) -> None:
    """Print figures."""
    if "parts" not in found:
        say(f"{found['set']}: " + ", ".join(f"{name} {path}" for name, path in found["paths"].items()))
        for line in found["found"]:
            say(f"  {line}")
        return
    made = table(f"{found['recipe']}: what is read", "", *found["parts"], numbers=False)
    for key in dict.fromkeys(key for part in found["parts"].values() for key in part):
        made.add_row(key, *(_cell(part.get(key)) for part in found["parts"].values()))
    console().print(made)


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {_cell(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(_cell(one) for one in value)
    return (
        ""
        if value is None
        else f"{value:,.4g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


# ── pictures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def page(place: Path, out: Path) -> None:
    """Write a page with pictures of every part, or with the distribution of every column: readable by its owner alone."""
    if place.suffix != ".toml":
        raise RecipeError(
            f"`place` must be a recipe where pictures are wanted: `tutelage init` writes one. Got {place.name!r} instead."
        )
    recipe, parts = _parts(place)
    body = "".join(f"<h2>{name}: {len(part):,} records</h2>{_pictures(part, recipe)}" for name, part in parts.items())
    title = f"{html.escape(recipe.name)}: what is read. NOT FOR RELEASE"
    text = f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>{body}"
    out.touch(mode=0o600)
    out.chmod(0o600)
    out.write_text(text, encoding="utf-8")


def _pictures(part: Private | Public, recipe: Any) -> str:
    from matplotlib.figure import Figure

    inputs = np.asarray(part.inputs)
    if inputs.ndim == 2:
        schema = part.schema
        names = getattr(schema, "features", [str(number) for number in range(inputs.shape[1])])
        figure = Figure(figsize=(8, max(1.5, 0.16 * len(names))), layout="constrained")
        axes = figure.subplots()
        axes.barh(range(len(names)), inputs.mean(axis=0))
        axes.set_yticks(range(len(names)), names, fontsize=6)
        axes.invert_yaxis()
        axes.set_xlabel("mean of the encoded column")
    else:
        count = min(_PICTURES, len(inputs))
        figure = Figure(figsize=(12, 1.7 * -(-max(1, count) // 8)), layout="constrained")
        for place in range(count):
            axes = figure.add_subplot(-(-count // 8), 8, place + 1)
            _draw(axes, inputs[place], None if part.targets is None else part.targets[place], tuple(recipe.data.classes or ()))
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=90)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}">'


def _draw(axes: Any, image: Any, target: Any, names: tuple[str, ...]) -> None:
    """Draw one image, or the middle slice of a volume, with the outline of its mask or the name of its class."""
    axes.set_axis_off()
    flat, mask = np.asarray(image), None if target is None or np.ndim(target) == 0 else np.asarray(target)
    if flat.ndim == 4:
        middle = flat.shape[-1] // 2 if mask is None or not mask.any() else int(mask.sum(axis=(0, 1)).argmax())
        flat, mask = flat[..., middle], None if mask is None else mask[..., middle]
    shown = flat.transpose(1, 2, 0) if flat.ndim == 3 and len(flat) == 3 else flat[0] if flat.ndim == 3 else flat
    axes.imshow(shown, cmap=None if shown.ndim == 3 else "gray")
    if mask is not None and mask.any():
        axes.contour(mask, levels=[0.5], colors="#e0662f", linewidths=1)
    elif target is not None and mask is None:
        axes.set_title(_name(int(target), names), fontsize=7)
