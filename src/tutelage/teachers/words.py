"""Describe settings as text that is the same in every process: no memory addresses, no data."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tutelage.nets.networks import Factory

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def plain(thing: Any) -> str:
    """Give the `repr` without memory addresses."""
    return _ADDRESS.sub("", repr(thing))


def network(factory: Factory) -> str:
    """Describe a network: one of this package by its settings, any other by its name and a hash of how it prints."""
    import torch

    from tutelage.nets.networks import KINDS, Started, describe

    given = describe(factory)
    if isinstance(factory, (*KINDS, Started)):
        return given
    with torch.random.fork_rng(devices=[]):
        printed = plain(factory())
    return f"{given} {hashlib.sha256(printed.encode()).hexdigest()[:16]}"
