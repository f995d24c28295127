"""Canaries: records that are declared before training and made to be remembered, each under an id of its own.

Guarantees hold for the worst record, and attacks on average ones say nothing about it (Aerni et al. 2024). A canary that is left
out leaves its place on the roster empty: the two data sets are neighbours, and a claim has to hold for them.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final, get_args

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Private
from tutelage.privacy.errors import DataError, RecipeError

Array = npt.NDArray[Any]
Kind = Literal["mislabelled", "out-of-distribution", "blank", "duplicated", "shifted"]
KINDS: tuple[str, ...] = get_args(Kind)
_COPIES = 8  # of a duplicated canary, all under one id
_ID = "canary {:05d}"


@final
@dataclass(frozen=True, repr=False, eq=False)
class Canaries:
    """Hold canaries. Rows with one id are one canary, which is in or out with all of them."""

    inputs: Array  # (rows, ...)
    targets: Array  # (rows, ...)
    units: Array  # (rows,) ids
    kind: str = "given"

    def __post_init__(self) -> None:
        if not len(self.inputs) == len(self.targets) == len(self.units) or not len(self.units):
            raise DataError("`canaries` must hold one id per record, and one record at least. Got others instead.")

    @property
    def ids(self) -> Array:
        """Give every canary's id once, in order."""
        return np.unique(self.units)

    @property
    def first(self) -> Array:
        """Give the place of each canary's first row (canaries,)."""
        return np.unique(self.units, return_index=True)[1]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Canaries({len(self)}, {self.kind})"


def declare(kind: str, private: Private, count: int, *, classes: int = 0, seed: int = 0) -> tuple[Canaries, Private]:
    """Make `count` canaries out of private records, and give the private records that are left.

    The records are chosen by the public seed among those with an id. What they were is taken out of the normal records: nobody
    is in the data twice. `classes` is how many labels there are; masks need none.
    """
    if kind not in KINDS:
        raise RecipeError(f"`kind` must be one of {', '.join(KINDS)}. Got {kind!r} instead.")
    masks = private.targets.ndim > 1
    if (kind == "shifted") != masks:
        raise RecipeError(f"`kind` must be 'shifted' for masks and another for labels. Got {kind!r} instead.")
    able = np.flatnonzero(private.units != "")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(able) // 2:
        raise RecipeError(f"`canaries` must be at least 1 and at most half of the records. Got {count!r} instead.")
    chance = np.random.default_rng([seed, 23])
    places = np.sort(chance.permutation(able)[:count])
    inputs, targets = np.asarray(private.inputs[places]), np.asarray(private.targets[places])
    units = np.asarray([_ID.format(number) for number in range(count)])
    left = private[np.setdiff1d(np.arange(len(private)), places)]
    if kind == "shifted":
        return Canaries(inputs, _shifted(targets), units, kind), left
    if classes < 2:
        raise RecipeError(f"`classes` must be at least 2. Got {classes!r} instead.")
    targets = (targets + chance.integers(1, classes, count)) % classes  # any label but its own
    if kind == "blank":
        inputs = np.zeros_like(inputs)
    elif kind == "out-of-distribution":
        rows = inputs.reshape(count, -1)
        inputs = chance.permuted(rows, axis=1).reshape(inputs.shape)  # the same values in no order
    elif kind == "duplicated":
        inputs, targets, units = (np.repeat(array, _COPIES, axis=0) for array in (inputs, targets, units))
    return Canaries(inputs, targets, units, kind), left


def _shifted(masks: Array) -> Array:
    """Move every mask by a quarter of its first side: it looks like a mask, where nothing is."""
    return np.roll(masks, masks.shape[1] // 4, axis=1)


def halves(models: int, canaries: int, *, seed: int = 0) -> Array:
    """Say which model learns from which canary (models, canaries): each is in exactly half of the models."""
    if isinstance(models, bool) or not isinstance(models, int) or models < 4 or models % 2:
        raise RecipeError(f"`shadows` must be an even number ≥ 4: each canary is in half of them. Got {models!r} instead.")
    chance = np.random.default_rng([seed, 29])
    return np.asarray(np.argsort(chance.random((models, canaries)), axis=0) < models // 2)


def enter(private: Private, canaries: Canaries, out: str | os.PathLike[str]) -> Private:
    """Add canaries to the records of a run that is about to start in `out`, each by a secret fair coin of its own.

    The coins are kept in OUT/private/canaries.npz: a run that goes on has the same ones, and an audit of this one run reads them.
    """
    folder = Path(out) / "private"
    path = folder / "canaries.npz"
    if path.is_file():
        kept, inside = entered(path)
        if not all(np.array_equal(getattr(kept, name), getattr(canaries, name)) for name in ("inputs", "targets", "units")):
            raise RecipeError("`canaries` must be those that this run began with. Got others instead.")
        return private.including(canaries, inside)
    inside = np.array([secrets.randbits(1) for _ in canaries.ids], dtype=bool)
    full = private.including(canaries, inside)  # what it refuses is not written
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        parts = {name: getattr(canaries, name) for name in ("inputs", "targets", "units")}
        np.savez_compressed(file, inside=inside, kind=np.asarray(canaries.kind), **parts)
    return full


def entered(path: Path) -> tuple[Canaries, Array]:
    """Read a run's canaries, and which of them took part."""
    try:
        with np.load(path, allow_pickle=False) as file:
            made = Canaries(file["inputs"], file["targets"], file["units"], str(file["kind"]))
            inside = np.asarray(file["inside"], dtype=bool)
    except (OSError, ValueError, KeyError, EOFError):
        raise DataError("`canaries.npz` must be what a run wrote about its canaries. Got another file instead.") from None
    if inside.shape != made.ids.shape:
        raise DataError("`canaries.npz` must say of every canary whether it took part. Got another file instead.")
    return made, inside
