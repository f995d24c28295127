"""Guess what the columns of a table are: the label, whose row it is, categories and ranges. Its owner reads them before a run.

Ranges are rounded outwards and do not follow single rows; a category that fewer than ten people have is left to "other".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from tutelage.data.schema import Category, Number, number, written
from tutelage.data.tables import Cells

_IDS = ("patient", "subject", "person", "mrn", "case", "customer", "client", "user", "hospital", "site")
_LABELS = ("label", "class", "target", "diagnosis", "outcome", "y", "income", "readmitted", "survived", "died", "death", "event")
_KEYS = ("id", "_nr", "_no", "key", "uuid")
_FEW, _MOST, _RARE = 12, 50, 10  # values of a number that are categories; categories at most; people who must have one


@final
@dataclass(frozen=True)
class Guess:
    """Hold what a table seems to be. `left_out` says why, by the name of a column."""

    label: str
    id: str | None
    columns: tuple[Number | Category, ...]
    classes: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    rare: tuple[str, ...]  # columns some of whose categories were left to "other"


def guess(cells: Cells, *, label: str | None = None, id: str | None = None) -> Guess:
    """Look at every column of a table."""
    names = list(cells.columns)
    whose = id or id_column(names)
    chosen = label or label_column([name for name in names if name != whose])
    found: list[Number | Category] = []
    left: list[tuple[str, str]] = []
    rare: list[str] = []
    for name in names:
        if name in (whose, chosen):
            continue
        made, why, some = _column(name, cells.columns[name], whose and cells.columns[whose])
        if made is None:
            left.append((name, why))
        else:
            found.append(made)
            rare += [name] if some else []
    return Guess(chosen, whose, tuple(found), classes(cells.columns[chosen]), tuple(left), tuple(rare))


def id_column(names: Sequence[str]) -> str | None:
    """Find the column that says whose row it is, by its name."""
    plain = {name: name.lower().replace("-", "_") for name in names}
    ranked = [name for word in _IDS for name in names if plain[name].startswith(word) or plain[name].endswith(f"_{word}")]
    return next(iter([*ranked, *(name for name in names if plain[name] in ("id", "pid", "uid"))]), None)


def label_column(names: Sequence[str]) -> str:
    """Find the label by its name; else it is the last column."""
    plain = {name.lower(): name for name in names}
    return next((plain[word] for word in _LABELS if word in plain), names[-1])


def classes(cells: Sequence[Any]) -> tuple[str, ...]:
    """List the names of the classes, by how they are written; a missing label is none."""
    counted = Counter(one for one in written(cells) if one)
    return tuple(sorted(counted, key=_order))


def _order(word: str) -> tuple[float, str]:
    value = number(word)
    return (value if math.isfinite(value) else math.inf, word)


def _column(name: str, cells: Sequence[Any], ids: Sequence[Any] | None) -> tuple[Number | Category | None, str, bool]:
    texts = written(cells)
    words = [word for word in texts if word]
    if not words:
        return None, "it is empty", False
    if name.lower().endswith(_KEYS) and len(set(words)) > 0.9 * len(words):
        return None, "it names rows, and does not describe them", False
    values = np.array([number(word) for word in words])
    finite = values[np.isfinite(values)]
    counted = Counter(words)
    if len(finite) > 0.9 * len(words) and len(counted) > _FEW:
        low, high = _range(finite)
        return (Number(name, low, high), "", False) if low < high else (None, "it has one value", False)
    people = counted if ids is None else Counter(word for word, _ in set(zip(texts, written(ids), strict=True)))
    common = [word for word in counted if people[word] >= _RARE]
    if len(counted) > _MOST and sum(counted[word] for word in common) < 0.5 * len(words):
        return None, f"{len(counted)} different words, as a name or a free text has", False
    kept = sorted(sorted(common, key=lambda word: -counted[word])[:_MOST], key=_order)
    if len(kept) < 2 and len(counted) < 2:
        return None, "it has one value", False
    if not kept:
        return None, "no word of it is ten people's", False
    return Category(name, tuple(kept)), "", len(kept) < len(counted)


def _range(values: Any) -> tuple[float, float]:
    """Round the range of nearly all values outwards, to one digit: it must not follow one row."""
    low, high = (float(end) for end in np.quantile(values, (0.01, 0.99)))
    if low >= 0 and low < 0.3 * high:
        low = 0.0
    return (_rounded(low, math.floor), _rounded(high, math.ceil)) if high > low else _ends(values)


def _ends(values: Any) -> tuple[float, float]:
    return _rounded(float(values.min()), math.floor), _rounded(float(values.max()), math.ceil)


def _rounded(value: float, up: Any) -> float:
    if value == 0:
        return 0.0
    step = 10.0 ** math.floor(math.log10(abs(value)))
    found = float(up(value / step) * step)
    return float(f"{found:.6g}")
