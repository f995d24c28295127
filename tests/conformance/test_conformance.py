"""The suites over everything we have, and over broken twins, which they must refuse."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.conformance.suites import check_bound, check_codec, check_furthest, check_mechanism, check_noise

from tutelage.codecs.corrections import Corrections
from tutelage.codecs.votes import Votes
from tutelage.privacy.bounds import Ball, Binary, Bound, Cube, OneHot, Orthant, Simplex
from tutelage.privacy.events import Event, Gaussian, NonPrivate
from tutelage.privacy.mechanisms import AboveThreshold, GNMax, LaplaceMean, LNMax, NoisyMean, ThresholdTest
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Unit

BOUNDS = [
    bound
    for dimension in (1, 2, 7)
    for bound in (
        Ball(dimension, 0.5),
        Ball(dimension, 3.0),
        Orthant(dimension, 2.0),
        Cube(dimension, 0.25),
        Simplex(dimension),
        OneHot(dimension),
        Binary(dimension),
    )
]

FURTHEST: list[tuple[Bound, Any, Any, float]] = [
    (Ball(4, 3.0), [3.0, 0, 0, 0], [-3.0, 0, 0, 0], 2),
    (Ball(4, 3.0), [1.5] * 4, [-1.5] * 4, 1),
    (Ball(4, 3.0), [3.0, 0, 0, 0], [-3.0, 0, 0, 0], math.inf),
    (Orthant(4, 3.0), [3.0, 0, 0, 0], [0, 3.0, 0, 0], 2),
    (Orthant(4, 3.0), [4.5**0.5, 4.5**0.5, 0, 0], [0, 0, 4.5**0.5, 4.5**0.5], 1),
    (Orthant(1, 3.0), [3.0], [0.0], 2),
    (Cube(4, 0.5), [0.5] * 4, [-0.5] * 4, 2),
    (Cube(4, 0.5), [0.5] * 4, [-0.5] * 4, 1),
    (Cube(4, 0.5), [0.5] * 4, [-0.5] * 4, math.inf),
    (Simplex(3), [1.0, 0, 0], [0, 1.0, 0], 2),
    (Simplex(3), [1.0, 0, 0], [0, 1.0, 0], 1),
    (OneHot(3), [1.0, 0, 0], [0, 1.0, 0], 2),
    (OneHot(3), [1.0, 0, 0], [0, 1.0, 0], 1),
    (Binary(5), [1.0] * 5, [0.0] * 5, 2),
    (Binary(5), [1.0] * 5, [0.0] * 5, 1),
]


def shown(thing: Any) -> str:
    return repr(thing) if isinstance(thing, Bound) else type(thing).__name__


@pytest.mark.parametrize("bound", BOUNDS, ids=shown)
def test_bounds(bound: Bound) -> None:
    check_bound(bound)


@pytest.mark.parametrize(("bound", "one", "other", "norm"), FURTHEST)
def test_diameters_are_reached(bound: Bound, one: Any, other: Any, norm: float) -> None:
    check_furthest(bound, one, other, norm)


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_votes(classes: int, dtype: type) -> None:
    labels = np.random.default_rng(2).integers(0, classes, (6, 9)).astype(dtype)
    check_codec(Votes(classes), labels, np.zeros((9, 3)), labels[0])


def test_corrections() -> None:
    short = np.random.default_rng(2).normal(0, 0.01, (4, 3, 5, 3))  # teachers shorten theirs themselves (teachers.records)
    codec = Corrections(5, 3)
    check_codec(codec, short, np.zeros((3, 5)), codec.encode(short).mean(axis=0))


def ballots_for(mechanism: Any) -> np.ndarray:
    rng = np.random.default_rng(3)
    classes = getattr(mechanism, "classes", None)
    return np.eye(classes)[rng.integers(0, classes, (6, 4))] if classes else rng.normal(0, 1, (6, 4, mechanism.bound.dimension))


MECHANISMS = [
    GNMax(5, 3.0),
    GNMax(5, 3.0, Unit("institution", 2), teachers=6),
    LNMax(5, 0.5),
    ThresholdTest(5, 3.0, 2.0),
    *(
        make(bound, 2.0, 6)
        for bound in (Ball(3), Orthant(3), Cube(3), Simplex(3), OneHot(3), Binary(3))
        for make in (NoisyMean, LaplaceMean)
    ),
    AboveThreshold(Cube(3), 0.5, 1.0, 1.0, 2, 6),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: f"{type(m).__name__} {shown(getattr(m, 'bound', None))}")
def test_mechanisms(mechanism: Any) -> None:
    check_mechanism(mechanism, ballots_for(mechanism))
    if isinstance(mechanism, (NoisyMean, LaplaceMean)):
        check_noise(mechanism, ballots_for(mechanism))


# ── what the suites refuse ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Twin(Bound):
    """A bound that can be broken in one place."""

    dimension: int = 3
    fault: str = ""

    def clip(self, ballots: Any) -> np.ndarray:
        array = np.asarray(ballots, dtype=np.float64)
        if self.fault == "not total":
            return np.clip(array, -1, 1)
        inside = np.clip(self._shaped(array), -1, 1)
        if self.fault == "never settles":
            return inside / 2
        if self.fault == "together":
            return inside / max(1.0, float(np.abs(inside).sum()))
        return inside

    def diameter(self, norm: float = 2) -> float:
        return self.radius(norm) * (1 if self.fault == "the radius for the diameter" else 2)

    def radius(self, norm: float = 2) -> float:
        whole = Cube(self.dimension).radius(norm)
        return whole / 2 if self.fault == "half the radius" else whole


def test_the_bound_suite_lets_the_whole_twin_pass() -> None:
    check_bound(Twin())


@pytest.mark.parametrize("fault", ["not total", "never settles", "together", "the radius for the diameter", "half the radius"])
def test_the_bound_suite_refuses(fault: str) -> None:
    with pytest.raises(AssertionError):
        check_bound(Twin(fault=fault))


def test_a_diameter_larger_than_it_must_be_is_told() -> None:
    with pytest.raises(AssertionError):
        check_furthest(Ball(2, 1.0), [1.0, 0], [0, 1.0])


@dataclass(frozen=True)
class Coded:
    fault: str = ""

    @property
    def bound(self) -> Bound:
        return Cube(2)

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        if self.fault == "centred":
            return predictions - predictions.mean(axis=0)
        if self.fault == "by place":
            return predictions * np.linspace(0.5, 1, len(predictions))[:, None, None]
        if self.fault == "outside":
            return 3 * predictions
        if self.fault == "overwrites":
            predictions *= 0.5
        return predictions

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        return codes[:-1] if self.fault == "drops one" else codes


def test_the_codec_suite_lets_the_whole_twin_pass() -> None:
    check_codec(Coded(), np.random.default_rng(4).uniform(-1, 1, (5, 4, 2)), np.zeros(4), np.zeros((4, 2)))


@pytest.mark.parametrize("fault", ["centred", "by place", "outside", "overwrites", "drops one"])
def test_the_codec_suite_refuses(fault: str) -> None:
    with pytest.raises(AssertionError):
        check_codec(Coded(fault), np.random.default_rng(4).uniform(-1, 1, (5, 4, 2)), np.zeros(4), np.zeros((4, 2)))


@dataclass(frozen=True)
class Made:
    fault: str = ""
    inner: NoisyMean = NoisyMean(Ball(3), 2.0, 6)  # noqa: RUF009

    def event(self) -> Event:
        return NonPrivate("a twin") if self.fault == "no price" else self.inner.event()

    def contribute(self, ballots: Sealed, *, share: float = 1.0) -> np.ndarray:
        if self.fault == "any share":
            share = 1.0
        released = self.inner.contribute(ballots, share=share)
        return released[0] if self.fault == "one for all" else released


def test_the_mechanism_suite_lets_the_whole_twin_pass() -> None:
    check_mechanism(Made(), ballots_for(Made().inner))


@pytest.mark.parametrize("fault", ["no price", "one for all", "any share"])
def test_the_mechanism_suite_refuses(fault: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_mechanism(Made(fault), ballots_for(Made().inner))


def test_the_noise_suite_refuses_a_frozen_noise() -> None:
    class Frozen:
        def contribute(self, ballots: Sealed) -> np.ndarray:
            return np.ones(3)

        def event(self) -> Event:
            return Gaussian(1.0, 1.0)

    with pytest.raises(AssertionError):
        check_noise(Frozen(), np.zeros((2, 3, 1)))
