"""How much noise, how many questions, how many teachers: answered before any data is touched."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, final

from tutelage.privacy import accounting, consensus
from tutelage.privacy.bounds import Ball, Bound, Cube, Orthant, bound_named
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.events import Event, Gaussian, NoisyMax, SparseVector
from tutelage.privacy.ledger import Budget
from tutelage.privacy.mechanisms import AboveThreshold, GNMax, LNMax, Mechanism, NoisyMean, SmoothNumber, ThresholdTest
from tutelage.privacy.units import Adjacency, Unit
from tutelage.rounding import rounded_up

METHODS = ("gnmax", "lnmax", "confident-gnmax", "interactive-gnmax", "mean")
Unknown = Literal["teachers", "queries", "sigma", "epsilon", "delta", "norm"]


# ── noisy means of codes: μ = Δ·√N / (K·σ) ────────────────────────────────────────────────────────────────────────────


@final
@dataclass(frozen=True)
class MeanPlan:
    """N noisy means over K teachers. `sigma` is the noise on the *mean*, as the papers state it. One field may be None."""

    teachers: int | None = None
    queries: int | None = None
    sigma: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    bound: str = "ball"
    dimension: int = 16
    norm: float | None = 1.0
    unit: Unit = field(default_factory=Unit)
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    def missing(self) -> Unknown:
        """Name the one unknown."""
        names: list[Unknown] = ["teachers", "queries", "sigma", "epsilon", "delta", "norm"]
        unknown = [name for name in names if getattr(self, name) is None]
        if len(unknown) != 1:
            raise RecipeError(
                "exactly one of teachers, queries, sigma, epsilon, delta and norm must be left open. "
                f"Got {len(unknown)} ({', '.join(unknown) or 'none'}) instead."
            )
        return unknown[0]

    def sensitivity(self) -> float:
        """How far one unit moves the sum of ballots of norm 1, or of the given norm: as the mechanism will charge for it."""
        bound = bound_named(self.bound, self.dimension, self.norm or 1.0)
        if not bound.sensitivity(self.adjacency, unit=self.unit) > 0:
            raise RecipeError(f"`dimension` must be ≥ 2 for the bound {self.bound!r}. Got {self.dimension!r} instead.")
        event = NoisyMean(bound, 1.0, 1, self.adjacency, self.unit).event()
        assert isinstance(event, Gaussian)
        return event.sensitivity

    def mu(self) -> float:
        """Gaussian DP of the whole plan."""
        return self.sensitivity() * math.sqrt(self.queries or 0) / ((self.teachers or 1) * (self.sigma or math.nan))

    def solved(self) -> MeanPlan:
        """Fill in the unknown: the most questions, fewest teachers, least noise, smallest ε or δ, largest norm."""
        unknown = self.missing()
        self._check(unknown)
        if unknown == "epsilon":
            return replace(self, epsilon=float(accounting.mu_epsilon(self.mu(), self.delta)))
        if unknown == "delta":
            return replace(self, delta=float(accounting.gaussian_delta(self.mu(), 1.0, self.epsilon)))
        # μ = Δ·√N / (K·σ) is known now: solve it for what is missing.
        target = float(accounting.epsilon_mu(self.epsilon, self.delta))
        root, teachers, sigma = math.sqrt(self.queries or 0), self.teachers or 0, self.sigma or 0.0
        reach = self.sensitivity()
        if unknown == "sigma":
            return replace(self, sigma=reach * root / (teachers * target))
        if unknown == "teachers":
            return replace(self, teachers=_whole("teachers", math.ceil, reach * root / (sigma * target) * (1 - 1e-12)))
        if unknown == "queries":
            return replace(self, queries=_whole("queries", math.floor, teachers * sigma * target / reach * (1 + 4e-13), power=2))
        return replace(self, norm=target * teachers * sigma / (reach * root))

    def _check(self, unknown: Unknown) -> None:
        """Refuse what no plan can have, naming the field."""
        for name in ("teachers", "queries"):
            value = getattr(self, name)
            if name != unknown and not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
                raise RecipeError(f"`{name}` must be a whole number ≥ 1. Got {value!r} instead.")
        for name in ("sigma", "epsilon", "norm"):
            if name != unknown:
                accounting.positive(**{name: getattr(self, name)})
        if unknown != "delta":
            accounting.probability(delta=self.delta)
        if unknown == "norm" and not isinstance(bound_named(self.bound, self.dimension), (Ball, Orthant, Cube)):
            raise RecipeError(
                f"`norm` must stay out of it: the bound {self.bound!r} has a fixed size. Got it as the unknown instead."
            )
        self.sensitivity()


def _whole(name: str, rounded: Callable[[float], int], value: float, *, power: int = 1) -> int:
    """Round a solution to a whole number, or say that there is none worth having."""
    if value > 1e12 ** (1 / power):
        raise RecipeError(
            f"`{name}` must come out at 10^12 or fewer. Got more instead: the other figures do not belong together."
        )
    if (whole := rounded(value**power)) < 1:
        raise RecipeError(
            f"`{name}` must come out at 1 or more. Got fewer instead: one answer already costs more than this budget."
        )
    return whole


# ── votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@final
@dataclass(frozen=True)
class Sanitise:
    """Publish the data-dependent ε too: the order, β and σ of its release, fixed before any vote is cast."""

    order: float
    beta: float
    sigma: float

    def __post_init__(self) -> None:
        accounting.valid_orders(self.order)
        if not math.isfinite(accounting.smooth_release_rdp(self.beta, self.sigma, self.order)[0]):
            limit = -1 / math.expm1(-2 * self.beta)
            raise RecipeError(f"`order` must be below 1/(1 − e^(−2·beta)) = {limit:g}. Got {self.order!r} instead.")

    def release(self) -> SmoothNumber:
        """Build the mechanism that releases it."""
        return SmoothNumber(self.beta, self.sigma)

    def check(self, budget: Budget, answers: GNMax) -> None:
        """Refuse, before anything is paid for, a release that could not be made in the end."""
        if budget.unit.teachers != 1:
            raise RecipeError(
                f"`sanitise` must come with a unit behind one teacher. Got one behind {budget.unit.teachers} instead."
            )
        if not all(consensus.gnmax_smooth_conditions(answers.sigma, answers.classes, self.order)):
            raise RecipeError(
                "`sanitise.order` must satisfy conditions C5 and C6 of Papernot et al. 2018 (Appendix B.4.2) with "
                f"sigma {answers.sigma:g} and {answers.classes} classes. Got {self.order!r} instead."
            )


@final
@dataclass(frozen=True)
class Selection:
    """Let the sparse vector technique choose which coordinates of a code are let out (Fay et al. 2020, Section 2.4).

    Of each answer at most `answers` coordinates leave, those whose size in the teachers' mean passes `threshold`. The choice
    has the `share` of what the book's filter has room for (half, if left open), the values have the rest; where the values' noise
    is given, the choice has what they leave. All three are fixed before a ballot is cast.
    """

    threshold: float
    answers: int
    share: float | None = None

    def __post_init__(self) -> None:
        accounting.positive(threshold=self.threshold)
        if self.share is not None:
            accounting.probability(share=self.share)
        if not (type(self.answers) is int and self.answers >= 1):
            raise RecipeError(f"`answers` must be a whole number ≥ 1. Got {self.answers!r} instead.")

    def built(self, values: NoisyMean, budget: Budget, queries: int) -> AboveThreshold:
        """Build the choice with as little noise as the budget has room for beside the values of all answers."""

        def fits(each: float) -> bool:
            chosen = SparseVector(*self.divided(each), self.answers)
            return accounting.admits([(chosen, queries), (values.event(), queries)], budget.epsilon, budget.delta)

        least = 1e-9 * budget.epsilon
        if not fits(least):
            raise RecipeError(
                f"`sigma` must leave a selection some of ε = {budget.epsilon:g} beside the values. Got {values.sigma:g} instead."
            )
        own = self.divided(_largest(fits, least, 2 * budget.epsilon))
        return AboveThreshold(values.bound, self.threshold, *own, self.answers, values.teachers, budget.unit)

    def divided(self, each: float) -> tuple[float, float]:
        """Divide one choice's ε between its threshold and its comparisons (Lyu, Su & Li 2017, Section 4.2)."""
        part = 1 / (1 + (2 * self.answers) ** (2 / 3))
        return each * part, each * (1 - part)

    def values_mu(self, budget: Budget) -> float:
        """Give μ for the values of all answers."""
        order, room = _room(budget)
        return math.sqrt(2 * (1 - (self.share or 0.5)) * room / order)


@final
@dataclass(frozen=True)
class Aggregation:
    """How votes become answers. What is left open is calibrated to the budget; nothing is guessed and nothing looks at votes.

    method: 'gnmax', 'lnmax', 'confident-gnmax', 'interactive-gnmax', or 'mean', which lets out the whole noisy mean of the
    ballots in place of the winner: codes of masks, or every class's share of the votes. `sigma` is the noise on the sum.
    For confident and interactive a test comes first: `threshold` is a share of the teachers, `test_ratio` the test's noise
    over the answers' noise, and `answers` how many answers the noise is calibrated for (default: every question). The run
    goes on for as long as the budget holds, so that it may answer more or fewer. The interactive test asks what the teachers
    say beyond the student; where that is nothing, the student's own label is taken if its share is at least `sure`. `rounds`
    is how often the student is fitted in between (default: 3 for the interactive method, else 1). With a `selection` a mean
    lets out few coordinates of every code, which teachers choose first.
    """

    method: str = "gnmax"
    sigma: float | None = None
    gamma: float | None = None
    threshold: float = 0.6
    test_ratio: float = 3.0
    answers: int | None = None
    sanitise: Sanitise | None = None
    rounds: int | None = None
    sure: float = 0.9
    selection: Selection | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise RecipeError(f"`method` must be one of {', '.join(map(repr, METHODS))}. Got {self.method!r} instead.")
        accounting.positive(threshold=self.threshold, test_ratio=self.test_ratio, sure=self.sure)
        if self.threshold > 2:  # above 1 only noise carries a count past it: Papernot et al. 2018 test 250 teachers against 300
            raise RecipeError(f"`threshold` must be a share of the teachers, at most 2. Got {self.threshold!r} instead.")
        if self.sure > 1:
            raise RecipeError(f"`sure` must be a share, at most 1. Got {self.sure!r} instead.")
        if self.rounds is not None and not (type(self.rounds) is int and self.rounds >= 1):
            raise RecipeError(f"`rounds` must be a whole number ≥ 1. Got {self.rounds!r} instead.")
        if self.answers is not None and not self.adaptive:
            raise RecipeError(
                f"`answers` must stay open for {self.method!r}: it answers every question. Got {self.answers!r} instead."
            )
        for name in ("sigma", "gamma", "answers"):
            if getattr(self, name) is not None:
                accounting.positive(**{name: getattr(self, name)})
        if self.method == "lnmax" and (self.sigma is not None or self.sanitise is not None):
            raise RecipeError("`sigma` and `sanitise` must stay open for 'lnmax' (its noise is `gamma`). Got them instead.")
        if self.method == "mean" and self.sanitise is not None:
            raise RecipeError("`sanitise` must stay open for 'mean', whose price does not depend on the data. Got it instead.")
        if self.method != "mean" and self.selection is not None:
            raise RecipeError(f"`selection` must stay open for {self.method!r}, which lets out no codes. Got it instead.")
        if self.sigma is not None and self.selection is not None and self.selection.share is not None:
            got = self.selection.share
            raise RecipeError(f"`selection.share` must stay open where sigma is given, which divides. Got {got!r} instead.")
        if self.method != "lnmax" and self.gamma is not None:
            raise RecipeError(f"`gamma` must stay open for {self.method!r} (its noise is `sigma`). Got {self.gamma!r} instead.")

    @property
    def adaptive(self) -> bool:
        """Tell whether the number of answers depends on the votes, so that only the filter's budget may be quoted."""
        return self.method == "confident-gnmax" or self.interactive

    @property
    def interactive(self) -> bool:
        """Tell whether the teachers are asked for what they know beyond the student."""
        return self.method == "interactive-gnmax"

    @property
    def turns(self) -> int:
        """Give the number of rounds."""
        return self.rounds or (3 if self.interactive else 1)

    @property
    def vectors(self) -> bool:
        """Tell whether answers are whole vectors and not winners."""
        return self.method == "mean"

    def built(self, budget: Budget, queries: int, teachers: int, bound: Bound) -> tuple[Mechanism, ThresholdTest | None]:
        """Build the mechanism (and its screen) with every open parameter calibrated; refuse what cannot answer once."""
        classes = bound.dimension
        if not (isinstance(queries, int) and queries >= 1):
            raise RecipeError(f"`queries` must be a whole number ≥ 1. Got {queries!r} instead.")
        if self.interactive and self.sure <= 1 / classes:
            raise RecipeError(
                f"`sure` must be above 1/{classes}, which a student has who knows nothing. Got {self.sure!r} instead."
            )
        mechanism, screen = self._calibrated(budget, queries, teachers, bound)
        once = [(step.event(), 1) for step in (screen, mechanism) if step is not None]
        if self.sanitise is not None:
            assert isinstance(mechanism, GNMax)
            self.sanitise.check(budget, mechanism)
            once.append((self.sanitise.release().event(), 1))
        if not accounting.admits(once, budget.epsilon, budget.delta):
            name, limit = self._least(budget, 1, teachers, bound)
            raise RecipeError(
                f"`{name}` must let one answer fit ε = {budget.epsilon:g} at δ = {budget.delta:g}: {limit}. "
                f"Got {getattr(self, name)!r} instead."
            )
        return mechanism, screen

    def shortfall(self, budget: Budget, queries: int, teachers: int, bound: Bound) -> str | None:
        """Say how many questions the budget holds where the given noise is too little for all of them; None where it is not."""
        events = self.planned(budget, queries, teachers, bound)

        def fits(count: int) -> bool:
            return accounting.admits([(event, min(each, count)) for event, each in events], budget.epsilon, budget.delta)

        if (self.sigma or self.gamma) is None or fits(queries):
            return None
        held = bisect.bisect_left(range(1, queries + 1), x=True, key=lambda count: not fits(count))
        what = "questions, if all pass the test" if self.adaptive else "answers"
        _, limit = self._least(budget, queries, teachers, bound)
        told = f"the budget of ε = {budget.epsilon:g} holds {held:,} of {queries:,} {what}; {limit}"
        return f"{told} fits what is planned." if self.selection is None else f"{told}."

    def _least(self, budget: Budget, queries: int, teachers: int, bound: Bound) -> tuple[str, str]:
        """Name the key of the noise, and say with how little of it so many questions fit: as the calibration has it."""
        if self.selection is not None:  # what the choice costs hangs on this noise, too
            return "sigma", "left open, it is calibrated beside the selection"
        mechanism, _ = replace(self, sigma=None, gamma=None)._calibrated(budget, queries, teachers, bound)
        if isinstance(mechanism, LNMax):
            return "gamma", f"γ ≤ {_rounded(mechanism.gamma, math.floor):.4g}"
        assert isinstance(mechanism, (GNMax, NoisyMean))
        return "sigma", f"σ ≥ {_rounded(mechanism.sigma, math.ceil):.4g}"

    def _calibrated(self, budget: Budget, queries: int, teachers: int, bound: Bound) -> tuple[Mechanism, ThresholdTest | None]:
        unit, classes = budget.unit, bound.dimension
        if self.method == "lnmax":
            return LNMax(classes, self.gamma or _largest_gamma(budget, queries), unit, teachers), None
        if self.sanitise is not None:
            target = room_beside(self.sanitise, budget)
        else:
            target = math.nan if self.sigma is not None else float(accounting.epsilon_mu(budget.epsilon, budget.delta))
        if self.vectors:
            one = NoisyMean(bound, 1.0, teachers, budget.adjacency, unit).event()
            assert isinstance(one, Gaussian)
            if self.selection is not None and self.sigma is None:
                target = self.selection.values_mu(budget)
            sigma = self.sigma or one.sensitivity * math.sqrt(queries) / target
            return NoisyMean(bound, sigma, teachers, budget.adjacency, unit), None
        if not self.adaptive:
            return GNMax(classes, self.sigma or math.sqrt(2 * queries) * unit.teachers / target, unit, teachers), None
        answers = min(self.answers or queries, queries)
        sigma = self.sigma or math.sqrt(queries / self.test_ratio**2 + 2 * answers) * unit.teachers / target
        test = ThresholdTest(classes, self.threshold * teachers, sigma * self.test_ratio, self.interactive, unit, teachers)
        return GNMax(classes, sigma, unit, teachers), test

    def selecting(self, budget: Budget, queries: int, mechanism: Mechanism) -> AboveThreshold | None:
        """Build what chooses coordinates before this mechanism lets them out, where something does."""
        if self.selection is None:
            return None
        assert isinstance(mechanism, NoisyMean)
        return self.selection.built(mechanism, budget, queries)

    def planned(self, budget: Budget, queries: int, teachers: int, bound: Bound) -> list[tuple[Event, int]]:
        """List what a run will have been if every question is asked and as many are answered as the noise is meant for."""
        mechanism, screen = self.built(budget, queries, teachers, bound)
        first = screen or self.selecting(budget, queries, mechanism)
        steps = [] if first is None else [(first.event(), queries)]
        steps.append((mechanism.event(), min(self.answers or queries, queries)))
        return steps if self.sanitise is None else [*steps, (self.sanitise.release().event(), 1)]


def _rounded(value: float, towards: Callable[[float], int]) -> float:
    """Round to four figures, to the side that is safe."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return towards(value / unit) * unit


def _largest_gamma(budget: Budget, queries: int) -> float:
    """The least Laplace noise with which all questions fit the budget."""

    def fits(gamma: float) -> bool:
        event = NoisyMax("laplace", 1 / gamma, budget.unit.teachers)
        return accounting.admits([(event, queries)], budget.epsilon, budget.delta)

    return _largest(fits, 1e-9, 1e6)


def _largest(fits: Callable[[float], bool], low: float, high: float) -> float:
    """Find the largest number that fits, between one that does and one that does not."""
    while high / low > 1 + 1e-12:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _room(budget: Budget) -> tuple[float, float]:
    """Give the filter's order for events that are not all Gaussian, and what their Rényi divergences may add up to there."""
    order = accounting.filter_order(budget.epsilon, budget.delta)
    return order, budget.epsilon - math.log(1 / budget.delta) / (order - 1)


def room_beside(sanitise: Sanitise, budget: Budget) -> float:
    """μ that is left for answers beside the sanitised ε's own release, at the filter's order."""
    order, whole = _room(budget)
    release = float(accounting.event_rdp(sanitise.release().event(), order)[0])
    room = whole - release
    if not room > 0:
        raise RecipeError(
            f"`sanitise` must leave room for answers in ε = {budget.epsilon:g}. Got a release that costs {release:g} at order "
            f"{order:g} instead; choose a larger sigma, a smaller beta or a larger ε."
        )
    return math.sqrt(2 * room / order)


# ── what everyone should be told ──────────────────────────────────────────────────────────────────────────────────────


def warnings(epsilon: float, delta: float, records: int | None = None) -> list[str]:
    """Say plainly when the figures promise less than they seem to."""
    said = []
    if records is not None and delta >= 1 / records:
        said.append(
            f"δ = {rounded_up(delta, 6)} is not below 1/n = {1 / records:.3g}: "
            "publishing one random record whole would satisfy it."
        )
    if epsilon > 20:
        said.append(f"ε = {rounded_up(epsilon, 4)} is above 20: practically no guarantee.")
    return said


def side_by_side(plan: MeanPlan) -> list[tuple[str, MeanPlan | None]]:
    """Solve one plan under every adjacency, so that a figure is never read without its own; None where there is no solution."""
    return [(name, _solution(view)) for name, view in by_adjacency(plan)]


def by_adjacency(plan: MeanPlan) -> list[tuple[str, MeanPlan]]:
    """Put one plan under every adjacency."""
    reach = plan.unit.teachers
    return [
        (
            "a record, patient or institution changes (replace-one): diameter",
            replace(plan, unit=Unit("record", reach), adjacency=Adjacency.REPLACE_ONE),
        ),
        (
            "an institution comes or goes, K public, absent = 0 (add-remove): radius",
            replace(plan, unit=Unit("institution", reach), adjacency=Adjacency.ADD_REMOVE),
        ),
    ]


def _solution(plan: MeanPlan) -> MeanPlan | None:
    try:
        return plan.solved()
    except RecipeError:
        return None
