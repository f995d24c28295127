"""Private values that can be worked on but not looked at."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.chance import put_back
from tutelage.privacy.errors import DataError, Error, PrivacyError, Unsealed
from tutelage.privacy.files import reading

T = TypeVar("T")

_KEY = object()  # handed to `_open` by the files that may: mechanisms.py (to add noise) and ledger.py (to charge infinity)


def _refuse(what: str) -> Callable[..., NoReturn]:
    def refusal(self: Sealed, *_: Any, **__: Any) -> NoReturn:
        raise Unsealed(
            f"a sealed value must not be {what}. Ask the curator, or look on purpose with `ledger.reveal(sealed, reason=...)`."
        )

    return refusal


@final
class Sealed:
    """Wrap a private array so that it can be mapped and stored under `private/`, but never printed, compared or pickled.

    Python has no walls: this stops accidents (a print, a log line, a traceback, an assert), not an author who wants out.
    """

    __slots__ = ("__value",)
    __array_ufunc__ = None  # NumPy's operators give up at once instead of trying __array__

    def __init__(self, value: npt.ArrayLike) -> None:
        self.__value = np.asarray(value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Tell the shape: how many teachers, queries and classes there are is public."""
        return self.__value.shape

    def map(self, step: Callable[[Any], Any]) -> Sealed:
        """Apply a step inside the seal. Its own error message may quote private values, so it is withheld."""
        try:
            with put_back():
                return Sealed(step(self.__value))
        except PrivacyError as error:
            raise error.with_traceback(None) from None  # the step's frames hold private values
        except Exception as error:
            failure = type(error).__name__
        # Raised outside the handler, so that neither the message nor the frames of the failed step hang on to this error.
        raise DataError(
            f"a step on sealed values must not fail. Got {failure} instead; "
            "its message is withheld because it may quote private values."
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Sealed]) -> Sealed:
        """Join sealed values along their first axis."""
        return cls(np.concatenate([part.__value for part in parts]))

    def store(self, path: Path) -> None:
        """Write the value as .npy, readable by its owner alone. The path belongs under a run's `private/`."""
        if "private" not in path.resolve().parent.parts:
            raise Unsealed("`path` must lie in a folder named 'private'. Got one outside instead.")
        partial = path.with_name(path.name + ".partial")  # a crash must not leave half a file under the name
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            partial.chmod(0o600)  # an older file keeps its own mode otherwise
            np.save(file, self.__value, allow_pickle=False)
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Sealed:
        """Read a stored value back into a seal."""
        with reading(path, "counts"):
            return cls(np.load(path, allow_pickle=False))

    def _open(self, key: object) -> npt.NDArray[Any]:
        if key is not _KEY:
            raise Unsealed("a sealed value must not be opened outside mechanisms.py and ledger.py.")
        return self.__value

    __repr__ = _refuse("printed")
    __str__ = _refuse("printed")
    __format__ = _refuse("printed")
    __iter__ = _refuse("iterated")
    __len__ = _refuse("measured")
    __getitem__ = _refuse("indexed")
    __contains__ = _refuse("searched")
    __bool__ = _refuse("tested")
    __int__ = _refuse("converted")
    __float__ = _refuse("converted")
    __index__ = _refuse("converted")
    __array__ = _refuse("converted")
    __eq__ = _refuse("compared")
    __ne__ = _refuse("compared")
    __lt__ = _refuse("compared")
    __le__ = _refuse("compared")
    __gt__ = _refuse("compared")
    __ge__ = _refuse("compared")
    __hash__ = _refuse("hashed")
    __reduce_ex__ = _refuse("pickled or copied")
    __getstate__ = _refuse("pickled or copied")
    __copy__ = _refuse("pickled or copied")
    __deepcopy__ = _refuse("pickled or copied")


def quietly(what: str, step: Callable[[], T], *, ours: type[Error] = PrivacyError) -> T:
    """Run a step that holds private values. Of its failure only our own words get out, or its type and its place in the code.

    None of its frames do: they hold values. A file's name and a line hold none. The process's random generators stay where they
    were.
    """
    try:
        with put_back():
            return step()
    except ours as error:
        raise error.with_traceback(None) from None
    except Exception as error:
        failure, where = type(error).__name__, _place(error)
    # Raised outside the handler, so that neither the message nor the frames of the failed step hang on to this error.
    raise DataError(
        f"`{what}` must not fail. Got {failure} instead; its message is withheld: it may quote private values. "
        f"It was raised at {where}."
    )


def _place(error: BaseException) -> str:
    """Name the line in which an error was raised; the frames themselves stay in here."""
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    file, line = places[-1]  # there is one: it was raised in a call of ours
    known = {getattr(module, "__file__", None) for module in tuple(sys.modules.values())}
    return f"{Path(file).name}:{line}" if file in known else "generated code"  # which may be named after anything
