"""A sealed value cannot be looked at by accident: not by print, log, assert, pickle, NumPy, or a failing step."""

import copy
import io
import json
import logging
import os
import pickle
import pprint
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.privacy.errors import DataError, RecipeError, UnitOverlap, Unsealed
from tutelage.privacy.sealed import _KEY, Sealed, quietly

SECRET = 7770123  # stands in the array and must stand nowhere else


@pytest.fixture
def sealed() -> Sealed:
    return Sealed([SECRET, 1, 2])


PEEKS: dict[str, Callable[[Any], Any]] = {
    "repr": repr,
    "str": str,
    "format": lambda s: format(s, ".3f"),
    "f-string": lambda s: f"{s}",
    "f-string with =": lambda s: f"{s=}",
    "percent s": lambda s: "%s" % (s,),  # noqa: UP031
    "percent d": lambda s: "%d" % (s,),  # noqa: UP031
    "str.format": lambda s: "{}".format(s),  # noqa: UP032
    "pprint": lambda s: pprint.pformat([s]),
    "iteration": list,
    "for": lambda s: [value for value in s],  # noqa: C416
    "unpacking": lambda s: (lambda *a: a)(*s),
    "len": len,
    "bool": bool,
    "if": lambda s: 1 if s else 0,
    "not": lambda s: not s,
    "indexing": lambda s: s[0],
    "slicing": lambda s: s[:],
    "mask": lambda s: s[np.array([True, False, False])],
    "int": int,
    "float": float,
    "complex": complex,
    "index": lambda s: [0] * s,
    "bytes": bytes,
    "reversed": reversed,
    "sorted": lambda s: sorted([s, s]),
    "min": lambda s: min(s, s),
    "equal": lambda s: s == SECRET,
    "equal to itself": lambda s: s == s,
    "reflected equal": lambda s: SECRET == s,  # noqa: SIM300
    "array equal": lambda s: np.array([SECRET, 1, 2]) == s,
    "unequal": lambda s: s != 1,
    "less": lambda s: s < 1,
    "less or equal": lambda s: s <= 1,
    "greater": lambda s: s > 1,
    "greater or equal": lambda s: s >= 1,
    "in": lambda s: SECRET in s,
    "in a list": lambda s: s in [1, 2],
    "hash": hash,
    "set": lambda s: {s},
    "dict key": lambda s: {s: 1},
    "pickle": pickle.dumps,
    "pickle 2": lambda s: pickle.dumps(s, 2),
    "getstate": lambda s: s.__getstate__(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy inside": lambda s: copy.deepcopy({"votes": s}),
    "asarray": np.asarray,
    "array": np.array,
    "array copy": lambda s: np.array(s, copy=True),
    "array of dtype": lambda s: np.asarray(s, dtype=np.float32),
    "array of several": lambda s: np.array([s, s]),
    "stack": lambda s: np.stack([s, s]),
    "concatenate": lambda s: np.concatenate([s, s]),
    "mean": np.mean,
    "unique": np.unique,
    "save": lambda s: np.save(io.BytesIO(), s),
}


@pytest.mark.parametrize("name", PEEKS)
def test_looking_is_refused(sealed: Sealed, name: str) -> None:
    with pytest.raises(Unsealed) as caught:
        PEEKS[name](sealed)
    assert str(SECRET) not in "".join(traceback.format_exception(caught.value))
    assert "ledger.reveal" in str(caught.value)


UNSUPPORTED: dict[str, Callable[[Any], Any]] = {
    "json": json.dumps,
    "ufunc": np.sqrt,
    "ufunc of two": lambda s: np.add(s, 1),
    "ufunc into": lambda s: np.add(1, 1, out=s),
    "reduction": np.sum,
    "plus": lambda s: s + 1,
    "reflected plus": lambda s: 1 + s,
    "array plus": lambda s: np.ones(3) + s,
    "array times": lambda s: np.ones(3) * s,
    "minus": lambda s: -s,
    "matmul": lambda s: s @ np.ones(3),
    "round": round,
    "call": lambda s: s(),
    "memoryview": memoryview,
    "vars": vars,
    "setitem": lambda s: s.__setitem__(0, 1),
    "attribute": lambda s: setattr(s, "copy", 1),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_there_is_no_arithmetic_on_a_seal(sealed: Sealed, name: str) -> None:
    with pytest.raises((TypeError, AttributeError)) as caught:
        UNSUPPORTED[name](sealed)
    assert str(SECRET) not in "".join(traceback.format_exception(caught.value))


def test_a_log_line_holds_no_value(sealed: Sealed, capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    logger = logging.Logger("tutelage-test")
    logger.addHandler(logging.StreamHandler(stream))
    logger.error("votes %s", sealed)
    printed = capsys.readouterr()
    assert str(SECRET) not in stream.getvalue() + printed.err + printed.out


def test_the_shape_is_public_and_steps_stay_inside(sealed: Sealed) -> None:
    assert sealed.shape == (3,)
    doubled = sealed.map(lambda value: np.outer(value, [2, 2]))
    assert isinstance(doubled, Sealed)
    assert doubled.shape == (3, 2)
    assert doubled._open(_KEY)[0, 0] == 2 * SECRET


def test_seals_are_joined_unopened(sealed: Sealed) -> None:
    joined = Sealed.concatenate([sealed, Sealed([4, 5])])
    assert isinstance(joined, Sealed)
    assert joined._open(_KEY).tolist() == [SECRET, 1, 2, 4, 5]


def test_only_the_key_opens(sealed: Sealed) -> None:
    for key in (None, object(), "_KEY", True):
        with pytest.raises(Unsealed, match=r"outside mechanisms\.py and ledger\.py"):
            sealed._open(key)
    assert sealed._open(_KEY).tolist() == [SECRET, 1, 2]


def quotes_value(value: Any) -> Any:
    largest = int(value.max())
    raise ValueError(f"cannot digest {largest}")


def quotes_chain(value: Any) -> Any:
    try:
        quotes_value(value)
    except ValueError as error:
        raise RuntimeError(f"while handling {value[0]}") from error


def quotes_recipe(value: Any) -> Any:
    raise RecipeError(f"`x` must not be {value[0]}.")


def breaks_numpy(value: Any) -> Any:
    return value.reshape(SECRET, 7)


def refuses(value: Any) -> Any:
    largest = int(value.max())  # a private local in the frame of a deliberate refusal
    raise UnitOverlap(f"`shards` must not share a unit. Got {largest - SECRET + 2} shared instead.")


def whole_traceback(error: BaseException, capture_locals: bool) -> str:
    try:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=capture_locals).format())
    except Unsealed:  # Python 3.11 lets a refused repr end the formatting: nothing leaked then either
        return ""


@pytest.mark.parametrize("capture_locals", [False, True])
@pytest.mark.parametrize("step", [quotes_value, quotes_chain, quotes_recipe, breaks_numpy])
def test_a_failing_step_leaves_nothing_behind(step: Callable[[Any], Any], capture_locals: bool) -> None:
    with pytest.raises(DataError, match="its message is withheld") as caught:
        Sealed([SECRET, 1, 2]).map(step)
    error = caught.value
    assert str(SECRET) not in str(error)
    assert str(SECRET) not in whole_traceback(error, capture_locals)
    assert error.__cause__ is None
    assert error.__context__ is None
    frames = traceback.extract_tb(error.__traceback__)
    assert not any(frame.name == step.__name__ for frame in frames)


@pytest.mark.parametrize("capture_locals", [False, True])
def test_a_refusal_inside_a_step_stays_a_refusal_without_its_frames(capture_locals: bool) -> None:
    with pytest.raises(UnitOverlap, match="Got 2 shared") as caught:
        Sealed([SECRET, 1, 2]).map(refuses)
    assert str(SECRET) not in whole_traceback(caught.value, capture_locals)
    assert not any(frame.name == "refuses" for frame in traceback.extract_tb(caught.value.__traceback__))


def careless_map(sealed: Sealed, step: Callable[[Any], Any]) -> Sealed:
    """Broken twin: chains the step's own error."""
    try:
        return Sealed(step(sealed._open(_KEY)))
    except Exception as error:
        raise DataError("a step on sealed values must not fail.") from error


@pytest.mark.parametrize(("run", "holds"), [(Sealed.map, True), (careless_map, False)])
def test_the_traceback_check_catches_a_careless_map(run: Any, holds: bool) -> None:
    with pytest.raises(DataError) as caught:
        run(Sealed([SECRET, 1, 2]), quotes_value)
    assert (str(SECRET) not in whole_traceback(caught.value, False)) is holds


def test_storing_needs_a_private_folder(sealed: Sealed, tmp_path: Path) -> None:
    for path in (tmp_path / "votes.npy", tmp_path / "release" / "votes.npy", tmp_path / "private"):
        path.parent.mkdir(exist_ok=True)
        with pytest.raises(Unsealed, match="`path` must lie in a folder named 'private'"):
            sealed.store(path)
        assert not path.exists()


def test_a_way_out_of_the_private_folder_is_seen(sealed: Sealed, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "release").mkdir()
    (tmp_path / "private" / "link").symlink_to(tmp_path / "release")
    for path in (tmp_path / "private" / ".." / "release" / "votes.npy", tmp_path / "private" / "link" / "votes.npy"):
        with pytest.raises(Unsealed):
            sealed.store(path)
    assert not any((tmp_path / "release").iterdir())


@pytest.mark.parametrize("before", [None, 0o644, 0o666])
def test_a_stored_value_is_its_owners_alone_and_comes_back(sealed: Sealed, tmp_path: Path, before: int | None) -> None:
    path = tmp_path / "private" / "votes.npy"
    path.parent.mkdir()
    if before is not None:
        path.touch()
        path.chmod(before)
    old = os.umask(0)
    try:
        sealed.store(path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    back = Sealed.load(path)
    assert isinstance(back, Sealed)
    assert back._open(_KEY).tolist() == [SECRET, 1, 2]


def test_objects_are_never_pickled_to_disk(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    with pytest.raises(ValueError, match="allow_pickle"):
        Sealed(np.array([{}, None], dtype=object)).store(tmp_path / "private" / "votes.npy")


def test_a_quiet_step_says_where_it_failed_and_no_value() -> None:
    def step() -> None:
        patient = SECRET
        raise ValueError(f"patient {patient} has a rare disease")

    with pytest.raises(DataError) as caught:
        quietly("fit", step)
    line = step.__code__.co_firstlineno + 2
    assert str(caught.value).endswith(f"Got ValueError instead; its message is withheld: it may quote private values. "
                                      f"It was raised at test_sealed.py:{line}.")  # fmt: skip
    assert str(SECRET) not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert "step" not in [frame.f_code.co_name for frame in frames]  # its own frame, with its values, is gone
    assert not any("patient" in frame.f_locals for frame in frames)


@pytest.mark.parametrize("keep", [0, 40, 100, 140])
def test_a_damaged_file_is_one_line(tmp_path: Path, keep: int) -> None:
    (tmp_path / "private").mkdir()
    path = tmp_path / "private" / "counts.npy"
    Sealed(np.arange(9.0)).store(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        DataError, match=r"^`counts` must be a file that is whole and readable\. Got \w+ from counts\.npy instead\.$"
    ):
        Sealed.load(path)
