"""Recipes for images and volumes with masks: sizes and the bound of a mask are read off public masks, never off private ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tutelage.data import dicom, pairs
from tutelage.data.reading import Reading
from tutelage.data.volumes import Volumes
from tutelage.drafting import draft as whole
from tutelage.drafting.found import Found
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Unit
from tutelage.recipes.written import quoted

_LOOKED = 40  # public masks that are looked at
_MOST = {2: 128, 3: 48}  # of a side, that a small machine can train on
_STUDENT = (
    "[student]",
    'learner = "latent"',
    "widths = [8, 16, 32]",
    "",
    "[student.latent]  # it learns the mean shape, then the codes, then its own masks",
    "steps = 300",
    "",
    "[student.latent.begin]",
    "steps = 400",
    "",
    "[student.latent.again]",
    "steps = 400",
    "",
)


def draft(found: Found, name: str, *, epsilon: float, size: int | None) -> whole.Draft:
    """Write a recipe for pairs, NIfTI or DICOM."""
    sides = 2 if found.kind == "pairs" else 3
    own = _volumes(found.kind, found.private, sides)
    people = len(set(own.patients.tolist()))
    shards = max(2, _rounded(people))
    seen = next((path for path in (found.test, found.public) if path is not None and _labelled(found.kind, path, sides)), None)
    box, norm = _measured(found.kind, seen, sides) if seen is not None else ((32,) * sides, None)
    box = (size,) * sides if size is not None else box
    pool = len(_volumes(found.kind, found.public, sides)) if found.public is not None else 0
    queries = max(1, min(pool or 36, 60))
    budget = Budget(epsilon, 10.0 ** -max(5, math.ceil(math.log10(max(1, people))) + 1), Unit("patient"))
    wide = " ".join(["channels = 1  # 1: grey, 3: colour"]) if sides == 2 else ""
    lines = [
        *whole._head(name, found),
        "[data]",
        f'set = "{found.kind}"',
        f"directory = {quoted(str(found.private.resolve()))}  # private; not part of the release",
        *_places(found),
        f"size = [{', '.join(map(str, box))}]  # {_sized(sides, seen)}",
        *([wide] if wide else ["# spacing = [1.0, 1.0, 1.0]  # millimetres that all are brought to", _window(found.kind)]),
        "# labels = [1]  # which numbers of a mask are the object; without it all but 0",
        *_whose(found.private, found.kind),
        *whole._confirm(),
        "",
        *whole._privacy(budget, "patient"),
        f"# {shards} teachers for {people} or so patients: the noise on their mean falls with their number.",
        "[teachers]",
        'kind = "unet"',
        f"shards = {shards}  # fixed before anything is counted exactly: it is public",
        "widths = [8, 16, 32]",
        "steps = 200",
        f"batch = {8 if sides == 2 else 2}",
        "rate = 0.003",
        'augmentation = "volumes"',
        "",
        "[codec]",
        'kind = "flips"  # masks as they are, under a bound for masks',
        'reference = "nothing"',
        _norm(norm, box),
        "",
        "[codec.filter]",
        'kind = "dct"',
        f"kept = {min(3000, math.prod(box) // 8)}",
        "",
        "[aggregation]",
        'method = "mean"',
        f"queries = {queries}",
        "",
        *_STUDENT,
    ]
    missing = ["`declared = true`: confirm that what the recipe says may be published"]
    missing += [] if found.public else ["public images: a student learns from them. Give them a folder of their own, public/"]
    missing += [] if found.test else ["public test images with masks: test/"]
    missing += [] if norm else ["`codec.norm`: the root of the object's usual size in pixels or voxels, from the literature"]
    missing += ["fewer than 50 patients: expect the mean shape to be as good as the student"] if people < 50 else []
    said = (
        f"{found.kind}: {len(own)} private scans of {people} patients, {pool} public ones",
        f"teachers: {shards}, one per patient or so",
    )
    return whole.Draft(whole._text(lines), said, tuple(missing))


def _volumes(kind: str, place: Path, sides: int, reading: Reading | None = None) -> Volumes:
    find: Callable[..., Volumes] = {"pairs": pairs.find, "dicom": dicom.find}.get(kind, Volumes.decathlon)
    how: dict[str, Any] = {} if reading is None else {"reading": reading}
    return find(place, size=(8,) * sides, unlabelled=True, guess=False, **how)


def _labelled(kind: str, place: Path, sides: int) -> bool:
    found = _volumes(kind, place, sides)
    return bool(len(found)) and found.labelled


def _measured(kind: str, place: Path, sides: int) -> tuple[tuple[int, ...], float]:
    """Give the box about the middle that holds the object of public masks, and the root of its usual size."""
    found, reach, sizes = _volumes(kind, place, sides), [], []
    for scan in found.scans[:_LOOKED]:
        mask = _mask(scan.mask, sides)
        if not mask.any():
            sizes.append(0.0)
            continue
        places = np.argwhere(mask)
        middle = (np.array(mask.shape) - 1) / 2
        reach.append((2 * np.abs(places - middle).max(axis=0) + 2, mask.shape))
        sizes.append(float(mask.sum()) / math.prod(mask.shape))
    if sides == 2:  # pictures are resized, not cut
        shapes = [shape for _, shape in reach]
        wide = max(8, min(_MOST[2], max(max(shape) for shape in shapes) // 4 * 4)) if shapes else 32
        return (wide, wide), math.sqrt(float(np.mean(sizes)) * wide * wide)
    ends = np.max([end for end, _ in reach], axis=0) if reach else np.array([32.0] * 3)
    box = tuple(int(min(_MOST[3], max(8, math.ceil(end / 4) * 4))) for end in ends.tolist())
    voxels = [float(_mask(scan.mask, sides).sum()) for scan in found.scans[:_LOOKED]]
    return box, math.sqrt(float(np.mean(voxels)))


def _mask(path: Path | None, sides: int) -> Any:
    assert path is not None
    if sides == 2:
        from PIL import Image

        with Image.open(path) as image:
            return np.asarray(image if image.mode in ("P", "L", "1", "I", "I;16") else image.convert("L")) > 0
    from tutelage.data.volumes import load_nifti

    return load_nifti(path, "a public mask")[0] > 0.5


def _norm(norm: float | None, box: tuple[int, ...]) -> str:
    why = "the root of the object's usual size"
    if norm is None:
        return f"norm = {math.sqrt(math.prod(box) / 20):.0f}.0  # GUESS: {why}; from the literature, never from private masks"
    return f"norm = {max(1.0, round(norm, 1))}  # {why}, from public masks"


def _sized(sides: int, seen: Path | None) -> str:
    what = (
        "height and width that all are resized to"
        if sides == 2
        else "voxels about the middle that hold the organ; multiples of 4"
    )
    return f"{what}, {'from public masks' if seen is not None else 'GUESSED: no public masks were found'}"


def _window(kind: str) -> str:
    usual = "[-160.0, 240.0]  # a window of values (CT: soft tissue)"
    return f"# intensity = {usual}; without it every volume has its own mean and spread" if kind != "pairs" else ""


def _places(found: Found) -> list[str]:
    lines = []
    for key, path in (("public_directory", found.public), ("test_directory", found.test)):
        if path is None:
            lines.append(f'# {key} = "..."  # MISSING: a folder of public {"scans" if key[0] == "p" else "scans with masks"}')
        else:
            lines.append(f"{key} = {quoted(str(path.resolve()))}")
    return lines


def _whose(folder: Path, kind: str) -> list[str]:
    if (folder / "patients.csv").is_file():
        return ["# patients.csv says whose scan is whose."]
    if kind == "dicom":
        return ["# Whose scan it is: the PatientID of its header. A file patients.csv (name,patient) goes before that."]
    return [
        "# Every scan counts as a patient of its own. If somebody has two, write patients.csv (name,patient): else ε is wrong."
    ]


def _rounded(count: int) -> int:
    """Round to one digit, downwards, and small numbers to an even one: a public figure that does not follow single patients."""
    step = 10 ** max(0, int(math.log10(max(1, count))))
    return count // step * step if count >= 10 else count // 2 * 2
