"""The only file that adds noise: mechanisms, from sealed contributions to what may be known.

Every mechanism does the same three things to sealed ballots (teachers, queries, ...): clip each ballot into its bound,
sum over teachers, add noise. Whatever is released as a value lives on an integer grid that is fixed before any data is
read, and gets noise drawn exactly: `round(G)` for a continuous G. Sums of clipped ballots are whole numbers on that grid,
so sum + round(G) = round(sum + G): the release is post-processing of the textbook mechanism, every continuous proof holds
without an approximation, and no floating-point rounding of the noisy value exists to leak (Mironov 2012).
Proofs: docs/theory/noise.md. The noise itself is drawn in noise.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage.privacy.bounds import Ball, Binary, Bound, OneHot, Orthant, Stacked
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.events import Event, Gaussian, Laplace, NoisyMax, SmoothRelease, SparseVector, Threshold
from tutelage.privacy.noise import check_scale, rounded_gaussian, rounded_laplace
from tutelage.privacy.queries import Form
from tutelage.privacy.sealed import _KEY, Sealed
from tutelage.privacy.sums import Block, GridSum, Shape
from tutelage.privacy.units import Adjacency, Unit

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

_RECORD = Unit()
_THREADS = min(8, os.cpu_count() or 1)  # NumPy lets them run side by side
_FINENESS = 20  # the grid's step is about scale/2^20: finer than any use, coarse enough for exact 64-bit sums
_BLOCK = 1 << 20  # numbers that are drawn, or clipped, at once
_ABREAST = 1 << 25  # numbers that all threads clip at once: a ballot as large as a volume is clipped by few of them
_MIN_SHARE_SCALE = 32.0  # in grid steps; below it the sum of several rounded noises is not yet Gaussian enough to prove
_PRODUCT_FINENESS = 22  # the same for sums of products, whose factors have half as many digits each


# ── the shape every mechanism has ─────────────────────────────────────────────────────────────────────────────────────


class Mechanism(Protocol):
    """Turn sealed ballots into something that may be known, and say beforehand what that is."""

    def event(self) -> Event:
        """Say what one query will have been."""

    def contribute(self, ballots: Sealed, *, share: float = 1.0) -> Array:
        """Clip, sum over teachers, add noise. With share < 1: one party's part, on the grid, for `combine`."""


def _total(ballots: Sealed | Iterator[Sealed], bound: Bound, teachers: int | None, step: float) -> Integers:
    """Clip and sum ballots (teachers, queries, dimension), which may come in blocks of some teachers."""
    whole, total, count = not isinstance(ballots, Iterator), None, 0
    for block in ballots if isinstance(ballots, Iterator) else [ballots]:
        opened = _open_ballots(block, bound, teachers if whole else None, step, several=teachers or 1)
        part = _grid_sum(opened, bound, step)
        if total is not None and total.shape != part.shape:
            raise DataError(f"`ballots` must have one shape in all blocks. Got {part.shape} after {total.shape} instead.")
        total, count = part if total is None else total + part, count + len(opened)
    if total is None or (teachers is not None and count != teachers):
        raise DataError(f"`ballots` must come from {teachers or 'at least 1'} teachers. Got {count} instead.")
    return total


def _open_ballots(ballots: Sealed, bound: Bound, teachers: int | None, step: float, *, several: int = 1) -> Array:
    """Open ballots (teachers, queries, dimension) after their public shape has been checked."""
    shape = ballots.shape
    if len(shape) != 3 or shape[2] != bound.dimension:
        raise DataError(f"`ballots` must have the shape (teachers, queries, {bound.dimension}). Got {shape} instead.")
    if shape[0] < 1 or (teachers is not None and shape[0] != teachers):
        raise DataError(f"`ballots` must come from {teachers or 'at least 1'} teachers. Got {shape[0]} instead.")
    if max(shape[0], several) * bound.radius(math.inf) / step > 2.0**62:
        raise RecipeError(f"the noise must not be so small beside the bound that {shape[0]} ballots overflow 64 bits.")
    return _real(ballots._open(_KEY))


def _real(opened: Array) -> Array:
    if opened.dtype.kind not in "biuf":
        raise DataError("`ballots` must be real numbers. Got another type instead.")
    return opened


def _share(share: float, scale: float) -> float:
    if not (isinstance(share, (int, float)) and 0 < share <= 1):
        raise RecipeError(f"`share` must lie in (0, 1]. Got {share!r} instead.")
    if share < 1 and scale * math.sqrt(share) < _MIN_SHARE_SCALE:
        raise RecipeError(f"`share` must leave noise of at least {_MIN_SHARE_SCALE:.0f} grid steps. Got {share!r} instead.")
    return float(share)


def _step(scale: float) -> float:
    """Fix the grid: a power of two near scale/2^20, and at most 1 so that whole votes stay whole."""
    return float(min(1.0, 2.0 ** (math.floor(math.log2(scale)) - _FINENESS)))


def _grid_sum(ballots: Array, bound: Bound, step: float) -> Integers:
    """Clip each teacher's ballots and sum them on the grid, some teachers at a time: sums of whole numbers have no order.

    Cutting towards zero cannot lengthen a ballot.
    """
    width = max(1, math.prod(ballots.shape[1:]))
    some, threads = max(1, _BLOCK // width), max(1, min(_THREADS, _ABREAST // width))

    def part(start: int) -> Integers:
        return np.asarray(np.trunc(bound.clip(ballots[start : start + some]) / step).astype(np.int64).sum(axis=0))

    total = np.zeros(ballots.shape[1:], dtype=np.int64)
    with ThreadPoolExecutor(threads if len(ballots) > some else 1) as pool:
        for found in pool.map(part, range(0, len(ballots), some)):
            total += found
    return total


def _charged(bound: Bound, sensitivity: float) -> float:
    """Charge what floats can add: a clipped vector may exceed its norm by dimension·2^-52, less than one part in 2^24."""
    each = bound.each if isinstance(bound, Stacked) else bound
    return sensitivity if isinstance(each, (OneHot, Binary)) else sensitivity * (1 + 2.0**-24)


# ── arg-max of votes ──────────────────────────────────────────────────────────────────────────────────────────────────


def _check_votes(opened: Array) -> Array:
    """Refuse what is not a vote. No teacher of ours can cast one: labels are whole and in range by construction."""
    if not (np.isfinite(opened).all() and (opened >= 0).all() and (opened.sum(axis=-1) > 0).all()):
        raise DataError("`ballots` must be finite votes ≥ 0, each for one class. Got others instead (withheld).")
    return opened


@final
@dataclass(frozen=True)
class GNMax:
    """Release the class with the most votes after N(0, sigma²) on every count (Papernot et al. 2018).

    Formal guarantee: each query is √2·m/σ-Gaussian DP for a unit behind m teachers.
    """

    classes: int
    sigma: float
    unit: Unit = _RECORD
    teachers: int | None = None

    def __post_init__(self) -> None:
        check_scale(sigma=self.sigma)
        OneHot(self.classes)

    def event(self) -> Event:
        """One Gaussian noisy max."""
        return NoisyMax("gaussian", float(self.sigma), self.unit.teachers)

    def contribute(self, ballots: Sealed, *, share: float = 1.0) -> Array:
        """Give labels (queries,), or with share < 1 one party's noisy counts on the grid."""
        return _noisy_max(
            self, ballots, self.sigma, share, lambda scale, shape: rounded_gaussian(scale * math.sqrt(share), shape)
        )

    def combine(self, parts: Sequence[Array]) -> Array:
        """Give labels from every party's part."""
        return np.asarray(np.sum(parts, axis=0).argmax(axis=-1))


@final
@dataclass(frozen=True)
class LNMax:
    """Release the class with the most votes after Laplace(1/gamma) on every count (Papernot et al. 2017).

    Formal guarantee: each query is 2·m·γ-DP for a unit behind m teachers.
    """

    classes: int
    gamma: float
    unit: Unit = _RECORD
    teachers: int | None = None

    def __post_init__(self) -> None:
        check_scale(gamma=self.gamma)
        OneHot(self.classes)

    def event(self) -> Event:
        """One Laplace noisy max."""
        return NoisyMax("laplace", 1.0 / self.gamma, self.unit.teachers)

    def contribute(self, ballots: Sealed, *, share: float = 1.0) -> Array:
        """Give labels (queries,). Laplace noise does not divide into equal shares, so the share must be 1."""
        if share != 1.0:
            raise RecipeError(f"`share` must be 1 for Laplace noise. Got {share!r} instead.")
        return _noisy_max(self, ballots, 1.0 / self.gamma, 1.0, rounded_laplace)


def _noisy_max(
    mechanism: GNMax | LNMax, ballots: Sealed, scale: float, share: float, noise: Callable[[float, Any], Integers]
) -> Array:
    bound, step = OneHot(mechanism.classes), _step(scale)
    share = _share(share, scale / step)
    opened = _check_votes(_open_ballots(ballots, bound, mechanism.teachers if share == 1 else None, step))
    counts = _grid_sum(opened, bound, step)
    noisy = counts + noise(scale / step, counts.shape)
    return noisy if share < 1 else np.asarray(noisy.argmax(axis=-1))


@final
@dataclass(frozen=True)
class ThresholdTest:
    """Release whether the largest count plus N(0, sigma²) reaches a public threshold: the first step of Confident-GNMax.

    With `beyond_student` (Interactive-GNMax) it is asked with the student's own predicted shares as a `baseline`, and the
    count of a class is what teachers say beyond what the student already expects. Formal guarantee: each query is
    m/σ-Gaussian DP for a unit behind m teachers, because one vote moves every difference, hence the largest, by at most 1.
    """

    classes: int
    threshold: float
    sigma: float
    beyond_student: bool = False
    unit: Unit = _RECORD
    teachers: int | None = None

    def __post_init__(self) -> None:
        check_scale(sigma=self.sigma, threshold=self.threshold)
        OneHot(self.classes)

    @property
    def effective_threshold(self) -> float:
        """Give the threshold that the continuous test has: the grid moves it by at most half a step, a public constant."""
        step = _step(self.sigma)
        return (math.ceil(self.threshold / step) - 0.5) * step

    def event(self) -> Event:
        """One threshold test."""
        return Threshold(float(self.sigma), self.unit.teachers)

    def expected(self, baseline: npt.ArrayLike | None, queries: int) -> Array | None:
        """Check the student's predicted shares (queries, classes). Outside [0, 1] they could overflow a count past its noise."""
        if (baseline is not None) is not self.beyond_student:
            raise RecipeError("`baseline` must be given exactly when `beyond_student` is set. Got the contrary instead.")
        if baseline is None:
            return None
        shares, shape = np.asarray(baseline), (queries, self.classes)
        if shares.dtype.kind not in "biuf" or shares.shape != shape or not ((shares >= 0) & (shares <= 1)).all():
            raise DataError(
                f"`baseline` must hold shares in [0, 1] of shape {shape}. Got others of shape {shares.shape} instead."
            )
        return shares.astype(np.float64)

    def contribute(self, ballots: Sealed, *, share: float = 1.0, baseline: npt.ArrayLike | None = None) -> Array:
        """Give one bool per query: answered or not. The largest of summed counts needs the whole sum, so the share must be 1."""
        if share != 1.0:
            raise RecipeError(f"`share` must be 1 for a threshold test. Got {share!r} instead.")
        bound, step = OneHot(self.classes), _step(self.sigma)
        opened = _check_votes(_open_ballots(ballots, bound, self.teachers, step))
        expected = self.expected(baseline, opened.shape[1])
        counts = _grid_sum(opened, bound, step)
        if expected is not None:
            counts = counts - np.rint(expected * len(opened) / step).astype(np.int64)
        noisy = counts.max(axis=-1) + rounded_gaussian(self.sigma / step, counts.shape[:1])
        return np.asarray(noisy >= math.ceil(self.threshold / step))


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@final
@dataclass(frozen=True)
class NoisyMean:
    """Release the mean of bounded vectors with N(0, sigma²) on every coordinate of their *sum*.

    Formal guarantee: each query is Δ/σ-Gaussian DP with Δ the sensitivity of the sum: the bound's diameter under the declared
    adjacency, times the teachers a unit reaches.
    """

    bound: Bound
    sigma: float
    teachers: int
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    unit: Unit = _RECORD

    def __post_init__(self) -> None:
        check_scale(sigma=self.sigma, teachers=self.teachers)
        self.event()

    def event(self) -> Event:
        """One Gaussian answer."""
        return Gaussian(_charged(self.bound, self.bound.sensitivity(self.adjacency, unit=self.unit)), float(self.sigma))

    def contribute(self, ballots: Sealed | Iterator[Sealed], *, share: float = 1.0) -> Array:
        """Give means (queries, dimension), or with share < 1 one party's noisy sum on the grid. Blocks of teachers are summed."""
        step = _step(self.sigma)
        share = _share(share, self.sigma / step)
        total = _total(ballots, self.bound, self.teachers if share == 1 else None, step)
        noisy = total + rounded_gaussian(self.sigma / step * math.sqrt(share), total.shape)
        return noisy if share < 1 else self._mean(noisy)

    def combine(self, parts: Sequence[Array]) -> Array:
        """Give means from every party's part."""
        return self._mean(np.sum(parts, axis=0))

    def _mean(self, noisy: Array) -> Array:
        return np.asarray(noisy * _step(self.sigma) / self.teachers)


@final
@dataclass(frozen=True)
class NoisySum:
    """Release a sum over records of a public function of each, with N(0, sigma²) on every coordinate.

    What the rows of one place (a teacher, a shard) add is clipped jointly: a grouped sum as one vector of length ≤ norm, a Gram
    matrix by Σ‖f‖² ≤ norm², outer products by Σ‖l‖·‖r‖ ≤ norm. Formal guarantee: each query is Δ/σ-Gaussian DP with Δ the
    diameter of what one place can add, 2·norm, or √2·norm where nothing is negative, or √2·norm² for Gram matrices (the sum of
    two Gram matrices has no negative inner product), times the places that a unit reaches.
    """

    form: Form
    width: int
    norm: float
    sigma: float
    places: int
    groups: int = 1
    right: int = 1
    nonnegative: bool = False
    unit: Unit = _RECORD
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        check_scale(sigma=self.sigma, places=self.places, norm=self.norm)
        for name in ("width", "places", "groups", "right"):
            if not (isinstance(getattr(self, name), int) and getattr(self, name) >= 1):
                raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {getattr(self, name)!r} instead.")
        if self.form not in (Form.SUM, Form.GROUPED, Form.GRAM, Form.OUTER):
            raise RecipeError(f"`form` must be 'sum', 'grouped', 'gram' or 'outer'. Got {self.form!r} instead.")
        beside = {"groups": (Form.GROUPED, Form.GRAM), "right": (Form.OUTER,), "nonnegative": (Form.SUM, Form.GROUPED)}
        for name, forms in beside.items():
            if int(getattr(self, name)) > (name != "nonnegative") and self.form not in forms:
                raise RecipeError(f"`{name}` must stay open for {self.form!s} sums. Got {getattr(self, name)!r} instead.")
        assert self._shape
        self.event()

    @property
    def bound(self) -> Bound:
        """Give the set that holds all that one place can add."""
        if self.form == Form.GRAM:  # as far apart as vectors without negative parts: tr(AB) ≥ 0 for both
            return Orthant(self.groups * self.width**2, self.norm**2)
        dimension = self.width * (self.right if self.form == Form.OUTER else self.groups)
        return Orthant(dimension, self.norm) if self.nonnegative else Ball(dimension, self.norm)

    @property
    def sensitivity(self) -> float:
        """Bound how far one unit moves the sum."""
        return _charged(self.bound, self.bound.sensitivity(self.adjacency, unit=self.unit))

    def event(self) -> Event:
        """One Gaussian answer, however many numbers it has."""
        return Gaussian(self.sensitivity, float(self.sigma))

    @property
    def _shape(self) -> Shape:
        product = self.form in (Form.GRAM, Form.OUTER)
        step = 2.0 ** (math.floor(math.log2(self.sigma)) - (_PRODUCT_FINENESS if product else _FINENESS))
        if product:  # the root of the step is a step of both factors: a power of two as well
            step = 4.0 ** math.floor(math.log2(step) / 2)
        return Shape(self.form, self.width, self.norm, self.places, step, self.groups, self.right, self.nonnegative)

    def contribute(self, blocks: Iterable[Block]) -> Array:
        """Give the noisy sum: (width,), (groups, width), (groups, width, width), (width, width) or (width, right)."""
        summed = GridSum(self._shape)
        for block in blocks:
            places, left = (_real(part._open(_KEY)) for part in (block.places, block.left))
            groups, right = (None if part is None else _real(part._open(_KEY)) for part in (block.groups, block.right))
            summed.add(places, left, groups, right)
        total, unit = summed.total, self._shape.unit
        flat = total.reshape(-1)
        for start in range(0, flat.size, _BLOCK):  # in place: a Gram matrix may fill half of the memory
            part = flat[start : start + _BLOCK]
            part += rounded_gaussian(self.sigma / unit, part.shape)
        noisy = total * unit
        if self.form == Form.GRAM:  # after the noise: two independent draws for one number are averaged
            noisy = (noisy + noisy.swapaxes(-1, -2)) / 2
        return np.asarray(noisy)


@final
@dataclass(frozen=True)
class LaplaceMean:
    """Release the mean of bounded vectors with Laplace(scale) on every coordinate of their sum.

    Formal guarantee: each query is Δ₁/scale-DP with Δ₁ the 1-norm sensitivity of the sum.
    """

    bound: Bound
    scale: float
    teachers: int
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    unit: Unit = _RECORD

    def __post_init__(self) -> None:
        check_scale(scale=self.scale, teachers=self.teachers)
        self.event()

    def event(self) -> Event:
        """One Laplace answer."""
        sensitivity = self.bound.sensitivity(self.adjacency, unit=self.unit, norm=1)
        return Laplace(_charged(self.bound, sensitivity), float(self.scale))

    def contribute(self, ballots: Sealed, *, share: float = 1.0) -> Array:
        """Give means (queries, dimension). The share must be 1."""
        if share != 1.0:
            raise RecipeError(f"`share` must be 1 for Laplace noise. Got {share!r} instead.")
        step = _step(self.scale)
        total = _grid_sum(_open_ballots(ballots, self.bound, self.teachers, step), self.bound, step)
        return np.asarray((total + rounded_laplace(self.scale / step, total.shape)) * step / self.teachers)


@final
@dataclass(frozen=True)
class AboveThreshold:
    """Release which of many coordinates of a mean are large: the sparse vector technique, at most `answers` of them.

    Formal guarantee: one run over all coordinates of one query is (epsilon_threshold + epsilon_answers)-DP
    (Lyu, Su & Li 2017, Algorithm 1). It tells positions, never values.
    """

    bound: Bound
    threshold: float
    epsilon_threshold: float
    epsilon_answers: float
    answers: int
    teachers: int
    unit: Unit = _RECORD

    def __post_init__(self) -> None:
        self.event()
        check_scale(teachers=self.teachers, noise=self._scale)
        if not abs(self.threshold * self.teachers) / _step(self._scale) <= 2.0**62:
            raise RecipeError(f"`threshold` must be finite and fit 64 bits on the grid. Got {self.threshold!r} instead.")

    def event(self) -> Event:
        """One run of the technique."""
        return SparseVector(float(self.epsilon_threshold), float(self.epsilon_answers), self.answers)

    @property
    def _reach(self) -> float:
        """Bound how far one unit moves one coordinate of the sum."""
        return self.bound.sensitivity(Adjacency.REPLACE_ONE, unit=self.unit, norm=math.inf)

    @property
    def _scale(self) -> float:
        """Give the larger of the two noises: the grid follows it, so that neither outgrows 64 bits."""
        return self._reach * max(1 / self.epsilon_threshold, 2 * self.answers / self.epsilon_answers)

    def contribute(self, ballots: Sealed, *, share: float = 1.0) -> Array:
        """Give bools (queries, dimension): the first `answers` coordinates whose noisy size passes the noisy threshold."""
        if share != 1.0:
            raise RecipeError(f"`share` must be 1 for the sparse vector technique. Got {share!r} instead.")
        step = _step(self._scale)
        total = np.abs(_grid_sum(_open_ballots(ballots, self.bound, self.teachers, step), self.bound, step))
        grid = self._reach / step + 1  # cutting towards zero can add a step to a difference
        bar = math.ceil(self.threshold * self.teachers / step) + rounded_laplace(grid / self.epsilon_threshold, (len(total), 1))
        above = total + rounded_laplace(2 * self.answers * grid / self.epsilon_answers, total.shape) >= bar
        return np.asarray(above & (np.cumsum(above, axis=1) <= self.answers))


@final
@dataclass(frozen=True)
class SmoothNumber:
    """Release one sealed number with noise of `sigma` times its β-smooth sensitivity (GNSS).

    Formal guarantee: accounting.smooth_release_rdp, the exact worst case over neighbours. The grid is fixed beforehand, and a
    step of it is added to the sensitivity, which stays β-smooth. The number and its sensitivity are cut at 2^24/σ, a public
    constant beyond which a price means nothing: the sensitivity of a number in [0, c] is at most c, and min(S, c) is as
    smooth as S.
    """

    beta: float
    sigma: float

    def __post_init__(self) -> None:
        check_scale(beta=self.beta, sigma=self.sigma)

    def event(self) -> Event:
        """One smooth release."""
        return SmoothRelease(float(self.beta), float(self.sigma))

    def contribute(self, ballots: Sealed, *, share: float = 1.0) -> Array:
        """Give the noisy number from a sealed pair (number, smooth sensitivity)."""
        if share != 1.0:
            raise RecipeError(f"`share` must be 1 for a smooth release. Got {share!r} instead.")
        if ballots.shape != (2,):
            raise DataError(f"`ballots` must be a sealed (number, smooth sensitivity). Got shape {ballots.shape} instead.")
        pair = _real(ballots._open(_KEY))
        if not (np.isfinite(pair).all() and (pair >= 0).all()):
            raise DataError("`ballots` must be a finite number and sensitivity ≥ 0. Got others instead (withheld).")
        step = 2.0**-20
        number, smooth = np.minimum(pair, 2.0**24 / self.sigma).tolist()
        return np.asarray((math.trunc(number / step) + rounded_gaussian(self.sigma * (smooth + step) / step, 1)[0]) * step)
