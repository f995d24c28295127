"""What a transfer refuses before anything is written: mistakes that can be told from public facts must not cost any budget.

Public are kinds, shapes, numbers of classes, and whatever stands in public data; and that no private record is among that, which
the guarantee takes for granted (docs/guide/data.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from tutelage.codecs.corrections import Corrections
from tutelage.codecs.votes import Votes
from tutelage.data import overlap
from tutelage.data.accepted import numbers
from tutelage.data.dataset import Private, Public
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Adjacency
from tutelage.runs import RunFolder


def check(private: Any, public: Any, test: Any, *, teachers: Any, student: Any, codec: Any, budget: Any, queries: int) -> None:
    """Refuse arguments of a wrong kind, data of another unit than the budget's, and a codec for other targets."""
    check_kinds(private, public, test, teachers=teachers, student=student, codec=codec, budget=budget)
    check_fit(private, public, budget, queries, codec)
    check_codec(codec, private)


#: What may lie under `private/` of a run that was killed before it opened its ledger.
_BEGUN = ("release", "run.lock", "book.sqlite.lock", "scans")


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
    for name, value, kind in (("private", private, Private), ("public", public, Public), ("budget", budget, Budget)):
        if not isinstance(value, kind):
            raise RecipeError(f"`{name}` must be {kind.__name__}. Got {_named(value)} instead.")
    if not (test is None or isinstance(test, Public)):
        raise RecipeError(f"`test` must be Public, or None. Got {_named(test)} instead.")
    if isinstance(teachers, type) or not (hasattr(teachers, "fit") and hasattr(teachers, "vote")):
        raise RecipeError(f"`teachers` must have a `fit` and a `vote`. Got {_named(teachers)} instead.")
    if isinstance(codec, type) or not hasattr(codec, "bound"):
        raise RecipeError(f"`codec` must be a codec, with a `bound`. Got {_named(codec)} instead.")
    if not callable(student):
        raise RecipeError(f"`student` must make a new student at every call, as a lambda does. Got {_named(student)} instead.")


def check_fit(private: Private, public: Public, budget: Budget, queries: int, codec: Any) -> None:
    """Refuse data of another unit than the budget's, and more questions than there are records."""
    rounds = isinstance(codec, Corrections)  # no records are asked about: there may be as many as one likes
    if not (isinstance(queries, int) and queries >= 1 and (rounds or queries <= len(public))):
        raise RecipeError(f"`queries` must be between 1 and the public pool's {len(public)} records. Got {queries!r} instead.")
    if budget.adjacency != Adjacency.REPLACE_ONE:  # a unit that leaves a shard turns its teacher into anything
        raise RecipeError(f"`adjacency` must be 'replace-one': teachers are trained here. Got {str(budget.adjacency)!r} instead.")
    if private.unit != budget.unit.name:  # shards that keep records apart may still divide a patient
        raise RecipeError(f"`unit` of the budget must be the data's, {private.unit!r}. Got {budget.unit.name!r} instead.")


def check_records(private: Private, public: Public, test: Public | None) -> None:
    """Refuse records of several shapes or types, a private one among public ones, and targets of several shapes."""
    wanted, target = public.inputs.shape[1:], private.targets.shape[1:]
    declared = [data.schema for data in (private, public, test) if data is not None and data.schema is not None]
    if any(other != declared[0] for other in declared[1:]):
        raise RecipeError(
            "`schema` of private, public and test data must be one: they are read alike. Got different ones instead."
        )
    for name, data in (("private", private), ("test", test)):
        if data is not None and numbers(data.inputs.dtype) != numbers(public.inputs.dtype):
            got = data.inputs.dtype
            raise RecipeError(f"`{name}` must hold the pool's kind of numbers, {public.inputs.dtype}. Got {got} instead.")
        if data is not None and _bare(data.inputs.shape[1:]) != _bare(wanted):
            raise RecipeError(f"`{name}` must have records of the pool's shape {wanted}. Got {data.inputs.shape[1:]} instead.")
    overlap.refuse(private, public, test)
    if test is not None:
        try:
            public.takes()(test.inputs)  # as the student will be asked to
        except DataError as error:
            raise RecipeError(f"`test` must be what a model of the pool takes. Got «{error}» instead.") from None
    for name, data in (("public", public), ("test", test)):
        if data is not None and data.targets is not None and data.targets.shape[1:] != target:
            got = data.targets.shape[1:]
            raise RecipeError(f"`{name}` must have targets of the private ones' shape {target}. Got {got} instead.")


def known(test: Public | None) -> Public | None:
    """Leave out test records whose label nobody knows, a number below 0: there is nothing to score on them."""
    if test is None or test.targets is None or test.targets.ndim != 1 or not (test.targets < 0).any():
        return test
    return test[test.targets >= 0]


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Leave out the one channel of grey images, which may come without it."""
    return shape[1:] if len(shape) > 2 and shape[0] == 1 else shape


def check_codec(codec: Any, private: Private) -> None:
    """Refuse votes for classes where targets are masks, a codec for masks where they are labels, and masks of another size."""
    space, target = _space(codec), private.targets.shape[1:]
    if target and isinstance(codec, Votes):
        raise RecipeError("`codec` must be one for masks where targets are masks. Got Votes instead.")
    if space is not None and not target:
        raise RecipeError(f"`codec` must be one for labels where targets are labels: Votes. Got {_named(codec)} instead.")
    if space is not None and space != target:
        raise RecipeError(f"`codec` must be one for masks of shape {target}. Got one for {space} instead.")


def labelled(private: Private, codec: Any) -> Private:
    """Leave out private records whose label is no class of the codec: one of them is no reason to refuse."""
    labels = private.targets.ndim == 1 or isinstance(codec, Corrections)
    number = getattr(codec, "classes", None)
    return private.labelled(number) if labels and isinstance(number, int) else private


def made(student: Any, public: Public) -> Any:
    """Make the student that will be published, and let it refuse a pool that it could not learn from."""
    learner = student()
    if not hasattr(learner, "fit"):
        raise RecipeError(f"`student` must make students, which have a `fit`. Got one that makes {_named(learner)} instead.")
    if hasattr(learner, "check"):
        learner.check(public.unlabelled())
    return learner


def check_classes(codec: Any, public: Public, test: Public | None, *, teachers: Any, learner: Any, shares: bool) -> None:
    """Refuse public labels that the codec has no class for, and a student that has no class for what may be answered.

    Who may vote for a class or learn it is read from teachers and student. A private label of no class is left out, not refused.
    """
    if isinstance(codec, Corrections):
        _check_widths(codec, teachers, getattr(learner, "linear", learner))
    if not isinstance(codec, Votes):
        return
    if shares and not getattr(learner, "learns_shares", True):
        raise RecipeError(f"`student` must be one that learns shares where the method is 'mean'. Got {_named(learner)} instead.")
    number, voted, learned = codec.classes, _classes(teachers), _classes(learner)
    if voted is not None and voted > number:
        raise RecipeError(f"`codec` must have a class for each of the teachers' {voted}. Got {number} instead.")
    if learned is not None and (learned != number if shares else learned < number):
        raise RecipeError(f"`student` must have as many classes as the codec, {number}. Got {learned} instead.")
    for name, data in (("public", public), ("test", test)):
        if data is not None and data.targets is not None and not _fit(data.targets, number):
            raise RecipeError(f"`codec` must have a class for every label of `{name}`. Got {number} classes instead.")


def _check_widths(codec: Corrections, teachers: Any, learner: Any) -> None:
    """Refuse teachers or a student with other features or other classes than corrections are laid out for."""
    for name, part in (("teachers", teachers), ("student", learner)):
        seen = getattr(getattr(part, "sight", None), "width", codec.width), _classes(part) or codec.classes
        if seen != (codec.width, codec.classes):
            raise RecipeError(f"`codec` must be for the weights of `{name}`, {seen}. Got {(codec.width, codec.classes)} instead.")


def _fit(labels: npt.NDArray[Any], classes: int) -> bool:
    """Tell whether all are numbers of classes; a number below 0 may stand for a public label that is not known."""
    return labels.dtype.kind in "biuf" and bool(((labels < classes) & (labels % 1 == 0)).all())


def _classes(of: Any) -> int | None:
    """Give the number of classes that teachers or a student were made for, where they or their network say it."""
    for holder in (of, getattr(of, "network", None)):
        number = getattr(holder, "classes", None)
        if isinstance(number, int):
            return number
    return None


def _space(codec: Any) -> tuple[int, ...] | None:
    """Give the shape of the masks that a codec, or one inside it, is made for; none where it is made for labels."""
    shape = getattr(codec, "shape", None)
    if isinstance(shape, tuple) and type(codec).__module__.startswith("tutelage.codecs."):  # another's may be of anything
        return shape
    inside = (_space(inner) for name in ("filter", "codec") if (inner := getattr(codec, name, None)) is not None)
    return next((found for found in inside if found is not None), None)


def _named(value: Any) -> str:
    """Name what was given, and show none of it: it may be private."""
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of {type(value).__name__}"
