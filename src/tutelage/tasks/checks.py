"""What a run refuses before anything is written: mistakes that public facts show must not cost any budget.

Public are kinds, shapes, numbers of classes, and whatever stands in public data; and that no private record is among that, which
the guarantee takes for granted (docs/guide/data.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from tutelage.data import overlap
from tutelage.data.accepted import numbers
from tutelage.data.dataset import Private, Public
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Adjacency
from tutelage.runs import RunFolder
from tutelage.tasks.task import IterativeStudent

#: What may lie under `private/` of a run that was killed before it opened its ledger.
_BEGUN = ("release", "run.lock", "book.sqlite.lock", "scans", "canaries.npz")


def check_place(out: str | os.PathLike[str], data: Sequence[str | os.PathLike[str]] = ()) -> None:
    """Refuse to write a run into a folder of other things or of `data`: it would change the mode of what is there."""
    folder, place = RunFolder(out), Path(out).resolve()
    for other in (Path(one).resolve() for one in data):
        if place == other or other in place.parents or place in other.parents:
            raise RecipeError(f"`out` must lie apart from the folders of the data. Got {str(folder.root)!r} instead.")
    try:
        held, inside = _names(folder.root), _names(folder.private)
        whole = folder.begun or set(inside) <= set(_BEGUN)
    except OSError:
        return  # not to be read: to write there will fail, with the reason
    strangers = set(held) - {folder.release.name, folder.private.name}
    if strangers or not whole:
        raise RecipeError(f"`out` must be a new or empty folder, or a run's. Got {str(folder.root)!r} with others instead.")


def _names(folder: Path) -> list[str]:
    """List a folder, without what is hidden: some tool's."""
    return [name for name in os.listdir(folder) if not name.startswith(".")] if os.path.isdir(folder) else []


def check_kinds(private: Any, public: Any, test: Any, *, teachers: Any, student: Any, codec: Any, budget: Any) -> None:
    """Refuse what is not of its kind: two that were exchanged, an object where what makes it is asked for, nothing."""
    for name, value, kind in (("private", private, Private), ("budget", budget, Budget)):
        if not isinstance(value, kind):
            raise RecipeError(f"`{name}` must be {kind.__name__}. Got {described(value)} instead.")
    check_public(public, test, student=student)
    if isinstance(teachers, type) or not (hasattr(teachers, "fit") and hasattr(teachers, "vote")):
        raise RecipeError(f"`teachers` must have a `fit` and a `vote`. Got {described(teachers)} instead.")
    if isinstance(codec, type) or not hasattr(codec, "bound"):
        raise RecipeError(f"`codec` must be a codec, with a `bound`. Got {described(codec)} instead.")


def check_oracle(oracle: Any) -> None:
    """Refuse what answers no queries."""
    if not all(hasattr(oracle, name) for name in ("codec", "ask", "known", "remaining")):
        raise RecipeError(f"`oracle` must answer queries, as a Curator does. Got {described(oracle)} instead.")


def check_public(public: Any, test: Any, *, student: Any) -> None:
    """Refuse what is not of its kind among public things; a pool that is left out may be one that the student does without."""
    for name, value in (("public", public), ("test", test)):
        if not (value is None or isinstance(value, Public)):
            raise RecipeError(f"`{name}` must be Public, or None. Got {described(value)} instead.")
    if not callable(student):
        raise RecipeError(f"`student` must make a new student at every call, as a lambda does. Got {described(student)} instead.")


def check_units(private: Private, budget: Budget) -> None:
    """Refuse data of another unit than the budget's."""
    if budget.adjacency != Adjacency.REPLACE_ONE:  # a unit that leaves a shard turns its teacher into anything
        raise RecipeError(f"`adjacency` must be 'replace-one': teachers are trained here. Got {str(budget.adjacency)!r} instead.")
    if private.unit != budget.unit.name:  # shards that keep records apart may still divide a patient
        raise RecipeError(f"`unit` of the budget must be the data's, {private.unit!r}. Got {budget.unit.name!r} instead.")


def check_records(private: Private | None, public: Public | None, test: Public | None) -> None:
    """Refuse records of several shapes or types, a private one among public ones, and targets of several shapes."""
    declared = [data.schema for data in (private, public, test) if data is not None and data.schema is not None]
    if any(other != declared[0] for other in declared[1:]):
        raise RecipeError(
            "`schema` of private, public and test data must be one: they are read alike. Got different ones instead."
        )
    _check_inputs(private, public, test)
    if private is None:  # somebody else's: whoever opened the oracle compared them
        return
    overlap.refuse(private, public, test)
    target = private.targets.shape[1:]
    for name, data in (("public", public), ("test", test)):
        if data is not None and data.targets is not None and data.targets.shape[1:] != target:
            got = data.targets.shape[1:]
            raise RecipeError(f"`{name}` must have targets of the private ones' shape {target}. Got {got} instead.")


def _check_inputs(private: Private | None, public: Public | None, test: Public | None) -> None:
    """Refuse inputs of another shape, type or scale than the pool's."""
    if public is None:
        return
    wanted = public.inputs.shape[1:]
    for name, data in (("private", private), ("test", test)):
        if data is not None and numbers(data.inputs.dtype) != numbers(public.inputs.dtype):
            got = data.inputs.dtype
            raise RecipeError(f"`{name}` must hold the pool's kind of numbers, {public.inputs.dtype}. Got {got} instead.")
        if data is not None and _bare(data.inputs.shape[1:]) != _bare(wanted):
            raise RecipeError(f"`{name}` must have records of the pool's shape {wanted}. Got {data.inputs.shape[1:]} instead.")
    if test is not None:
        try:
            public.takes()(test.inputs)  # as the student will be asked to
        except DataError as error:
            raise RecipeError(f"`test` must be what a model of the pool takes. Got «{error}» instead.") from None


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Leave out the one channel of grey images, which may come without it."""
    return shape[1:] if len(shape) > 2 and shape[0] == 1 else shape


def made(student: Any) -> Any:
    """Make the student that will be published."""
    learner = student()
    if not (hasattr(learner, "fit") or isinstance(learner, IterativeStudent)):
        raise RecipeError(
            f"`student` must make students, which have a `fit` or a `query`. Got one that makes {described(learner)} instead."
        )
    return learner


def check_classes(number: int, public: Public, test: Public | None, *, teachers: Any, learner: Any, shares: bool) -> None:
    """Refuse public labels above the codec's classes, and a student that has no class for what may be answered.

    Who may vote for a class or learn it is read from teachers and student. A private label of no class is left out, not refused.
    """
    if shares and not getattr(learner, "learns_shares", True):
        raise RecipeError(
            f"`student` must be one that learns shares where the method is 'mean'. Got {described(learner)} instead."
        )
    voted, learned = number_of_classes(teachers), number_of_classes(learner)
    if voted is not None and voted > number:
        raise RecipeError(f"`codec` must have a class for each of the teachers' {voted}. Got {number} instead.")
    if learned is not None and (learned != number if shares else learned < number):
        raise RecipeError(f"`student` must have as many classes as the codec, {number}. Got {learned} instead.")
    for name, data in (("public", public), ("test", test)):
        if data is not None and data.targets is not None and not _fit(data.targets, number):
            raise RecipeError(f"`codec` must have a class for every label of `{name}`. Got {number} classes instead.")


def _fit(labels: npt.NDArray[Any], classes: int) -> bool:
    """Tell whether all are numbers of classes; a number below 0 may stand for a public label that is not known."""
    return labels.dtype.kind in "biuf" and bool(((labels < classes) & (labels % 1 == 0)).all())


def number_of_classes(of: Any) -> int | None:
    """Give the number of classes that teachers or a student were made for, where they or their network say it."""
    for holder in (of, getattr(of, "network", None)):
        number = getattr(holder, "classes", None)
        if isinstance(number, int):
            return number
    return None


def described(value: Any) -> str:
    """Name what was given, and show none of it: it may be private."""
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of {type(value).__name__}"
