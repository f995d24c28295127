"""Write a recipe for a folder or a file: what was found, which unit and method, and what only its owner can say."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from tutelage.drafting import columns, method
from tutelage.drafting.found import Found, look
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Unit
from tutelage.recipes.written import quoted

_POOL = 0.3  # share of the units of one file that would be public, half of it for the test


@final
@dataclass(frozen=True)
class Draft:
    """Hold a recipe's text, what was found, and what is still missing."""

    text: str
    found: tuple[str, ...]
    missing: tuple[str, ...]


def draft(
    place: Path, *, label: str | None = None, id: str | None = None, epsilon: float = 3.0, size: int | None = None
) -> Draft:
    """Look at a file or a folder, and write a recipe for it."""
    found = look(place)
    how = {"table": _table, "images": _images, "arrays": _arrays}
    if found.kind in how:
        return how[found.kind](found, _name(place), label=label, id=id, epsilon=epsilon, size=size)
    from tutelage.drafting import masks

    return masks.draft(found, _name(place), epsilon=epsilon, size=size)


def _name(place: Path) -> str:
    return re.sub(r"[^\w-]+", "-", place.resolve().stem).strip("-").lower() or "own"


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _table(found: Found, name: str, *, label: str | None, id: str | None, epsilon: float, size: int | None) -> Draft:
    from tutelage.data import tables

    separator = _separator(found.private)
    own = tables.read(found.private, separator=separator)
    for key, given in (("label", label), ("id", id)):
        if given is not None and given not in own.columns:
            raise RecipeError(f"`{key}` must be a column of the table. Got {given!r} instead; it has {', '.join(own.columns)}.")
    label = label or columns.label_column([one for one in own.columns if one != (id or columns.id_column(list(own.columns)))])
    id = id or columns.id_column(list(own.columns))
    open_ = None if found.public is None else tables.read(found.public, separator=separator)
    seen = own if open_ is None else open_
    looked = columns.guess(seen, label=label if label in seen.columns else None, id=id)
    left = dict(looked.left_out)
    known = tuple(column for column in looked.columns if column.name in own.columns and column.name not in (label, id))
    test = None if found.test is None else tables.read(found.test, separator=separator)
    named = next(
        ((cells, which) for cells, which in ((open_, "public"), (test, "test")) if cells and label in cells.columns), None
    )
    classes = columns.classes(named[0].columns[label] if named else own.columns[label])
    units = len({*own.columns[id]}) if id else own.rows
    pool = open_.rows if open_ else int(own.rows * _POOL / 2)
    unit, budget = _unit(id), _budget(epsilon, units, _unit(id))
    mine = units if open_ else int(units * (1 - _POOL))
    width = sum(len(column.features) for column in known)
    chosen = method.choose(mine, pool, max(2, len(classes)), budget, features=width)
    where = "the public file" if open_ else "the private file: its owner must agree to each of them"
    lines = [
        *_head(name, found),
        "[data]",
        'set = "table"',
        f"directory = {quoted(str(found.private.resolve().parent))}  # not part of the release",
        *_files(found, found.test is None and open_ is not None and label in open_.columns),
        *([f"separator = {quoted(separator)}"] if separator != "," else []),
        f"label = {quoted(label)}",
        *([f"id = {quoted(id)}  # whose row it is: all rows with one id are one unit"] if id else _no_id()),
        f"classes = {_listed(classes)}  # read off the {named[1] if named else 'private'} labels",
        *_confirm(),
        "",
        *_privacy(budget, unit),
        *_method(chosen),
        f"# Columns as they were read off {where}. Numbers outside a range are cut to it;",
        '# a word that is not listed, or a missing one, counts as "other".',
        "[data.columns]",
        *(f"{quoted(column.name)} = {_column(column)}" for column in known),
        *(f"# {quoted(one)} is left out: {why}" for one, why in left.items()),
    ]
    said = [
        f"a table with {len(own.columns)} columns; label {label!r} with {len(classes)} classes; "
        + (f"unit: a {unit}, named by {id!r}" if id else "unit: a row"),
        f"columns: {len(known)} declared, {len(left)} left out"
        + (f"; rare words of {', '.join(looked.rare)} count as other" if looked.rare else ""),
        f"method: {chosen.why}",
    ]
    return Draft(_text(lines), tuple(said), _missing(found, chosen, labelled=bool(open_ and label in open_.columns)))


def _separator(path: Path) -> str:
    """Take the separator that the header has most of."""
    if path.suffix.lower() in (".parquet", ".pq"):
        return ","
    with path.open("rb") as stream:
        header = stream.readline().decode("utf-8", "replace")
    return max((",", ";", "\t", "|"), key=header.count)


def _files(found: Found, divide: bool) -> list[str]:
    home = found.private.resolve().parent
    lines = [f"file = {quoted(found.private.name)}  # private"]
    if found.public is None:
        return [
            *lines,
            "# Nothing public was found. Better: public_file = ..., a file of records that anybody may see (labels not needed).",
            "# Else so much of this file is public, people drawn by a hash of their ids. Uncomment only if they are public:",
            f"public_share = {_POOL / 2:g}",
            f"test_share = {_POOL / 2:g}",
            "# public_data = true",
        ]
    lines.append(f"public_file = {quoted(_inside(found.public, home))}  # the pool: anybody may see it")
    if found.test is not None:
        lines.append(f"test_file = {quoted(_inside(found.test, home))}  # public, with labels: what the student is scored on")
    elif divide:
        lines.append("test_share = 0.5  # of the public records, for the test: the file has labels")
    return lines


def _inside(path: Path, home: Path) -> str:
    return path.name if path.resolve().parent == home else str(path.resolve())


def _no_id() -> list[str]:
    return [
        "# id = ...  # no column says whose row it is: every row is a unit. If one person has two rows, ε is not true for them"
    ]


def _column(column: Any) -> str:
    if isinstance(column, columns.Number):
        return f"{{ low = {column.low!r}, high = {column.high!r} }}"
    return f"{{ categories = {_listed(column.categories)} }}"


# ── images and arrays ─────────────────────────────────────────────────────────────────────────────────────────────────


def _images(found: Found, name: str, *, label: str | None, id: str | None, epsilon: float, size: int | None) -> Draft:
    from tutelage.data import folders, owners, tree

    seen = found.public or found.private
    labelled = [path for path in (found.private, found.test, found.public) if path is not None]
    classes = next((names for path in labelled if len(names := _class_folders(path)) > 1), [])
    files = [path for path in tree.files(found.private) if path.suffix.lower() in folders.ENDINGS]
    whose = owners.given(found.private)
    people = {one for names in whose.values() for one in names} if whose else {path.stem.partition("_")[0] for path in files}
    unit = "patient" if whose or len(people) < len(files) else "record"
    units = len(people) if unit == "patient" else len(files)
    pool = sum(path.suffix.lower() in folders.ENDINGS for path in tree.files(seen)) if found.public else 0
    side, channels = _side(seen)
    side = size or side
    budget = _budget(epsilon, units, unit)
    chosen = method.choose(units, max(1, pool), max(2, len(classes)), budget)
    divide = found.test is None
    lines = [
        *_head(name, found),
        "[data]",
        'set = "images"',
        f"directory = {quoted(str(found.private.resolve()))}  # private: one folder a class; not part of the release",
        *_folders(found, divide),
        f"classes = {_listed(classes)}  # the folders' names, in the order of their numbers",
        f"size = [{side}, {side}]  # height and width that every image is brought to",
        f"channels = {channels}  # 1: grey, 3: colour",
        *_whose(whose is not None, unit),
        *_confirm(),
        "",
        *_privacy(budget, unit),
        *_method(chosen),
    ]
    said = (f"images in {len(classes)} class folders; unit: a {unit}", f"method: {chosen.why}")
    return Draft(_text(lines), said, _missing(found, chosen, labelled=True))


def _class_folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _side(folder: Path) -> tuple[int, int]:
    """Give a side that small models can look at, and the channels, from the first images."""
    from PIL import Image

    from tutelage.data import folders, tree

    sides, grey = [], True
    for path in [path for path in tree.files(folder) if path.suffix.lower() in folders.ENDINGS][:20]:
        try:
            with Image.open(path) as image:
                sides.append(min(image.size))
                grey &= image.mode in ("L", "1", "I;16", "LA")
        except Exception:  # Pillow's plug-ins raise many types
            continue
    middle = sorted(sides)[len(sides) // 2] if sides else 32
    return max(8, min(64, middle // 4 * 4)), 1 if grey else 3


def _folders(found: Found, divide: bool) -> list[str]:
    if found.public is None:
        return ['# public_directory = "..."  # MISSING: a folder of public images, with or without class folders']
    lines = [f"public_directory = {quoted(str(found.public.resolve()))}  # the pool: anybody may see it"]
    if divide:
        return [*lines, "test_share = 0.5  # of the public images, for the test: they need class folders"]
    return [*lines, f"test_directory = {quoted(str(Path(found.test or '.').resolve()))}  # public, with class folders"]


def _whose(listed: bool, unit: str) -> list[str]:
    if listed:
        return ["# patients.csv says whose image is whose."]
    if unit == "patient":
        return [
            '# Whose image it is: what stands before the first "_" of its name. patients.csv (name,patient) goes before that.'
        ]
    return ["# Every file is a unit. If somebody has two, write patients.csv (name,patient) there, else ε is wrong for them."]


def _arrays(found: Found, name: str, *, label: str | None, id: str | None, epsilon: float, size: int | None) -> Draft:
    from tutelage.data import arrays

    own = arrays.facts(found.private, "train")
    pool = arrays.facts(found.public, "val") if found.public else None
    units, unit = own.units or own.records, "patient" if own.units else "record"
    budget = _budget(epsilon, units, unit)
    classes = own.classes
    features = own.shape[0] if len(own.shape) == 1 else None
    mine = units if pool else int(units * (1 - _POOL))
    chosen = method.choose(
        mine, pool.records if pool else int(units * _POOL / 2), max(2, len(classes)), budget, features=features
    )
    lines = [
        *_head(name, found),
        "[data]",
        'set = "arrays"',
        f"directory = {quoted(str(found.private.resolve().parent))}  # not part of the release",
        *_files(found, found.test is None and pool is not None and pool.labelled),
        f"classes = {_listed(classes)}  # names, in the order of the numbers: rename them as you like",
        *_confirm(),
        "",
        *_privacy(budget, unit),
        *_method(chosen),
    ]
    said = (f"arrays of shape {own.shape}; {len(classes)} classes; unit: a {unit}", f"method: {chosen.why}")
    return Draft(_text(lines), said, _missing(found, chosen, labelled=bool(pool and pool.labelled)))


# ── parts that all recipes have ───────────────────────────────────────────────────────────────────────────────────────


def _head(name: str, found: Found) -> list[str]:
    return [
        f"# Written by `tutelage init`, which looked at {found.private.name}. Read every line: what a recipe says is published",
        "# with the model. Then: tutelage plan FILE (the price), tutelage run FILE --out RUN.",
        f"name = {quoted(name)}",
        "seed = 0",
        'tuned_on = "nothing: written by tutelage init"',
        "",
    ]


def _confirm() -> list[str]:
    return [
        "declared = false  # set to true when you have read classes, columns, ranges and sizes: they become public, on your word",
    ]


def _privacy(budget: Budget, unit: str) -> list[str]:
    return [
        "[privacy]",
        f"epsilon = {budget.epsilon:g}",
        f"delta = {budget.delta:g}  # far below one over the number of units",
        f'unit = "{unit}"  # whom the guarantee is about',
        "",
    ]


def _method(chosen: method.Method) -> list[str]:
    lines = [
        f"# {chosen.why[0].upper()}{chosen.why[1:]}.",
        *([f"# DOUBTFUL: {chosen.doubt}."] if chosen.doubt else []),
        "[teachers]",
        f'kind = "{chosen.teachers}"',
        f"shards = {chosen.shards}  # fixed before anything is counted exactly: it is public",
        "",
        "[aggregation]",
        f'method = "{chosen.method}"',
        f"queries = {chosen.queries}",
        "",
        "[student]",
        f'learner = "{chosen.learner}"',
    ]
    lines += [f'kind = "{chosen.student}"'] if chosen.student else []
    if chosen.learner == "linear":
        lines += ["", "[student.linear]", f"axes = {chosen.axes}", "bins = 20", "clip = 0.25", "rate = 8.0"]
    return [*lines, ""]


def _missing(found: Found, chosen: method.Method, *, labelled: bool) -> tuple[str, ...]:
    said = ["`declared = true`: confirm that what the recipe says may be published"]
    if found.public is None:
        said.append("public records: a student learns from them. Name a file or folder of its own, or declare a share public")
    elif found.test is None and not labelled:
        said.append("public test records with labels: without them nothing can be scored")
    if chosen.doubt:
        said.append(chosen.doubt)
    return tuple(said)


def _unit(id: str | None) -> str:
    if id is None:
        return "record"
    return "institution" if any(word in id.lower() for word in ("hospital", "site", "institution")) else "patient"


def _budget(epsilon: float, units: int, unit: str) -> Budget:
    digits = max(5, math.ceil(math.log10(max(1, units))) + 1)
    return Budget(epsilon, 10.0**-digits, Unit(unit))


def _listed(words: Sequence[str]) -> str:
    return "[" + ", ".join(quoted(word) for word in words) + "]"


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"
