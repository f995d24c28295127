"""Whose scan each one is: by a folder's own list, patients.csv (name,patient), or by the names of the public sets."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tutelage.privacy.errors import DataError

# Brats18_<site>_<patient>_<visit> in 2017 to 2019; BraTS20_Training_<patient> and BraTS2021_<patient> have no visits.
_VISIT = re.compile(r"^(brats1[789]_.+)_\d+$", re.IGNORECASE)
_SIDE = re.compile(r"^hippocampus_(\d+)$", re.IGNORECASE)
_PATIENTS = "patients.csv"
_TOLD = 10  # numbers in a message at most


def listed(root: Path | str) -> bool:
    """Tell whether a folder says itself whose scans are whose."""
    return (Path(root) / _PATIENTS).is_file()


def patients(root: Path, names: Iterable[str], *, guess: bool = True) -> dict[str, tuple[str, ...]]:
    """Tell whose scan each one is: by the folder's own list, if it is on that, or by its name, as public sets have them."""
    if not listed(root):
        return {name: (_whose(name) if guess else name,) for name in names}
    owners, _ = _list(root)
    return {name: owners[name] for name in names if name in owners}


def given(root: Path) -> dict[str, tuple[str, ...]] | None:
    """Read a folder's own list, if it has one: whose each file is."""
    return _list(root)[0] if listed(root) else None


def _list(root: Path) -> tuple[dict[str, tuple[str, ...]], int]:
    """Read the folder's own list: whose each scan is, and how many lines a public list must not have.

    No line changes what another one says: each is read by itself, one that is not name,patient lists nobody, and a scan that is
    listed for two people is a record of both. Bytes that are not UTF-8 stay what they are, as in names of files.
    """
    try:
        text = (root / _PATIENTS).read_bytes().decode("utf-8-sig", "surrogateescape")  # spreadsheets put a mark first
    except OSError as error:
        raise DataError(f"`{_PATIENTS}` must be a readable file. Got {type(error).__name__} instead.") from None
    owners: dict[str, tuple[str, ...]] = {}
    odd = 0
    for line in text.split("\n"):
        cells = _cells(line.rstrip("\r"))
        if cells == ["name", "patient"] or not line.strip():
            continue
        if len(cells) != 2 or not all(cells):
            odd += 1
            continue
        name, patient = cells
        odd += name in owners or any("\udc80" <= letter <= "\udcff" for letter in line)
        owners[name] = tuple(dict.fromkeys((*owners.get(name, ()), patient)))
    return owners, odd


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for row in csv.reader([line]) for cell in row]
    except csv.Error:  # a cell that is longer than others may be, or a line within a line
        return []


def _whose(name: str) -> str:
    """Read a patient out of a name of the public sets."""
    if visit := _VISIT.match(name):
        return visit[1].lower()  # as the pattern reads it
    side = _SIDE.match(name)
    return f"hippocampus patient {(int(side[1]) + 1) // 2}" if side else name


def faults(root: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Count the lines of patients.csv without a scan, and number the scans without a line."""
    if not listed(root):
        return ()
    (owners, odd), found = _list(root), []
    if odd:
        found.append(
            f"`{_PATIENTS}` must have one line name,patient in UTF-8 for every scan, and no others. "
            f"Got {odd} lines of another form, or for a scan that has one already, instead."
        )
    if extra := sum(name not in names for name in owners):
        found.append(f"`{_PATIENTS}` must list scans that are there. Got {extra} lines without a scan instead.")
    missing = [name not in owners for name in names]  # in the order of their numbers
    if any(missing):
        found.append(
            f"`{_PATIENTS}` must give every scan once, as name,patient. Got {sum(missing)} scans that it does not name, numbers "
            f"{numbers(missing)} of the sorted folder, instead."
        )
    return tuple(found)


def numbers(chosen: Iterable[bool]) -> str:
    """List the places that are chosen, from 1: the first few of them."""
    places = [str(number) for number, one in enumerate(chosen, start=1) if one]
    return ", ".join([*places[:_TOLD], *(["..."] if len(places) > _TOLD else [])])
