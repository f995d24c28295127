"""Long work that tells how far it is, where it can: what users write need not."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

Progress = Callable[[str, int, int], None]  # (what is going on, done, in all)


def silent(what: str, done: int, total: int) -> None:
    """Tell nobody."""


def telling(step: Callable[..., Any], say: Progress, what: str) -> Callable[..., Any]:
    """Let a step tell under this title, if it takes a `progress`; any other one is shown as begun and as done."""
    if tells(step):
        return functools.partial(step, progress=functools.partial(say, what))

    def call(*given: Any, **named: Any) -> Any:
        say(what, 0, 1)
        result = step(*given, **named)
        say(what, 1, 1)
        return result

    return call


def tells(step: Callable[..., Any]) -> bool:
    """Say whether a step can tell how far it is."""
    try:
        return "progress" in inspect.signature(step).parameters
    except (TypeError, ValueError):  # compiled code may not say what it takes
        return False
