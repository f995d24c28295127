"""The suite of codecs that see their questions, over the one there is, and over broken twins, which it must refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.conformance.suites import check_sighted
from tests.conformance.test_codecs import made

from tutelage.codecs.regionvotes import Regioned, RegionVotes
from tutelage.privacy.bounds import OneHot

SHAPE = (16, 12)


def asked() -> tuple[np.ndarray, np.ndarray]:
    public = made(SHAPE, 6)
    return public.inputs, np.stack([public.targets, 1 - public.targets, np.zeros_like(public.targets)])


@pytest.mark.parametrize("method", ["greys", "levels", "superpixels"])
def test_votes_for_regions(method: Any) -> None:
    check_sighted(RegionVotes(SHAPE, 5, method), *asked())


class Twin:
    """Stands between the suite and a codec that is right."""

    def __init__(self) -> None:
        self.codec = RegionVotes(SHAPE, 5, "superpixels")
        self.bound: Any = self.codec.bound

    def __repr__(self) -> str:
        return "Twin()"

    def seeing(self, inputs: np.ndarray) -> Any:
        return self.codec.seeing(inputs)


class Comparing(Twin):
    """Cuts an image after looking at the others."""

    def seeing(self, inputs: np.ndarray) -> Any:
        return self.codec.seeing(inputs - inputs.mean(axis=0) * (len(inputs) > 1))


class Ordering(Twin):
    """Numbers the regions of later questions otherwise."""

    def seeing(self, inputs: np.ndarray) -> Any:
        labels = self.codec.seeing(inputs).labels
        return Regioned(self.codec, (labels + np.arange(len(labels))[:, None, None].astype(labels.dtype)) % 5)


class Growing(Twin):
    """Was planned for with another bound than it asks with."""

    def __init__(self) -> None:
        super().__init__()
        self.bound = OneHot(3)


class Writing(Twin):
    """Changes what it is shown."""

    def seeing(self, inputs: np.ndarray) -> Any:
        inputs += 1
        return self.codec.seeing(inputs)


@pytest.mark.parametrize("twin", [Comparing, Ordering, Growing, Writing])
def test_broken_twins_are_refused(twin: Any) -> None:
    with pytest.raises(AssertionError):
        check_sighted(twin(), *asked())


def test_the_twin_that_breaks_nothing_is_not() -> None:
    check_sighted(Twin(), *asked())
