"""Compilation that may fail without taking the training with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

log = logging.getLogger("tutelage.nets")


def compile_or_not(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Compile; where the compiler fails on the first call, say so once and go on without it."""
    chosen, settled = torch.compile(function, dynamic=False), False

    def call(*arguments: Any) -> Any:
        nonlocal chosen, settled
        if settled:
            return chosen(*arguments)
        try:
            result = chosen(*arguments)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a compiler may fail in any way, and a user's network is still to be trained
            log.warning("compiling the %s failed (%s): it runs uncompiled, only slower", name, type(error).__name__)
            chosen, result = function, function(*arguments)
        settled = True
        return result

    return call
