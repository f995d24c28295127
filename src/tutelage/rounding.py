"""Rounding for what is promised: whoever reads a figure must not be told less than it is."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context

_MEANT = Context(prec=13, rounding=ROUND_HALF_EVEN)  # the book's filter counts to 10⁻¹²: what lies beyond is no part of a figure


def rounded_up(value: float | str, digits: int) -> str:
    """Write a bound, or the "infinity" of our files, with so many significant digits, the last one rounded up.

    A plan calibrated to ε = 8 costs 8.000000000000002 after its own rounding, which is 8 here and not 8.001.
    """
    bound = float(value)
    if math.isinf(bound):
        return "∞"
    meant = _MEANT.create_decimal(repr(bound))
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(meant)):.{digits}g}"


def percent(share: float) -> str:
    """Write the most that an attack can reach, rounded up."""
    return f"{100 * float(rounded_up(share, 3)):.3g} %"
