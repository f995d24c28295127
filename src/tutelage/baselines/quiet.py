"""How a training on private records fails: with our own words, or with a type, and never with what it quoted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tutelage.privacy.errors import DataError, Error

T = TypeVar("T")


def quietly(what: str, step: Callable[[], T]) -> T:
    """Run a step that holds private values. Of its failure only our own words get out, or its type, and none of its frames."""
    try:
        return step()
    except Error as error:
        raise error.with_traceback(None) from None
    except Exception as error:
        failure = type(error).__name__
    # Raised outside the handler, so that neither the message nor the frames of the failed step hang on to this error.
    raise DataError(f"`{what}` must not fail. Got {failure} instead; its message is withheld: it may quote private values.")
