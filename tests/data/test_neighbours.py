"""One unit moves one shard: every loader, every change to one unit, and the rule before beside it, which moves nearly all.

Shards are compared by what their teachers see: the bytes of all records, in order. Print the table with `pytest -s`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tutelage.data.dataset import Private
from tutelage.data.folders import private_from_folder
from tutelage.data.presets import load
from tutelage.data.schema import Category, Number, TableSchema
from tutelage.privacy.units import Roster

SHARDS = 20
PEOPLE = tuple(f"p{number:02d}" for number in range(60))
ONE, OTHER = "p07", "zz"  # who changes, and whose name sorts elsewhere
SCHEMA = TableSchema((Number("value", 0, 300), Category("colour", ("red", "blue"))), "label", ("no", "yes"), "patient")
Rule = Callable[[Private], Sequence[np.ndarray]]


@dataclass(frozen=True)
class Row:
    """One record: whose it is, which of theirs, what it shows, and its label."""

    unit: str
    which: int
    value: int
    label: int


def rows() -> list[Row]:
    """Give everybody one to three records, and the one who changes three: all first visits, then all second ones, then third."""
    rng = np.random.default_rng(0)
    counts = {unit: 3 if unit == ONE else int(rng.integers(1, 4)) for unit in PEOPLE}
    made = [Row(unit, which, 0, int(rng.integers(2))) for which in range(3) for unit in PEOPLE if which < counts[unit]]
    return [replace(row, value=1 + number) for number, row in enumerate(made)]


def own(data: list[Row]) -> list[int]:
    return [place for place, row in enumerate(data) if row.unit == ONE]


def changed(change: str, data: list[Row]) -> list[Row]:
    """Change everything or something about one unit, and nothing about the others."""
    mine, rest = own(data), [row for row in data if row.unit != ONE]
    match change:
        case "other contents":
            return [replace(row, value=250 - row.value % 50) if row.unit == ONE else row for row in data]
        case "more records":
            return [*data, *(Row(ONE, 3 + number, 200 + number, 1) for number in range(4))]
        case "first one less":
            return data[: mine[0]] + data[mine[0] + 1 :]
        case "none at all":
            return rest
        case "other labels":
            return [replace(row, label=1 - row.label) if row.unit == ONE else row for row in data]
        case "at the end":
            return [*rest, *(data[place] for place in reversed(mine))]
        case "interleaved":
            for number, place in enumerate(mine):
                rest.insert(2 + 31 * number, data[place])
            return rest
        case "another name":
            return [replace(row, unit=OTHER) if row.unit == ONE else row for row in data]
    raise AssertionError(change)


CHANGES = (
    "other contents", "more records", "first one less", "none at all", "other labels", "at the end", "interleaved",
    "another name",
)  # fmt: skip


# ── loaders: rows are written as each format has them, and read ───────────────────────────────────────────────────────


def arrays(data: list[Row], folder: Path, write: object, roster: Roster | None = None) -> Private:
    inputs, labels = np.array([[row.value] for row in data], np.float32), np.array([row.label for row in data])
    return Private.of(inputs, labels, units=[row.unit for row in data], unit="patient", roster=roster)


def listed(data: list[Row], folder: Path, write: object) -> Private:
    return arrays(data, folder, write, Roster.of([*PEOPLE, OTHER]))


def unnamed(data: list[Row], folder: Path, write: object) -> Private:
    """Arrays without ids: a row is a place, and a row that goes leaves a blank."""
    first = {unit: next((row for row in data if row.unit == unit), None) for unit in PEOPLE}
    kept = [place for place, unit in enumerate(PEOPLE) if first[unit] is not None]
    taken = [first[PEOPLE[place]] for place in kept]
    inputs, labels = np.array([[row.value] for row in taken if row], np.float32), np.array([row.label for row in taken if row])
    if len(kept) == len(PEOPLE):
        return Private.of(inputs, labels)
    return Private.of(inputs, labels, units=kept, roster=Roster.places(len(PEOPLE)))


def pictures(data: list[Row], folder: Path, write: object) -> Path:
    image = pytest.importorskip("PIL.Image")
    for row in data:
        path = folder / ("benign", "malignant")[row.label] / f"{row.unit}_{row.which}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.new("L", (3, 3), row.value).save(path)
    return folder


def by_patient(data: list[Row], folder: Path, write: object) -> Private:
    return private_from_folder(
        pictures(data, folder, write), unit="patient", channels=1, classes=("benign", "malignant"), size=(3, 3)
    )


def by_file(data: list[Row], folder: Path, write: object) -> Private:
    """Every file is a unit: the one who changes is one file."""
    single = [row for row in data if row.unit not in (ONE, OTHER) or row.which in (0, 3)]
    return private_from_folder(pictures(single, folder, write), channels=1, classes=("benign", "malignant"), size=(3, 3))


def volumes(data: list[Row], folder: Path, write: object) -> Private:
    nibabel = pytest.importorskip("nibabel")
    from tutelage.data.volumes import Volumes

    lines = []
    for row in data:
        image = np.random.default_rng(row.value).random((4, 4, 4)).astype(np.float32)
        for part, array in (("imagesTr", image), ("labelsTr", (image > 0.3 + row.label / 3).astype(np.uint8))):
            (folder / part).mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), folder / part / f"{row.unit}-{row.which}.nii")
        lines.append(f"{row.unit}-{row.which},{row.unit}")
    (folder / "patients.csv").write_text("\n".join(lines))
    return Volumes.decathlon(folder, size=(4, 4, 4)).private()


def stays(data: list[Row], folder: Path, write: Callable[..., str]) -> Private:
    """UCI's table, in its exact format, with others enough for a pool."""

    def stay(number: int, value: int, label: int) -> dict[str, str]:
        return {
            "patient_nbr": str(number),
            "num_medications": str(value % 80 + 1),
            "num_lab_procedures": str(value % 99 + 1),
            "readmitted": ("NO", "<30")[label],
        }

    hidden = [number for number in range(10_000) if _is_private(number)]
    numbers = dict(zip([*PEOPLE, OTHER], hidden, strict=False))
    table = [stay(numbers[row.unit], row.value, row.label) for row in data]
    table += [stay(number, number, number % 2) for number in range(10_000, 13_500) if not _is_private(number)]
    (folder / "diabetes130").mkdir(parents=True)
    (folder / "diabetes130" / "diabetic_data.csv").write_text(write(*table))
    return load("diabetes", folder, download=False, verify=False).private


def tables(data: list[Row], folder: Path, write: object) -> Private:
    """A clinic's CSV; the one who changes also has odd cells, a broken line and a label of no class."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["patient,value,colour,label"]
    for row in data:
        colour = ("red", "blue")[row.label] if row.unit != ONE else ("purple", '"an open quote', "")[row.which % 3]
        lines.append(f"{row.unit},{row.value},{colour},{('no', 'yes')[row.label]}")
        if row.unit == ONE and row.value % 2:
            lines.append(f"{row.unit},not a number,red,perhaps,too,many,cells")
    (folder / "clinic.csv").write_text("\n".join(lines), encoding="utf-8")
    return Private.from_csv(folder / "clinic.csv", SCHEMA, unit="patient").labelled(2)


def columns(data: list[Row], folder: Path, write: object) -> Private:
    """The same as Parquet, where one odd cell makes a column one of words, or numbers of floats."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder.mkdir(parents=True, exist_ok=True)
    odd = any(row.unit == ONE and row.value > 199 for row in data)
    values = [str(row.value) if odd else row.value for row in data]
    labels = [float(row.label) if len(data) % 2 else row.label for row in data]
    table = {
        "patient": [row.unit for row in data],
        "value": values,
        "colour": [str(row.value % 2) for row in data],
        "label": labels,
    }
    parquet.write_table(arrow.table(table), folder / "clinic.parquet")
    numbered = replace(SCHEMA, names=("0", "1"), columns=(SCHEMA.columns[0], Category("colour", ("0", "1"))))
    return Private.from_parquet(folder / "clinic.parquet", numbered, unit="patient").labelled(2)


def archives(data: list[Row], folder: Path, write: object) -> Private:
    folder.mkdir(parents=True, exist_ok=True)
    images = np.array([[[row.value]] for row in data], np.uint8)
    words = np.array([("no", "yes")[row.label] for row in data])
    np.savez(folder / "clinic.npz", inputs=images, targets=words, units=np.array([row.unit for row in data]))
    return Private.from_npz(folder / "clinic.npz", classes=("no", "yes"), unit="patient")


def listed_pictures(data: list[Row], folder: Path, write: object) -> Private:
    """Image folders with a list of patients; a line of the one who changes is odd, and one image of theirs is damaged."""
    by_patient(data, folder, write)
    names = sorted((path for path in folder.rglob("*.png")), key=str)
    lines = [f"{path.stem},{path.stem.partition('_')[0]}" for path in names]
    lines.append(f"gone,{ONE},more" if any(row.unit == ONE for row in data) else "")
    (folder / "patients.csv").write_text("\n".join(lines))
    for path in names:
        if path.stem == f"{ONE}_0" and len(data) % 2:
            path.write_bytes(b"damaged")
    return private_from_folder(folder, unit="patient", channels=1, classes=("benign", "malignant"), size=(3, 3))


def masked_pictures(data: list[Row], folder: Path, write: object) -> Private:
    """Pictures with masks and a list of patients; the third picture of the one who changes is damaged."""
    pytest.importorskip("PIL.Image")
    from tests.data.made import pair

    for row in data:
        name = f"{row.unit}-{row.which}"
        pair(folder, name, row.value, shape=(6, 6), level=1 + row.label)
        if row.unit == ONE and row.which == 2 and row.value > 200:
            (folder / "masks" / f"{name}.png").write_bytes(b"damaged")
    (folder / "patients.csv").write_text("\n".join(f"{row.unit}-{row.which},{row.unit}" for row in data))
    return Private.from_pairs(folder, size=(6, 6), labels=(1,))


def dicom_series(data: list[Row], folder: Path, write: object) -> Private:
    """Series whose own headers say whose they are."""
    pytest.importorskip("pydicom")
    from tests.data.made import affine, blob, nifti, series

    for row in (row for row in data if row.unit in (*PEOPLE[:20], ONE, OTHER)):
        image, mask = blob((4, 4, 2), row.value)
        mask[1:3, 1:3] = 1  # two slices are too few for an ellipse: there would be nothing to label
        name = f"{row.unit}-{row.which}"
        series(folder / "images" / name, np.rint(image), affine((1, 1, 1)), patient=row.unit, shuffle=row.value)
        nifti(folder / "labels" / f"{name}.nii.gz", mask * (1 + row.label), affine((1, 1, 1)))
    return Private.from_dicom(folder, size=(4, 4, 4), labels=(1,))


def _is_private(number: int) -> bool:
    return int.from_bytes(hashlib.sha256(f"0:{number}".encode()).digest()[:8], "big") / 2**64 >= 0.2


LOADERS: dict[str, Callable[..., Private]] = {
    "arrays with ids": arrays,
    "arrays with a roster": listed,
    "arrays without ids": unnamed,
    "image folders, by patient": by_patient,
    "image folders, by file": by_file,
    "volumes": volumes,
    "Diabetes-130": stays,
    "CSV": tables,
    "Parquet": columns,
    "npz": archives,
    "image folders, with a list": listed_pictures,
    "pictures with masks": masked_pictures,
    "DICOM series": dicom_series,
}
# What a loader has no way to express: rows of files have the order of their names, and arrays without ids have no other id.
NOT = {
    "arrays without ids": ("more records", "first one less", "at the end", "interleaved", "another name"),
    "image folders, by patient": ("at the end", "interleaved"),
    "image folders, by file": ("more records", "first one less", "at the end", "interleaved"),
    "volumes": ("at the end", "interleaved"),
    "image folders, with a list": ("at the end", "interleaved"),
    "pictures with masks": ("at the end", "interleaved"),
    "DICOM series": ("at the end", "interleaved", "other contents", "first one less"),
}


def now(private: Private) -> Sequence[np.ndarray]:
    return private.split(SHARDS).indices


def before(private: Private) -> Sequence[np.ndarray]:
    """Broken twin: places in the order in which units first appear, dealt evenly."""
    _, first, which = np.unique(private.units, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    keys = [hashlib.blake2b(f"0:{place}".encode(), digest_size=16).digest() for place in range(len(first))]
    home = np.empty(len(first), dtype=np.int64)
    home[sorted(range(len(first)), key=keys.__getitem__)] = np.arange(len(first)) % SHARDS
    return [np.flatnonzero(home[rank][which] == shard) for shard in range(SHARDS)]


def moved(one: Private, other: Private, rule: Rule) -> int:
    """Count the shards whose records differ."""

    def seen(data: Private) -> list[bytes]:
        return [data.inputs[part].tobytes() + b"|" + data.targets[part].tobytes() for part in rule(data)]

    return sum(here != there for here, there in zip(seen(one), seen(other), strict=True))


def test_one_unit_moves_one_shard(tmp_path: Path, diabetes_table: Callable[..., str]) -> None:
    data, found = rows(), {}
    for name, loader in LOADERS.items():
        home = tmp_path / name.replace(" ", "")
        here = loader(data, home / "here", diabetes_table)
        for change in CHANGES:
            if change in NOT.get(name, ()):
                continue
            there = loader(changed(change, data), home / change.replace(" ", ""), diabetes_table)
            found[name, change] = moved(here, there, now), moved(here, there, before)
    print(f"\n{'shards of ' + str(SHARDS) + ' that change: now | before':32}" + "".join(f"{change:>17}" for change in CHANGES))
    for name in LOADERS:
        cells = [found.get((name, change)) for change in CHANGES]
        print(f"{name:32}" + "".join(f"{'-' if cell is None else f'{cell[0]} | {cell[1]}':>17}" for cell in cells))
    for (name, change), (new, _) in found.items():
        assert new <= (2 if change == "another name" else 1), (name, change, new)  # another id counts as two units
        assert new >= (0 if change == "interleaved" else 1), (name, change, new)  # where they are among their own may not matter
    for name in LOADERS:
        assert max(old for (loader, _), (_, old) in found.items() if loader == name) >= SHARDS // 2, name  # the twin is caught
