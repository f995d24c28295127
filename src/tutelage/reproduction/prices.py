"""What a figure's noise costs: for as many teachers and answers as its paper had, all of them priced together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from tutelage.planning import MeanPlan


@final
@dataclass(frozen=True, kw_only=True)
class Price:
    """Say how many teachers and answers a paper's noise was for, its δ, and an honest budget in place of its own.

    σ is that of the noise on the mean of the teachers' codes, counted in the radius of their bound: the length of the longest
    code that a ball lets through, √l for l numbers in [-1, 1]. One record moves a code by the diameter, twice that.
    """

    teachers: int
    answers: int
    delta: float
    honest: tuple[float, float]
    assumed: str = ""  # what the paper does not say

    def epsilon(self, sigma: float) -> float:
        """Give the exact ε of all answers at the paper's δ: replace-one, every record of one teacher."""
        if not sigma:
            return math.inf
        epsilon = MeanPlan(self.teachers, self.answers, sigma, None, self.delta).solved().epsilon
        assert epsilon is not None
        return epsilon

    @property
    def sigma(self) -> float:
        """Give the noise that the honest budget asks for."""
        epsilon, delta = self.honest
        sigma = MeanPlan(self.teachers, self.answers, None, epsilon, delta).solved().sigma
        assert sigma is not None
        return sigma

    @property
    def point(self) -> float:
        """Give that noise to three digits, rounded up, to stand on an axis."""
        digits = 2 - math.floor(math.log10(self.sigma))
        return math.ceil(self.sigma * 10**digits) / 10**digits

    @property
    def heading(self) -> str:
        """Head a column of ε."""
        return f"ε, δ = {_short(self.delta)}"

    @property
    def told(self) -> str:
        """Say what ε in this figure is of."""
        return (
            f"ε is that of all {self.answers:,} answers of {self.teachers} teachers together at δ = {_short(self.delta)}, exact, "
            f"replace-one{self.assumed}. An honest {self.budget} asks for σ = {self.point:g} in the same unit."
        )

    @property
    def budget(self) -> str:
        """Write the honest (ε, δ)."""
        return f"({self.honest[0]:g}, {_short(self.honest[1])})"

    def named(self, sigma: float) -> str:
        """Write a σ; beside the honest one, its budget."""
        return f"{sigma:g}, honest {self.budget}" if sigma == self.point else f"{sigma:g}"

    def column(self, sigmas: Sequence[float]) -> list[str]:
        """Write the ε of every σ."""
        return [written(self.epsilon(sigma)) for sigma in sigmas]

    def ticks(self, sigmas: Sequence[float], *, most: int = 5) -> dict[float, str]:
        """Choose some σ of an axis, the largest among them, to write their ε above it."""
        some = [sigma for sigma in sigmas if sigma]
        step = -(-len(some) // most)
        return {sigma: written(self.epsilon(sigma)) for sigma in some[::-step]}


def written(epsilon: float) -> str:
    """Write an ε for people: whole from 100 on."""
    if math.isinf(epsilon):
        return "∞"
    return f"{epsilon:,.0f}" if epsilon >= 100 else f"{epsilon:.3g}"


def _short(delta: float) -> str:
    return f"{delta:g}".replace("e-0", "e-")


# 000 draws its noise over σ and says for how many teachers nowhere; its student asks about 130 patients.
LATER = Price(
    teachers=100, answers=130, delta=1e-5, honest=(8.0, 1e-5), assumed="; how many teachers the paper does not say: 100 are taken"
)
THESIS = Price(teachers=16, answers=16_384, delta=1e-7, honest=(2.0, 1e-7))  # 002 Table 4.1
FIRST = Price(teachers=8, answers=62, delta=1e-2, honest=(8.0, 1e-5))  # 003 Section 3.2
