"""The only file that draws noise: exactly, from the operating system's generator. There is no seed.

Proofs: docs/theory/noise.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from tutelage.privacy.accounting import positive
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.sealed import Sealed

Integers = npt.NDArray[np.int64]

LARGEST = 2.0**45  # of a mechanism's scale; noise of up to twice as many grid steps is drawn, far inside 64 bits
_BLOCK = 1 << 20  # numbers that are drawn at once


def rounded_gaussian(sigma: float, shape: int | tuple[int, ...]) -> Integers:
    """Draw round(G) with G ~ N(0, sigma²), exactly, from the operating system's generator."""
    return _draw(
        sigma,
        shape,
        lambda uniform: -special.ndtri(uniform / 2),
        lambda mp, edge: mp.erfc(edge / (mp.mpf(sigma) * mp.sqrt(2))),
    )


def rounded_laplace(scale: float, shape: int | tuple[int, ...]) -> Integers:
    """Draw round(L) with L ~ Laplace(scale), exactly, from the operating system's generator."""
    return _draw(scale, shape, lambda uniform: -np.log(uniform), lambda mp, edge: mp.exp(-edge / mp.mpf(scale)))


def _draw(
    scale: float, shape: int | tuple[int, ...], quantile: Callable[[Any], Any], tail: Callable[[Any, Any], Any]
) -> Integers:
    """Invert the tail Pr[|X| ≥ x] at a uniform number that has as many bits as it takes.

    63 bits and a float decide almost always: the float is trusted only when it lies further from a rounding edge than many
    times its error. The others get more bits and arbitrary precision: one in 30,000 at the mechanisms' usual scale of 2^20
    steps, more at larger ones, and every draw beyond 2^36. That is slower and as exact.
    """
    positive(scale=scale)
    if scale > 2 * LARGEST:
        raise RecipeError(f"`scale` must be at most 2^46 grid steps. Got {scale!r} instead.")
    result = np.empty(shape, dtype=np.int64)
    flat = result.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        words = np.frombuffer(os.urandom(8 * part.size), dtype=np.uint64)
        bits = words >> np.uint64(1)
        magnitude = quantile((bits.astype(np.float64) + 0.5) * 2.0**-63) * scale
        nearest = np.floor(magnitude + 0.5)
        margin = 2.0**-40 * (scale + magnitude) * 8
        unsure = (np.abs(magnitude + 0.5 - np.rint(magnitude + 0.5)) <= margin) | (bits < np.uint64(1 << 42))
        part[:] = nearest
        for index in np.flatnonzero(unsure):
            part[index] = _exact_magnitude(int(bits[index]), int(nearest[index]), tail)
        np.negative(part, out=part, where=(words & np.uint64(1)).astype(bool))
    return result


def _exact_magnitude(value: int, guess: int, tail: Callable[[Any, Any], Any], bits: int = 63) -> int:
    """Find the smallest k ≥ 0 with Pr[|X| ≥ k + ½] ≤ U, drawing further bits of U until every comparison is certain."""
    from mpmath import mp

    def beyond(k: int) -> bool:
        """Tell whether the magnitude lies beyond k: U < Pr[|X| ≥ k + ½]."""
        nonlocal value, bits
        while True:
            with mp.workprec(bits + 64):
                edge, blur = tail(mp, mp.mpf(k) + mp.mpf("0.5")), mp.mpf(2) ** -(bits + 40)
                if mp.mpf(value + 1) / mp.mpf(2) ** bits < edge - blur:
                    return True
                if mp.mpf(value) / mp.mpf(2) ** bits > edge + blur:
                    return False
            value, bits = (value << 64) | int.from_bytes(os.urandom(8), "big"), bits + 64

    low, high, stride = (guess - 1 if guess > 0 and beyond(guess - 1) else -1), guess, 1
    while beyond(high):  # the guess was too small: stride out, twice as far each time
        low, high, stride = high, high + stride, 2 * stride
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if beyond(middle) else (low, middle)
    return high


def drawn_member(population: int) -> Sealed:
    """Draw one of `population` teachers evenly, from the operating system's generator. Who it is stays sealed."""
    most = 2**63 - 2**63 % population  # beyond, the first ones would be likelier
    while (word := int.from_bytes(os.urandom(8), "big") >> 1) >= most:
        pass
    return Sealed(np.asarray(word % population))


def check_scale(**named: float) -> None:
    """Refuse noise that the grid cannot carry, when the mechanism is made and before anything is charged for it."""
    for name, value in named.items():
        number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if not (number and 1 / LARGEST <= value <= LARGEST):
            raise RecipeError(f"`{name}` must be a finite number > 0, from 2^-45 to 2^45. Got {value!r} instead.")
